// What the sessions of a process share.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/log.hpp"
#include "core/config/options.hpp"
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

  /// The devices that a session's options ask for, opened; the host evaluator is among them, appended as a fallback
  /// unless that is forbidden. Errors name the provider, the option, and the nearest known ones.
  DeviceSet open_devices(const SessionOptions& options);

 private:
  DevicePtr open_device(const std::string& name,
                        const std::vector<std::pair<std::string, std::string>>& options);
  DevicePtr find_host_evaluator();

  std::shared_ptr<Logger> logger_;
  ThreadPool pool_;
  bp_threads all_threads_;  ///< the whole pool: for devices, which outlive sessions
  PluginSet plugins_;
  WeightStore weights_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Device>> opened_;
};

}  // namespace backplane::core
