// What the sessions of a process share.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/log.hpp"
#include "core/config/options.hpp"
#include "core/plan/constant_store.hpp"
#include "core/plan/session_device.hpp"
#include "core/plan/weight_store.hpp"
#include "core/plugin_host/plugin.hpp"
#include "core/plugin_host/thread_pool.hpp"

namespace backplane::core {

/// Log, thread pool, plugins, opened devices, packed weights.
///
/// Threads: all functions may run concurrently.
class Environment {
 public:
  Environment(const EnvironmentOptions& options, Logger::Sink sink);

  const Logger& logger() const { return *logger_; }
  ThreadPool& pool() { return pool_; }
  PluginSet& plugins() { return plugins_; }
  WeightStore& weights() { return weights_; }
  ConstantStore& constants() { return constants_; }
  /// Where the log goes, for loggers with another level; empty: standard error. Called by one thread at a time.
  const Logger::Sink& sink() const { return sink_; }
  void set_log_level(LogLevel level) { logger_->set_level(level); }

  /// Adds a library of custom operators for every session that is made from now on; throws what loading it throws.
  void add_custom_ops(const std::filesystem::path& file);
  /// Lets a library of custom operators go; see PluginSet::unload. What is refused stays as it was.
  void unload_custom_ops(const std::filesystem::path& file);
  /// Those that were added, in order.
  std::vector<PluginPtr> custom_ops();

  /// Marks optional providers, of the session and of its paths, that are not there, or have no such device, as left
  /// out with the reason, and drops options for providers that nobody has. Throws what is wrong with their names.
  void leave_out_absent(SessionOptions& options);

  /// The devices that a session's options ask for, opened; the host evaluator is among them, appended as a fallback
  /// unless that is forbidden. Errors name the provider, the option, and the nearest known ones.
  DeviceSet open_devices(const SessionOptions& options);
  /// Likewise for a path of the session: its providers and backup, its preferences as options of providers that have
  /// options of these names ("power", "memory"). The precision is given to providers that have an option
  /// "precision" with that value; it is an error when none has, and a warning when some have not.
  DeviceSet open_devices(const SessionOptions& options, const PathOptions& path);

 private:
  /// All providers with a device, by the scores of their best ones; `remarks` gets who is left out, and why.
  std::vector<ProviderChoice> all_choices(std::vector<std::string>& remarks);
  void check_provider_options(const SessionOptions& options);
  std::string why_absent(const ProviderChoice& choice);
  std::optional<Error> try_append(DeviceSet& set, const SessionOptions& options,
                                  const ProviderChoice& choice, bool is_insisted_on);
  /// `is_auto`: nobody has named them; `insists`: all of them are needed all the same.
  void append_listed(DeviceSet& set, const SessionOptions& options,
                     const std::vector<ProviderChoice>& choices, bool is_auto, bool insists);
  void warn_of(const std::vector<std::string>& unopened, const std::string& opened);
  void warn_once(const std::string& warning);
  void append_device(DeviceSet& set, const SessionOptions& options, const ProviderChoice& choice,
                     bool requested);
  void append_host_evaluator(DeviceSet& set, bool placeable);
  /// One device, or several for a name such as "opencl:all". `remarks` may be null: gets which of several devices a
  /// name alone means, and why.
  std::vector<DevicePtr> open_device(
      const std::string& name, const std::vector<std::pair<std::string, std::string>>& options,
      std::vector<std::string>* remarks);
  DevicePtr find_host_evaluator();

  Logger::Sink sink_;
  std::shared_ptr<Logger> logger_;
  ThreadPool pool_;
  bp_threads all_threads_;  ///< the whole pool: for devices, which outlive sessions
  PluginSet plugins_;
  WeightStore weights_;
  ConstantStore constants_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Device>> opened_;
  std::vector<PluginPtr> custom_ops_;
  std::set<std::string> warned_;
};

}  // namespace backplane::core
