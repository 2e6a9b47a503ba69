// The files that a session reads and those that it writes.
#include <algorithm>
#include <set>

#include "core/base/atomic_file.hpp"
#include "core/base/quote.hpp"
#include "core/plan/copy_rates.hpp"
#include "core/runtime/session.hpp"

namespace backplane::core {
namespace {

void add_once(MappedFiles& files, const std::shared_ptr<const MappedFile>& file) {
  if (file != nullptr && std::find(files.begin(), files.end(), file) == files.end())
    files.push_back(file);
}

void add_files(MappedFiles& files, const Graph& graph) {
  for (const Value& value : graph.values()) {
    if (value.constant != nullptr && !value.constant->stored_bytes().empty())
      add_once(files, MappedFile::holding(value.constant->stored_bytes().data()));
  }
  for (const NodeId id : graph.node_ids())
    for_each_body(graph.node(id), [&](const Graph& body) { add_files(files, body); });
}

constexpr const char* kSavePlan = "save_plan";
constexpr const char* kSaveModel = "optimized_model_path";

}  // namespace

/// Where the measured copy rates are kept; empty: nowhere.
std::filesystem::path Session::copy_rate_file() const {
  if (options_.placement_policy != PlacementPolicy::Cost || options_.copy_rates == "off") return {};
  return options_.copy_rates == "auto" ? default_copy_rate_file()
                                       : std::filesystem::path(options_.copy_rates);
}

/// Lists the mapped files in which the model's contents lie.
void Session::note_files() {
  add_once(files_, file_);
  add_files(files_, model_.graph);
}

std::vector<SessionFile> Session::files() const {
  std::vector<SessionFile> files;
  const auto add = [&](const char* what, const char* option, const std::filesystem::path& path) {
    if (!path.empty()) files.push_back({what, option, path});
  };
  for (const auto& file : files_) {
    if (saved_plan_ != nullptr && file == saved_plan_->file) continue;  // by its option, below
    add(file == file_ ? "the model itself" : "a file of the model's weights", "", file->path());
  }
  for (const std::filesystem::path& file : options_.files) add("the configuration", "", file);
  std::set<PluginPtr> plugins(libraries_.begin(), libraries_.end());
  const auto add_plugins = [&](const DeviceSet& devices) {
    for (const SessionDevice& device : devices.devices) plugins.insert(device.device->plugin());
  };
  add_plugins(devices_);
  for (const auto& [name, path] : paths_) add_plugins(path->devices);
  for (const PluginPtr& plugin : plugins) {
    if (!plugin->is_of_process()) add("a plugin", "", plugin->file());
  }
  add("the plan that is read", "saved_plan", options_.saved_plan);
  add("the file of copy rates", "copy_rates", copy_rate_file());
  add("the plan that is saved", kSavePlan, options_.save_plan);
  add("the optimized model that is saved", kSaveModel, options_.optimized_model);
  if (!options_.optimized_model.empty()) {
    // Contents that do not fit into a model's file go beside it.
    add("the optimized model's weights", kSaveModel, options_.optimized_model.string() + ".data");
  }
  return files;
}

/// What the options name to be written.
void Session::check_written() const {
  for (const SessionFile& file : files()) {
    if (file.option == kSavePlan || file.option == kSaveModel)
      check_written(file.option, file.path);
  }
}

/// Throws where a file that is to be written is another one of the session's.
void Session::check_written(const std::string& option, const std::filesystem::path& path) const {
  for (const SessionFile& file : files()) {
    // A plan may be brought up to date: it is replaced as a whole, and what was read of it stays.
    const bool is_same =
        file.option == option || (option == kSavePlan && file.option == "saved_plan");
    if (!is_same && is_one_file(path, file.path))
      invalid(option, ": ", quoted(path.string()), " is ", file.what, "; give another file");
  }
}

}  // namespace backplane::core
