#include "core/runtime/environment.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>

#include "core/base/quote.hpp"
#include "core/plan/operator.hpp"
#include "core/plugin_host/device_choice.hpp"
#include "core/plugin_host/host_api.hpp"
#include "core/plugin_host/provider_options.hpp"

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

std::string key_of(const std::string& name,
                   const std::vector<std::pair<std::string, std::string>>& options) {
  std::vector<std::pair<std::string, std::string>> sorted = options;
  std::sort(sorted.begin(), sorted.end());
  std::string key = name;
  for (const auto& [option, value] : sorted)
    key.append("\n").append(option).append("=").append(value);
  return key;
}

/// A sink that several loggers may write to.
Logger::Sink one_at_a_time(Logger::Sink sink) {
  if (!sink) return {};
  return [mutex = std::make_shared<std::mutex>(), receiver = std::move(sink)](
             LogLevel level, std::string_view line) {
    const std::lock_guard lock(*mutex);
    receiver(level, line);
  };
}

/// Tells a provider what a path prefers, where it has an option for that.
void add_preferences(const PathOptions& path, PluginSet& plugins, ProviderChoice& choice) {
  static const char* const kWords[] = {"low", "normal", "high"};
  const auto add = [&](const bp_provider& provider, const char* name, Preference preference) {
    if (preference == Preference::Normal) return;
    for (std::uint64_t i = 0; i < provider.option_count; ++i) {
      if (std::string(provider.options[i]->name) == name)
        choice.options.emplace_back(name, kWords[static_cast<int>(preference)]);
    }
  };
  if (path.power == Preference::Normal && path.memory == Preference::Normal) return;
  const bp_provider* provider = nullptr;
  const PluginPtr plugin = plugins.find_provider(split_device_name(choice.name).first, &provider);
  add(*provider, "power", path.power);
  add(*provider, "memory", path.memory);
}

/// Gives a session's precision to a provider that has an option of this name with this value; an option that the
/// user set stays. Returns why the provider does not offer it, or nothing.
std::string add_precision(const std::string& precision, const SessionOptions& options,
                          PluginSet& plugins, ProviderChoice& choice) {
  const std::string name = split_device_name(choice.name).first;
  const bp_provider* provider = nullptr;
  const PluginPtr plugin = plugins.find_provider(name, &provider);
  for (std::uint64_t i = 0; i < provider->option_count; ++i) {
    const bp_option& option = *provider->options[i];
    if (std::string_view(option.name) != "precision") continue;
    if (const auto why = wrong_value(option, precision))
      return text("provider '", name, "': ", *why);
    const auto is_set = [](const std::vector<std::pair<std::string, std::string>>& list) {
      return std::any_of(list.begin(), list.end(),
                         [](const auto& pair) { return pair.first == "precision"; });
    };
    const auto general = options.provider_options.find(name);
    const bool by_user = is_set(choice.options) ||
                         (general != options.provider_options.end() && is_set(general->second));
    if (!by_user) choice.options.emplace_back("precision", precision);
    return "";
  }
  return text("provider '", name, "' computes float tensors in fp32 alone");
}

/// Whom "auto" leaves out of what a plugin file brings, and why; "" for nobody.
std::string why_left_out(const PluginRow& row) {
  const std::string file = row.file.filename().string();
  if (!row.loaded) return text("the plugin ", quoted(file), ", which is refused: ", row.reason);
  if (row.provider.empty()) return "";
  if (!row.passed_over.empty()) {
    return text("the provider '", row.provider,
                "', which serves only when it is named: ", row.passed_over);
  }
  if (row.devices.empty()) {
    return text("the provider '", row.provider, "', which has no device",
                row.no_devices_reason.empty() ? "" : ": " + row.no_devices_reason);
  }
  const bp_device_info& best = *row.devices[best_device(row.devices)];
  if (best.score > 0) return "";
  return text("the provider '", row.provider, "', which serves only when it is named: its device '",
              best.name, "' has the score ", best.score);
}

bool has_rule_for(const SessionOptions& options, const std::string& provider) {
  return std::any_of(options.placement.begin(), options.placement.end(), [&](const auto& rule) {
    return split_device_name(rule.provider).first == provider;
  });
}

}  // namespace

Environment::Environment(const EnvironmentOptions& options, Logger::Sink sink)
    : sink_(one_at_a_time(std::move(sink))),
      logger_(std::make_shared<Logger>(log_level_named(options.log_level), sink_)),
      pool_(thread_count(options.threads), options.spinning ? ThreadPool::kSpinNs : 0),
      plugins_(plugin_directories(options), options.plugin_exclude,
               [logger = logger_](const std::filesystem::path& file) {
                 logger->debug("plugin file ", file.native());
               }) {
  set_plugin_logger(logger_);
  offer_interface(BP_OPERATORS_ID, BP_OPERATORS_VERSION, &operators_api());
  all_threads_.pool = &pool_;
  all_threads_.max_threads = pool_.thread_count();
  for (const std::filesystem::path& folder : options.plugin_path) {
    std::error_code absent;
    if (!std::filesystem::is_directory(folder, absent))
      logger_->warning("environment.plugin_path: ", quoted(folder.string()),
                       " is no folder; no plugins are taken from it");
  }
  for (const std::filesystem::path& file : options.custom_ops) add_custom_ops(file);
}

void Environment::add_custom_ops(const std::filesystem::path& file) {
  if (file.empty()) invalid("a library of custom operators needs a path");
  PluginPtr library = plugins_.load(file);
  const std::lock_guard lock(mutex_);
  if (std::find(custom_ops_.begin(), custom_ops_.end(), library) == custom_ops_.end())
    custom_ops_.push_back(std::move(library));
}

void Environment::unload_custom_ops(const std::filesystem::path& file) {
  const std::lock_guard lock(mutex_);
  plugins_.unload(file, custom_ops_);
}

std::vector<PluginPtr> Environment::custom_ops() {
  const std::lock_guard lock(mutex_);
  return custom_ops_;
}

std::vector<DevicePtr> Environment::open_device(
    const std::string& name, const std::vector<std::pair<std::string, std::string>>& options,
    std::vector<std::string>* remarks) {
  const auto [provider_name, wanted] = split_device_name(name);
  const bp_provider* provider = nullptr;
  PluginPtr plugin = plugins_.find_provider(provider_name, &provider);
  std::string reason;
  const std::vector<const bp_device_info*> infos = enumerate_devices(*provider, &reason);
  if (infos.empty()) {
    throw Error(Code::NotFound, text("provider '", provider_name, "' (", plugin->file().string(),
                                     ") has no device", reason.empty() ? "" : ": " + reason));
  }
  std::vector<DevicePtr> devices;
  for (const std::size_t index : choose_devices(*provider, wanted, infos)) {
    const std::string label =
        infos.size() > 1 || !wanted.empty() ? text(provider_name, ":", index) : provider_name;
    const std::string key = key_of(label, options);
    const std::lock_guard lock(mutex_);
    DevicePtr device = opened_[key].lock();
    if (device == nullptr || device->is_lost()) {
      device = Device::open(plugin, provider, infos[index], label, options, &all_threads_);
      opened_[key] = device;
    }
    devices.push_back(std::move(device));
  }
  if (wanted.empty() && infos.size() > 1 && remarks != nullptr) {
    remarks->push_back(text("provider '", provider_name, "' has ", infos.size(),
                            " devices, and its name alone means ", devices.front()->label(), ", '",
                            infos[best_device(infos)]->name, "': ", why_best(infos)));
  }
  return devices;
}

DevicePtr Environment::find_host_evaluator() {
  for (const PluginRow& row : plugins_.rows()) {
    for (std::size_t i = 0; i < row.devices.size(); ++i) {
      if ((row.devices[i]->flags & BP_DEVICE_HOST_EVALUATOR) == 0) continue;
      const bool is_alone = row.devices.size() == 1;
      return open_device(is_alone ? row.provider : text(row.provider, ":", i), {}, nullptr).front();
    }
  }
  return nullptr;
}

std::vector<ProviderChoice> Environment::all_choices(std::vector<std::string>& remarks) {
  std::vector<std::pair<int, std::string>> scored;
  for (const PluginRow& row : plugins_.rows()) {
    const std::string why = why_left_out(row);
    if (!why.empty()) {
      remarks.push_back(text("providers=auto leaves out ", why));
    } else if (!row.provider.empty()) {
      scored.emplace_back(-row.devices[best_device(row.devices)]->score, row.provider);
    }
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ProviderChoice> choices;
  for (const auto& [score, name] : scored) choices.push_back({name, {}});
  if (choices.empty()) plugins_.throw_no_device();
  return choices;
}

void Environment::append_device(DeviceSet& set, const SessionOptions& options,
                                const ProviderChoice& choice, bool requested) {
  std::vector<std::pair<std::string, std::string>> device_options;
  if (const auto general = options.provider_options.find(split_device_name(choice.name).first);
      general != options.provider_options.end())
    device_options = general->second;
  device_options.insert(device_options.end(), choice.options.begin(), choice.options.end());
  for (DevicePtr& opened : open_device(choice.name, device_options, &set.remarks)) {
    SessionDevice device;
    device.device = std::move(opened);
    device.requested = requested;
    const bool twice =
        std::any_of(set.devices.begin(), set.devices.end(), [&](const SessionDevice& other) {
          return other.device->label() == device.device->label();
        });
    if (twice && !requested) continue;  // a backup that is listed already
    if (twice)
      invalid("provider '", choice.name, "' is listed twice: it is ", device.device->label());
    if (device.device->is_host_evaluator() && set.host_evaluator < 0)
      set.host_evaluator = static_cast<int>(set.devices.size());
    set.devices.push_back(std::move(device));
  }
}

void Environment::append_host_evaluator(DeviceSet& set, bool placeable) {
  if (set.host_evaluator >= 0) return;
  DevicePtr evaluator = find_host_evaluator();
  if (evaluator == nullptr) return;
  SessionDevice device;
  device.device = std::move(evaluator);
  device.requested = false;
  device.placeable = placeable;
  set.host_evaluator = static_cast<int>(set.devices.size());
  set.devices.push_back(std::move(device));
}

/// Options of providers that the session does not open would be read by nobody: they are judged here.
void Environment::check_provider_options(const SessionOptions& options) {
  for (const auto& [name, given] : options.provider_options) {
    const bp_provider* provider = nullptr;
    PluginPtr plugin;
    try {
      plugin = plugins_.find_provider(name, &provider);
    } catch (const Error& error) {
      throw error.within(text("option 'provider.", name, ".", given.front().first, "'"));
    }
    complete_options(*provider, given);
  }
}

/// Why an optional provider cannot be used; "" where it can.
std::string Environment::why_absent(const ProviderChoice& choice) {
  const auto [name, wanted] = split_device_name(choice.name);
  try {
    const bp_provider* provider = nullptr;
    const PluginPtr plugin = plugins_.find_provider(name, &provider);
    std::string reason;
    const std::vector<const bp_device_info*> infos = enumerate_devices(*provider, &reason);
    if (infos.empty()) return text("it has no device", reason.empty() ? "" : ": " + reason);
    choose_devices(*provider, wanted, infos);
  } catch (const Error& error) {
    if (error.code() == Code::InvalidArgument) throw;
    return error.message();
  }
  return "";
}

void Environment::leave_out_absent(SessionOptions& options) {
  const auto look_at = [&](std::vector<ProviderChoice>& choices) {
    for (ProviderChoice& choice : choices) {
      if (choice.optional) choice.left_out = why_absent(choice);
    }
  };
  look_at(options.providers);
  for (auto& [name, path] : options.paths) look_at(path.providers);
  const auto is_nobodys = [&](const auto& given) {
    const auto is_left_out = [&](const ProviderChoice& choice) {
      return !choice.left_out.empty() && split_device_name(choice.name).first == given.first;
    };
    bool is_listed = std::any_of(options.providers.begin(), options.providers.end(), is_left_out);
    for (const auto& [name, path] : options.paths)
      is_listed |= std::any_of(path.providers.begin(), path.providers.end(), is_left_out);
    return is_listed && !plugins_.has_provider(given.first);
  };
  std::erase_if(options.provider_options, is_nobodys);
}

/// Why the device does not open; none: it does, or there was an error, since somebody insists on it or it is asked wrongly.
std::optional<Error> Environment::try_append(DeviceSet& set, const SessionOptions& options,
                                             const ProviderChoice& choice, bool is_insisted_on) {
  try {
    append_device(set, options, choice, true);
    return std::nullopt;
  } catch (const Error& error) {
    if (is_insisted_on || error.code() == Code::InvalidArgument) throw;
    return error;
  }
}

/// A device that is there and does not open is an error, but where nobody insists on it it is left out, with a warning.
void Environment::append_listed(DeviceSet& set, const SessionOptions& options,
                                const std::vector<ProviderChoice>& choices, bool is_auto,
                                bool insists) {
  std::optional<Error> first;
  std::vector<std::string> unopened;
  std::string opened;
  const auto is_insisted_on = [&](const ProviderChoice& choice) {
    return is_auto ? insists || has_rule_for(options, choice.name) : !choice.optional;
  };
  for (const ProviderChoice& choice : choices) {
    std::optional<Error> error;
    if (choice.left_out.empty()) {
      error = try_append(set, options, choice, is_insisted_on(choice));
      if (!error) {
        opened += (opened.empty() ? "" : ",") + choice.name;
        continue;
      }
      if (!first) first = error;
    }
    const std::string why = error ? error->message() : choice.left_out;
    set.left_out.insert(split_device_name(choice.name).first);
    set.remarks.push_back(
        is_auto ? text("providers=auto leaves out '", choice.name, "': ", why)
                : text("the optional provider '", choice.name, "' is left out: ", why));
    if (error) {
      unopened.push_back(set.remarks.back());
    } else {
      logger_->info(set.remarks.back());
    }
  }
  if (is_auto && opened.empty() && first) throw Error(*first);
  warn_of(unopened, opened);
}

/// Of providers that did not open, where those called `opened` did.
void Environment::warn_of(const std::vector<std::string>& unopened, const std::string& opened) {
  const std::string without =
      opened.empty() ? ""
                     : text("; providers=", opened, " does without it and without this warning");
  for (const std::string& remark : unopened) warn_once(remark + without);
}

/// Each session of a program would say the same.
void Environment::warn_once(const std::string& warning) {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(warning).second) return;
  }
  logger_->warning(warning);
}

DeviceSet Environment::open_devices(const SessionOptions& options) {
  check_provider_options(options);
  return open_devices(options, PathOptions());
}

DeviceSet Environment::open_devices(const SessionOptions& options, const PathOptions& path) {
  std::vector<ProviderChoice> choices =
      !path.providers.empty() ? path.providers : options.providers;
  DeviceSet set;
  const bool is_auto = choices.empty();
  if (is_auto) choices = all_choices(set.remarks);
  const std::string precision = path.precision.empty() ? options.precision : path.precision;
  std::string reasons;
  bool is_offered = precision == "fp32";
  for (ProviderChoice& choice : choices) {
    if (!choice.left_out.empty()) continue;
    add_preferences(path, plugins_, choice);
    if (precision == "fp32") continue;
    const std::string reason = add_precision(precision, options, plugins_, choice);
    is_offered = is_offered || reason.empty();
    if (!reason.empty()) reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  if (!is_offered) {
    throw Error(Code::Unsupported,
                text("precision '", precision, "' is offered by none of the providers: ",
                     reasons.empty() ? "those that are listed are not there" : reasons,
                     "; use fp32, or another provider"));
  }
  if (!reasons.empty())
    logger_->warning("precision '", precision, "' is not offered by all providers: ", reasons);
  append_listed(set, options, choices, is_auto,
                options.fallback == Fallback::Forbid || precision != "fp32");
  const bool names_backup = !path.backup.empty() && path.backup != "none";
  if (names_backup) append_device(set, options, {path.backup, {}}, false);
  append_host_evaluator(set, path.backup.empty() && options.fallback != Fallback::Forbid);
  return set;
}

}  // namespace backplane::core
