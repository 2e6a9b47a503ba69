// backplane inspect
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "backplane/backplane.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/inspect_text.hpp"
#include "tools/backplane/json.hpp"
#include "tools/backplane/output_file.hpp"
#include "tools/backplane/selection.hpp"

namespace backplane::cli {
namespace {

struct InspectRequest {
  Selection selection;
  std::string model;
  std::optional<std::string> dot;
  bool explain = false;
  bool json = false;
};

int inspect(const InspectRequest& request) {
  const Options options = request.selection.options();
  if (request.dot) check_output_path(*request.dot, "--dot");
  const Environment environment(options);
  const Session session(environment, request.model, options);
  const Json explanation = Json::parse(session.explain());
  if (request.dot) {
    OutputFiles files;
    files.add(*request.dot, explanation_dot(explanation));
    files.commit();
  }
  if (request.json) {
    std::cout << dump(explanation);
  } else {
    std::cout << explanation_text(explanation, request.explain);
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
  request->selection.add_dims_to(command);
  command.add_option("--dot", request->dot, "file for the placed graph in Graphviz's language");
  command.add_flag("--json", request->json,
                   "print one JSON value, with everything that --explain shows");
  request->selection.add_to(command);
  command.callback([request, &chosen] { chosen = [request] { return inspect(*request); }; });
}

}  // namespace backplane::cli
