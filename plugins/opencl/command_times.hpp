// When the commands of a queue began and ended: for traces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin_api/optional/device_times.h"
#include "plugins/opencl/cl_api.hpp"

namespace backplane::opencl {

/// Notes commands with their events. Threads: as the stream.
class CommandTimes {
 public:
  /// Before a command is enqueued: by the host's clock now and the device's when the command came to the queue, times of
  /// the one become times of the other.
  static std::uint64_t now();
  void add(std::string name, std::uint64_t enqueued_ns, Event event);
  /// Shows what was noted, and forgets it; all of it is done.
  bp_status* take(void* sink_ctx, bp_device_time_sink sink);

 private:
  struct Command {
    std::string name;
    std::uint64_t enqueued_ns;
    Event event;
  };
  std::vector<Command> commands_;
};

}  // namespace backplane::opencl
