// How one run goes: what a caller may say of it, and what is told to whoever watches.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/log.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// Ends the runs that were given it. Threads: any.
struct CancelFlag {
  std::atomic<bool> requested{false};
};

/// A node before or after its kernel ran. Values in device memory are shown as copies on the host; a null value is an
/// input or output that the node leaves out, and one without memory is read for its shape alone.
struct NodeView {
  std::string_view name, op_type, domain, provider;
  bool done = false;
  std::span<RuntimeValue* const> inputs;
  std::span<RuntimeValue* const> outputs;
};

/// False stops the run. Called by the thread of the run.
using NodeObserver = std::function<bool(const NodeView& node)>;

/// See backplane_run_options_set.
struct RunOptions {
  std::string tag;
  std::optional<LogLevel> log_level;
  bool only_path_to_fetches = true;
  bool shrink_arenas = false;
  bool synchronize = true;
  std::map<std::string, std::string> entries;
  std::optional<std::chrono::nanoseconds> timeout;
  std::shared_ptr<CancelFlag> cancel;
  NodeObserver observer;

  /// Sets a key; throws InvalidArgument naming the nearest known one, or the values it takes.
  void set(const std::string& key, const std::string& value);
  /// What a key is set to; throws as set() does, and NotFound for an entry that is not set.
  std::string get(const std::string& key) const;
};

}  // namespace backplane::core
