#include "core/runtime/environment.hpp"

#include <algorithm>
#include <charconv>
#include <thread>

#include "core/plan/operator.hpp"
#include "core/plugin_host/host_api.hpp"

namespace backplane::core {
namespace {

std::vector<std::filesystem::path> plugin_directories(const EnvironmentOptions& options) {
  std::vector<std::filesystem::path> directories = options.plugin_path;
  directories.push_back(default_plugin_directory());
  return directories;
}

unsigned thread_count(unsigned wanted) {
  return wanted != 0 ? wanted : std::max(1u, std::thread::hardware_concurrency());
}

/// "fakegpu:1" -> ("fakegpu", 1).
std::pair<std::string, std::size_t> split_name(const std::string& name) {
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos) return {name, 0};
  std::size_t index = 0;
  const char* begin = name.data() + colon + 1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, index);
  if (error != std::errc() || stop != end || begin == end)
    invalid("provider '", name, "': a device is asked for as NAME:INDEX, such as '",
            name.substr(0, colon), ":0'");
  return {name.substr(0, colon), index};
}

std::string key_of(const std::string& name,
                   const std::vector<std::pair<std::string, std::string>>& options) {
  std::vector<std::pair<std::string, std::string>> sorted = options;
  std::sort(sorted.begin(), sorted.end());
  std::string key = name;
  for (const auto& [option, value] : sorted) key += '\n' + option + '=' + value;
  return key;
}

}  // namespace

Environment::Environment(const EnvironmentOptions& options, Logger::Sink sink)
    : logger_(std::make_shared<Logger>(log_level_named(options.log_level), std::move(sink))),
      pool_(thread_count(options.threads), options.spinning ? ThreadPool::kSpinNs : 0),
      plugins_(plugin_directories(options)) {
  set_plugin_logger(logger_);
  offer_interface(BP_OPERATORS_ID, BP_OPERATORS_VERSION, &operators_api());
  all_threads_.pool = &pool_;
  all_threads_.max_threads = pool_.thread_count();
}

DevicePtr Environment::open_device(
    const std::string& name, const std::vector<std::pair<std::string, std::string>>& options) {
  const auto [provider_name, index] = split_name(name);
  const bp_provider* provider = nullptr;
  PluginPtr plugin = plugins_.find_provider(provider_name, &provider);
  std::string reason;
  const std::vector<const bp_device_info*> infos = enumerate_devices(*provider, &reason);
  if (infos.empty()) {
    throw Error(Code::NotFound, text("provider '", provider_name, "' (", plugin->file().string(),
                                     ") has no device", reason.empty() ? "" : ": " + reason));
  }
  if (index >= infos.size()) {
    throw Error(Code::NotFound, text("provider '", provider_name, "' has no device ", index,
                                     "; it has ", infos.size(), ", counted from 0"));
  }
  const std::string label =
      infos.size() > 1 || name != provider_name ? text(provider_name, ":", index) : provider_name;
  const std::string key = key_of(label, options);
  const std::lock_guard lock(mutex_);
  if (DevicePtr opened = opened_[key].lock(); opened != nullptr && !opened->is_lost())
    return opened;
  DevicePtr device = Device::open(plugin, provider, infos[index], label, options, &all_threads_);
  opened_[key] = device;
  return device;
}

DevicePtr Environment::find_host_evaluator() {
  for (const PluginRow& row : plugins_.rows()) {
    for (const bp_device_info* info : row.devices) {
      if ((info->flags & BP_DEVICE_HOST_EVALUATOR) != 0) return open_device(row.provider, {});
    }
  }
  return nullptr;
}

DeviceSet Environment::open_devices(const SessionOptions& options) {
  std::vector<ProviderChoice> choices = options.providers;
  if (choices.empty()) {
    std::vector<std::pair<int, std::string>> scored;
    for (const PluginRow& row : plugins_.rows()) {
      if (!row.provider.empty() && !row.devices.empty() && row.devices.front()->score > 0)
        scored.emplace_back(-row.devices.front()->score, row.provider);
    }
    std::stable_sort(scored.begin(), scored.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [score, name] : scored) choices.push_back({name, {}});
    if (choices.empty())
      plugins_.find_provider("any", nullptr);  // throws, with what was found where
  }
  DeviceSet set;
  for (const ProviderChoice& choice : choices) {
    std::vector<std::pair<std::string, std::string>> device_options;
    if (const auto general = options.provider_options.find(split_name(choice.name).first);
        general != options.provider_options.end())
      device_options = general->second;
    device_options.insert(device_options.end(), choice.options.begin(), choice.options.end());
    SessionDevice device;
    device.device = open_device(choice.name, device_options);
    const bool twice =
        std::any_of(set.devices.begin(), set.devices.end(), [&](const SessionDevice& other) {
          return other.device->label() == device.device->label();
        });
    if (twice) invalid("provider '", choice.name, "' is listed twice");
    if (device.device->is_host_evaluator() && set.host_evaluator < 0)
      set.host_evaluator = static_cast<int>(set.devices.size());
    set.devices.push_back(std::move(device));
  }
  if (set.host_evaluator >= 0) return set;
  if (DevicePtr evaluator = find_host_evaluator()) {
    SessionDevice device;
    device.device = std::move(evaluator);
    device.requested = false;
    device.placeable = options.fallback != Fallback::Forbid;
    set.host_evaluator = static_cast<int>(set.devices.size());
    set.devices.push_back(std::move(device));
  }
  return set;
}

}  // namespace backplane::core
