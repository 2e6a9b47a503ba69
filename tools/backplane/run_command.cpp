// backplane run
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/feeds.hpp"
#include "tools/backplane/json.hpp"
#include "tools/backplane/numbers.hpp"
#include "tools/backplane/output_file.hpp"
#include "tools/backplane/selection.hpp"
#include "tools/backplane/terminal.hpp"
#include "tools/backplane/value_file.hpp"

namespace backplane::cli {
namespace {

namespace fs = std::filesystem;

struct RunRequest {
  Selection selection;
  std::string model;
  std::vector<std::string> inputs, outputs;
  std::optional<std::string> output_dir, profile;
  std::optional<double> timeout;  ///< seconds
  bool json = false;
};

/// An output as it is shown.
struct Result {
  std::string name;
  Value value;
  std::string file;  ///< "" when none was written
};

/// Of the value, as far as the model says; "" else.
std::string type_of(const Session& session, const std::string& name) {
  for (const ValueInfo& output : session.outputs()) {
    if (output.name == name) return output.type;
  }
  return "";
}

/// Makes the folder, and refuses what outputs of these names could not replace. The files' names without suffix.
std::vector<std::string> make_output_folder(const std::string& folder, const Session& session,
                                            const std::vector<std::string>& names,
                                            const KnownFiles& known) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    wrong_request("--output-dir: cannot make the folder '", folder, "'",
                  error ? ": " + error.message() : "");
  }
  check_output_path(fs::path(folder) / "output", "--output-dir");
  FileNames file_names;
  std::vector<std::string> stems;
  for (const std::string& name : names) {
    stems.push_back((fs::path(folder) / file_names.stem(name)).string());
    const std::vector<std::string> suffixes = file_suffixes(type_of(session, name));
    for (const std::string& suffix : suffixes)
      refuse_known(stems.back() + suffix, "--output-dir", known);
    if (suffixes.size() == 1) check_output_path(stems.back() + suffixes.front(), "--output-dir");
  }
  return stems;
}

std::vector<std::string> fetch_names(const Session& session, const RunRequest& request) {
  if (!request.outputs.empty()) return request.outputs;
  std::vector<std::string> names;
  for (const ValueInfo& output : session.outputs()) names.push_back(output.name);
  return names;
}

/// The first elements: "0.1 0.2 ..."
std::string first_elements(const ValueView& value) {
  constexpr std::uint64_t kShown = 6;
  if (value.element_type() == ElementType::None) return text(value.element_count(), " elements");
  std::string result;
  const std::uint64_t count = value.size();
  for (std::uint64_t i = 0; i < std::min(count, kShown); ++i) {
    if (i > 0) result += " ";
    result += value.element_type() == ElementType::String
                  ? "\"" + one_line(value.string(i)).substr(0, 40) + "\""
                  : element_text(value.element_type(), value.bytes(), i);
  }
  return count > kShown ? result + " ..." : result;
}

void print(const std::vector<Result>& results, double run_ms, bool as_json) {
  if (!as_json) {
    Table table({"output", "type", "shape", "first elements", "file"});
    for (const Result& result : results) {
      const bool is_tensor = result.value.element_type() != ElementType::None;
      table.add({result.name, result.value.type(), is_tensor ? shape_text(result.value.dims()) : "",
                 first_elements(result.value), result.file});
    }
    std::cout << table.text() << "run: " << duration_text(run_ms) << "\n";
    return;
  }
  Json outputs = Json::array();
  for (const Result& result : results) {
    const bool is_tensor = result.value.element_type() != ElementType::None;
    outputs.push_back({{"name", result.name},
                       {"type", result.value.type()},
                       {"shape", is_tensor ? Json(result.value.dims()) : Json(nullptr)},
                       {"file", result.file.empty() ? Json(nullptr) : Json(result.file)}});
  }
  std::cout << dump({{"outputs", outputs}, {"run_ms", run_ms}});
}

int run(const RunRequest& request) {
  GivenOnce outputs("--output");
  for (const std::string& output : request.outputs) outputs.add(output);
  Options options = request.selection.options();
  if (request.profile) options.set("profile", "true");
  const Environment environment(options);
  const Session session(environment, request.model, options);
  const FeedSet feeds(session, request.inputs);
  KnownFiles known;
  if (request.profile || request.output_dir) known = files_of(session);
  for (const std::string& file : feeds.files()) known.push_back({"an input", file});
  const std::vector<std::string> names = fetch_names(session, request);
  std::vector<std::string> stems;
  if (request.profile) check_output_path(*request.profile, "--profile", known);
  if (request.output_dir) stems = make_output_folder(*request.output_dir, session, names, known);

  RunOptions run_options;
  if (request.timeout) {
    run_options.set_timeout(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(*request.timeout)));
  }

  const auto start = std::chrono::steady_clock::now();
  std::vector<Value> values =
      as_run([&] { return session.run(feeds.views(), request.outputs, run_options); });
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;

  std::vector<Result> results;
  for (std::size_t i = 0; i < values.size(); ++i)
    results.push_back({names.at(i), std::move(values[i]), ""});
  OutputFiles files;
  if (request.output_dir) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      Result& result = results[i];
      result.file = stems.at(i) + file_suffix(result.value);
      files.add(result.file, [&](const Append& append) { write_value(result.value, append); });
    }
  }
  if (request.profile) files.add(*request.profile, session.trace());
  files.commit();
  print(results, taken.count(), request.json);
  return kDone;
}

}  // namespace

void add_run(CLI::App& program, Action& chosen) {
  auto request = std::make_shared<RunRequest>();
  CLI::App& command = *program.add_subcommand("run", "runs a model once");
  command.add_option("MODEL", request->model, "ONNX file")->required();
  add_repeatable(command, "--input", request->inputs,
                 "NAME=FILE: a .npy file, or a serialized proto (.pb)");
  request->selection.add_dims_to(command);
  add_repeatable(command, "--output", request->outputs,
                 "output or inner value to compute; default: all outputs");
  command.add_option("--output-dir", request->output_dir,
                     "folder to write outputs to: NAME.npy, or NAME.pb");
  command.add_option("--profile", request->profile, "file for a Chrome/Perfetto trace of the run");
  command
      .add_option(
          "--timeout", request->timeout,
          "seconds that the run may take; past them it fails, within the node that is running, or "
          "when a device has done the few that it was given")
      ->check(real_number(0, 1e9));
  command.add_flag("--json", request->json, "print one JSON value");
  request->selection.add_precision_to(command);
  request->selection.add_to(command);
  command.callback([request, &chosen] { chosen = [request] { return run(*request); }; });
}

}  // namespace backplane::cli
