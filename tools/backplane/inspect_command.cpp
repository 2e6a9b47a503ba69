// backplane inspect
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "backplane/backplane.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/graph_page.hpp"
#include "tools/backplane/inspect_text.hpp"
#include "tools/backplane/json.hpp"
#include "tools/backplane/memory_text.hpp"
#include "tools/backplane/output_file.hpp"
#include "tools/backplane/selection.hpp"

namespace backplane::cli {
namespace {

struct InspectRequest {
  Selection selection;
  std::string model;
  std::optional<std::string> dot, html, profile;
  bool explain = false;
  bool memory = false;
  bool json = false;
};

/// A trace that `run --profile` wrote.
Json read_profile(const std::string& path) {
  std::ifstream file(path);
  Json profile = Json::parse(file, nullptr, false);
  if (!file.is_open() || !profile.is_object() || !profile.contains("traceEvents"))
    wrong_request("--profile: ", path, " is not a trace that `run --profile` wrote");
  return profile;
}

int inspect(const InspectRequest& request) {
  const Options options = request.selection.options();
  if (request.dot) check_output_path(*request.dot, "--dot");
  if (request.html) check_output_path(*request.html, "--html");
  const Json profile = request.profile ? read_profile(*request.profile) : Json();
  const Environment environment(options);
  const Session session(environment, request.model, options);
  KnownFiles known;
  if (request.dot || request.html) known = files_of(session);
  if (request.profile) known.push_back({"the trace", *request.profile});
  if (request.dot) refuse_known(*request.dot, "--dot", known);
  if (request.html) refuse_known(*request.html, "--html", known);
  Json explanation = Json::parse(session.explain());
  if (request.memory) explanation["memory"] = Json::parse(session.memory());
  OutputFiles files;
  if (request.dot) files.add(*request.dot, explanation_dot(explanation));
  if (request.html) {
    const std::string title = std::filesystem::path(request.model).filename().string();
    files.add(*request.html, explanation_page(title, explanation, profile));
  }
  files.commit();
  if (request.json) {
    std::cout << dump(explanation);
  } else {
    std::cout << explanation_text(explanation, request.explain);
    if (request.memory) std::cout << memory_text(explanation["memory"]);
  }
  return kDone;
}

}  // namespace

void add_inspect(CLI::App& program, Action& chosen) {
  auto request = std::make_shared<InspectRequest>();
  CLI::App& command =
      *program.add_subcommand("inspect", "shows a model and where its nodes are placed");
  command.add_option("MODEL", request->model, "ONNX file")->required();
  command.add_flag("--explain", request->explain,
                   "show every node, its kernel, and why others refused it");
  command.add_flag(
      "--memory", request->memory,
      "show what lies where in memory and when it is in use; with --json under \"memory\"");
  request->selection.add_dims_to(command);
  command.add_option("--dot", request->dot, "file for the placed graph in Graphviz's language");
  command.add_option("--html", request->html, "file for a page that shows the placed graph");
  command.add_option("--profile", request->profile,
                     "trace of `run --profile` whose times the page shows");
  command.add_flag("--json", request->json,
                   "print one JSON value, with everything that --explain shows");
  request->selection.add_to(command);
  command.callback([request, &chosen] { chosen = [request] { return inspect(*request); }; });
}

}  // namespace backplane::cli
