#include "core/runtime/run_state.hpp"

#include <algorithm>
#include <optional>

#include "core/plugin_host/status.hpp"

namespace backplane::core {

Error within_run(const Error& error) {
  switch (error.code()) {
    case Code::InvalidArgument:
    case Code::Unsupported:
    case Code::NotFound:
    case Code::Unimplemented:
    case Code::Incompatible:
      return {Code::Failed, error.message()};
    default:
      return error;
  }
}

RunState::RunState(const Program& of, bp_threads* run_threads, bool of_body, ArenaPool* pool)
    : program(of),
      devices(*of.context().devices),
      threads(run_threads),
      is_body(of_body),
      streams(devices),
      arenas(of, pool) {}

const RuntimeValue& RunState::incoming(const LiveValue& live, const RunValues& feeds) const {
  if (!left.empty()) {
    if (const RuntimeValue* value = left.find(live.value, live.space)) return *value;
  }
  const auto fed = std::find(program.feeds().begin(), program.feeds().end(), live.value);
  return *feeds[static_cast<std::size_t>(fed - program.feeds().begin())];
}

std::string RunState::describe(const Step& step) const {
  return step.node == kNone ? step.label : program.describe(step.node);
}

void RunState::give_up() {
  streams.drain();
  for (const auto& view : held) view->set_broken();
}

void RunState::fail(const Step& step, bp_status* status) {
  Error error = take_error(status);
  // Kernels are told that they are to end, and not why.
  if (error.code() == Code::Cancelled && controls.stop.raised() == Code::Timeout)
    error = controls.stop.error(Code::Timeout);
  error = within_run(error.within(describe(step)));
  if (step.device >= 0) error = error.within(devices.at(step.device).label());
  give_up();
  if (error.code() == Code::DeviceLost && step.device >= 0)
    devices.at(step.device).mark_lost(error.message());
  throw error;
}

void RunState::drain(const Segment& segment) {
  const std::optional<RunStreams::Failure> failure = streams.drain(segment);
  if (!failure) return;
  for (std::size_t i = segment.steps.size(); i-- > 0;) {
    const Step& step = segment.steps[i];
    if (step.device == failure->device)
      fail(step,
           make_status(failure->error.code(), "at or before this: " + failure->error.message()));
  }
}

}  // namespace backplane::core
