#include "plugins/opencl/command_times.hpp"

#include <chrono>

namespace backplane::opencl {
namespace {

/// False for a command that failed: it has no times.
bool read_time(cl_event event, cl_profiling_info what, cl_ulong& time) {
  return clGetEventProfilingInfo(event, what, sizeof(time), &time, nullptr) == CL_SUCCESS;
}

}  // namespace

std::uint64_t CommandTimes::now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

void CommandTimes::add(std::string name, std::uint64_t enqueued_ns, Event event) {
  commands_.push_back({std::move(name), enqueued_ns, std::move(event)});
}

bp_status* CommandTimes::take(void* sink_ctx, bp_device_time_sink sink) {
  const std::vector<Command> commands = std::exchange(commands_, {});
  for (const Command& command : commands) {
    cl_ulong queued = 0, begin = 0, end = 0;
    if (!read_time(command.event.get(), CL_PROFILING_COMMAND_QUEUED, queued) ||
        !read_time(command.event.get(), CL_PROFILING_COMMAND_START, begin) ||
        !read_time(command.event.get(), CL_PROFILING_COMMAND_END, end))
      continue;
    bp_device_time time = sdk::abi_struct<bp_device_time>();
    time.name = command.name.c_str();
    time.begin_ns = command.enqueued_ns + (begin > queued ? begin - queued : 0);
    time.end_ns = command.enqueued_ns + (end > queued ? end - queued : 0);
    if (bp_status* status = sink(sink_ctx, &time)) return status;
  }
  return nullptr;
}

}  // namespace backplane::opencl
