// Runs whose work devices have recorded: a range of steps is put on its stream by one call.
#include <algorithm>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "core/plugin_host/status.hpp"
#include "core/runtime/run_context.hpp"
#include "core/runtime/work_of_thread.hpp"

namespace backplane::core {
namespace {

/// A device does what was recorded as a whole. Where that takes longer, launching step by step is not what takes the time.
constexpr std::chrono::milliseconds kLongReplay{50};

}  // namespace

void RunContext::execute_captured(SegmentContext& context, std::size_t depth,
                                  const RunValues& feeds, const RunValues& fetches) {
  const Segment& segment = context.segment();
  // A run that may be ended shall not wait for a plan of which nobody knows how long it takes.
  const bool may_be_whole = !controls_.stop.may_be_raised() || !controls_.synchronize ||
                            (context.took().count() > 0 && context.took() <= kLongReplay);
  const bool is_known = read_memory_key(*segment.capture, segment, depth, feeds, fetches);
  std::size_t next = 0;
  for (RangeCapture& capture : context.captures()) {
    const CaptureRange& range = capture.range();
    execute_range(context, next, range.begin);
    if (!is_known || !may_be_whole || !replay(context, capture)) {
      execute_range(context, range.begin, range.end);
      capture.tally().plain.fetch_add(1, std::memory_order_relaxed);
    }
    next = range.end;
  }
  execute_range(context, next, context.operations().size());
}

/// Fills memory_key_; false where values lie in memory of which nobody knows whether it is that of an earlier run.
bool RunContext::read_memory_key(const CapturePlan& plan, const Segment& segment, std::size_t depth,
                                 const RunValues& feeds, const RunValues& fetches) {
  memory_key_.clear();
  for (std::size_t i = 0; i <= depth; ++i) memory_key_.add(arenas_->depths[i].generation);
  bool is_known = true;
  const auto add = [&](const RuntimeValue& value) {
    const std::shared_ptr<void> owner = value.imported != nullptr ? value.imported : value.memory;
    memory_key_.add(value.description, owner);
    is_known = is_known && (owner != nullptr || value.description.buffer == nullptr ||
                            is_in_arena(value.description.buffer));
  };
  for (const int index : plan.incoming)
    add(*incoming_value(segment.incoming[static_cast<std::size_t>(index)], feeds));
  for (const int fetch : plan.fetches) add(*fetches[static_cast<std::size_t>(fetch)]);
  return is_known;
}

bool RunContext::is_in_arena(const bp_buffer* buffer) const {
  const auto holds = [&](const Arena& arena) {
    return std::any_of(arena.buffers.begin(), arena.buffers.end(),
                       [&](const DeviceBuffer& one) { return one.raw() == buffer; });
  };
  return std::any_of(arenas_->depths.begin(), arenas_->depths.end(), [&](const auto& depth) {
    return std::any_of(depth.arenas.begin(), depth.arenas.end(), holds);
  });
}

/// Does the range as it was recorded, or records it first where that is due. False: nothing was put on the stream.
bool RunContext::replay(SegmentContext& context, RangeCapture& capture) {
  const CaptureRange& range = capture.range();
  const std::vector<Step>& steps = context.segment().steps;
  const bp_recording* recording = capture.find(memory_key_);
  if (recording == nullptr && capture.should_record(memory_key_))
    recording = record(context, capture);
  if (recording == nullptr) return false;
  if (controls_.stop.may_be_raised()) {
    hold_back(range.device, steps[range.begin], range.end - range.begin);
    fail_if_stopped(steps[range.begin]);
  }
  for (const int copied : range.host_copies) copy(context, steps[static_cast<std::size_t>(copied)]);
  Device& device = devices_.at(range.device);
  const auto index = static_cast<std::size_t>(range.device);
  if (bp_status* status =
          device.call(device.plan_capture()->replay, raw_streams_[index], recording)) {
    refuse_capture(capture, steps[range.begin], status);
    return false;
  }
  capture.tally().replayed.fetch_add(1, std::memory_order_relaxed);
  if (!range.signals) return true;
  try {
    const std::uint64_t mark = streams_[index]->signal();
    for (std::size_t i = range.begin; i < range.end; ++i) context.marks()[i] = mark;
  } catch (const Error& error) {
    fail(steps[range.end - 1], make_status(error.code(), error.message()));
  }
  return true;
}

/// Null where it cannot be: the reason is kept, and the steps are to be put on the stream one by one.
const bp_recording* RunContext::record(SegmentContext& context, RangeCapture& capture) {
  const CaptureRange& range = capture.range();
  Device& device = devices_.at(range.device);
  const bp_plan_capture& table = *device.plan_capture();
  bp_stream* const stream = raw_streams_[static_cast<std::size_t>(range.device)];
  const Step* failed = &context.segment().steps[range.begin];
  bp_recording* made = nullptr;
  bp_status* status = device.call(table.begin, stream);
  if (status == nullptr) {
    status = record_steps(context, range, failed);
    if (status == nullptr) {
      status = device.call(table.end, stream, capture.oldest(), &made);
    } else {
      device.tell("abandon", table.abandon, stream);
    }
  }
  if (status == nullptr && made == nullptr)
    status = make_status(Code::Internal, "it gave no recording and no error");
  if (status != nullptr) {
    refuse_capture(capture, *failed, status);
    return nullptr;
  }
  capture.tally().recorded.fetch_add(1, std::memory_order_relaxed);
  return capture.keep(memory_key_, device, made);
}

bp_status* RunContext::record_steps(SegmentContext& context, const CaptureRange& range,
                                    const Step*& failed) {
  AtWork work;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const Operation& operation = context.operations()[i];
    const Step& step = context.segment().steps[static_cast<std::size_t>(operation.step)];
    if (step.kind == StepKind::HostCopy) continue;
    failed = &step;
    work.on(operation);
    bp_status* const status =
        step.kind == StepKind::Compute ? operation.call() : put_copy(context, step);
    if (status != nullptr) return status;
  }
  return nullptr;
}

/// Throws where the device is lost; else the run goes on without, and this context tries no more, but after what may be
/// over in the next run: memory that ran out, and what others did meanwhile. A run that is to end says nothing of later ones.
void RunContext::refuse_capture(RangeCapture& capture, const Step& step, bp_status* status) {
  const bp_code code = status_code(status);
  if (code == BP_DEVICE_LOST) fail(step, status);
  const std::string reason = take_error(status).message();
  if (code == BP_CANCELLED && controls_.stop.raised() != Code::Ok) return;
  const std::string name = step.node == kNone ? step.label : program_.words(step.node);
  const bool is_over = (code == BP_CANCELLED || code == BP_OUT_OF_MEMORY) && capture.forgives();
  if (!is_over) capture.refuse(name + ": " + reason);
  if (program_.context().logger != nullptr)
    program_.context().logger->info("the work from ", name, " on is not recorded",
                                    is_over ? " in this run: " : ": ", reason);
}

}  // namespace backplane::core
