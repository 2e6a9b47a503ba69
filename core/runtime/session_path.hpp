// A path through a session's model: a schedule of its own over shared weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/config/options.hpp"
#include "core/plugin_host/thread_pool.hpp"
#include "core/runtime/arena_pool.hpp"
#include "core/runtime/executable.hpp"

namespace backplane::core {

/// See PathOptions. The devices are the environment's, so paths on one device share its weights.
///
/// Lifetime: borrows the session; stays where it is.
struct SessionPath {
  std::string name;
  PathOptions options;
  bp_threads threads{};
  DeviceSet devices;
  std::vector<std::string> inputs, outputs;  ///< in the order that runs take them
  ArenaPool arenas;                          ///< its devices may be others than the session's
  std::shared_ptr<Executable> executable;
};

/// The threads of a path: its own number, or the session's; half of that where it prefers low power.
unsigned threads_of_path(const PathOptions& path, unsigned session_threads);

}  // namespace backplane::core
