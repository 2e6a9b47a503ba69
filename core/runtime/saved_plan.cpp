// How a session saves its plan and opens one.
#include "core/runtime/saved_plan.hpp"

#include <set>

#include "core/base/mapped_file.hpp"
#include "core/runtime/session.hpp"

namespace backplane::core {
namespace {

std::string hex(const ContentHash& hash) { return text(std::hex, hash.high, '.', hash.low); }

template <class List>
std::string list_of(const List& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return list;
}

/// The options that decide what is placed where.
std::string deciding_options(const SessionOptions& options) {
  std::string all =
      text("optimization=", static_cast<int>(options.optimization),
           " disabled_passes=", list_of(options.disabled_passes),
           " enabled_passes=", list_of(options.enabled_passes),
           " replace_ops=", list_of(options.replace_ops),
           " execution_order=", static_cast<int>(options.execution_order),
           " deterministic=", options.deterministic, " precision=", options.precision,
           " fallback=", static_cast<int>(options.fallback), " widening=", options.widening,
           " placement=", static_cast<int>(options.placement_policy));
  for (const CastChoice& cast : options.casts) all += " cast=" + cast.from + ">" + cast.to;
  for (const PlacementRule& rule : options.placement)
    all += " place=" + rule.pattern + "=" + rule.provider;
  for (const auto& [name, size] : options.dims) all += text(" dim.", name, "=", size);
  for (const auto& [name, size] : options.denotations)
    all += text(" dim_denotation.", name, "=", size);
  for (const auto& [name, path] : options.paths)
    all += text(" path.", name, "=", list_of(path.inputs), ">", list_of(path.outputs),
                " precision=", path.precision, " backup=", path.backup);
  return all;
}

void add_devices(PlanOrigin& origin, const std::string& path, const DeviceSet& devices,
                 std::set<PluginPtr>& plugins) {
  std::string order;
  for (const SessionDevice& device : devices.devices) {
    plugins.insert(device.device->plugin());
    order += text(order.empty() ? "" : "; ", device.placeable ? "" : "(host) ",
                  device.device->identity());
  }
  origin.emplace_back(
      path.empty() ? std::string("the list of devices") : "the devices of path '" + path + "'",
      order);
}

/// Adds the weights of a program's plans that are worth saving.
void collect_weights(const Executable& executable, const DeviceSet& devices,
                     WeightsToSave& weights) {
  const auto add = [&](const WeightPtr& weight, int device) {
    if (weight == nullptr || weight->key.empty() || weights.contains(weight->key)) return;
    weights[weight->key] = download(devices.entry(device).device, *weight);
  };
  for (const std::shared_ptr<const Segment>& segment : executable.segments()) {
    for (const Step& step : segment->steps) {
      for (const WeightPtr& pack : step.packs) add(pack, step.device);
    }
    for (const Slot& slot : segment->slots) {
      if (slot.place != Place::Weight) continue;
      const int device =
          slot.space == kHostSpace ? devices.on_host() : DeviceSet::device_of_space(slot.space);
      if (device >= 0) add(slot.weight, device);
    }
  }
}

}  // namespace

PlanOrigin Session::plan_origin() const {
  if (is_built_) {
    throw Error(Code::Unsupported,
                "a session of a graph that was built has no saved plan: save the graph as a model");
  }
  PlanOrigin origin;
  origin.emplace_back("the version of Backplane", BACKPLANE_VERSION);
  std::string contents = hex(hash_of(bytes_));
  for (const ConstantPtr& constant : external_) contents += ' ' + hex(constant->hash());
  origin.emplace_back("the contents of the model",
                      hex(hash_of(std::as_bytes(std::span(contents)))));
  origin.emplace_back("the set of options", deciding_options(options_));
  std::set<PluginPtr> plugins(libraries_.begin(), libraries_.end());
  add_devices(origin, "", devices_, plugins);
  for (const auto& [name, path] : paths_) add_devices(origin, name, path->devices, plugins);
  std::map<std::string, std::string>
      states;  // sorted, so that the order of addresses does not count
  for (const PluginPtr& plugin : plugins) {
    if (plugin->is_of_process()) {
      throw Error(Code::Unsupported,
                  text("a session with operators of the process has no saved plan: the code of ",
                       plugin->file().string(), " is no file that can be compared"));
    }
    const ContentHash file = hash_of(MappedFile::open(plugin->file().string())->bytes());
    states[text("the plugin '", plugin->name(), "'")] = plugin->version() + " " + hex(file);
  }
  for (const auto& [what, state] : states) origin.emplace_back(what, state);
  return origin;
}

void Session::open_saved_plan() {
  std::shared_ptr<const SavedPlan> plan = read_plan_file(options_.saved_plan);
  check_origin(options_.saved_plan, plan->origin, plan_origin());
  environment_->weights().use_saved(plan->weights);
  files_.push_back(plan->file);
  saved_plan_ = std::move(plan);
}

void Session::save_plan(const std::string& path) {
  if (path.empty()) invalid("the path to save the plan to is empty");
  check_written("save_plan", path);
  check_files();
  PlanRecords records;
  WeightsToSave weights;
  for (const auto& executable : executables()) {
    records[""].push_back(executable->record());
    collect_weights(*executable, devices_, weights);
  }
  for (const auto& [name, path_of_session] : paths_) {
    records[name].push_back(path_of_session->executable->record());
    collect_weights(*path_of_session->executable, path_of_session->devices, weights);
  }
  write_plan_file(path, plan_origin(), records, weights);
}

}  // namespace backplane::core
