// Runs whose work devices have recorded: a range of steps is put on its stream by one call.
#include <algorithm>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "core/plugin_host/status.hpp"
#include "core/runtime/segment_run.hpp"
#include "core/runtime/work_of_thread.hpp"

namespace backplane::core {
namespace {

/// A device does what was recorded as a whole. Where that takes longer, launching step by step is not what takes the time.
constexpr std::chrono::milliseconds kLongReplay{50};

}  // namespace

void SegmentRun::execute_captured(std::size_t depth) {
  // A run that may be ended shall not wait for a plan of which nobody knows how long it takes.
  const bool may_be_whole = !run_.controls.stop.may_be_raised() || !run_.controls.synchronize ||
                            (context_.took().count() > 0 && context_.took() <= kLongReplay);
  const bool is_known = read_memory_key(depth);
  std::size_t next = 0;
  for (RangeCapture& capture : context_.captures()) {
    const CaptureRange& range = capture.range();
    execute_range(next, range.begin);
    if (!is_known || !may_be_whole || !replay(capture)) {
      execute_range(range.begin, range.end);
      capture.tally().plain.fetch_add(1, std::memory_order_relaxed);
    }
    next = range.end;
  }
  execute_range(next, context_.operations().size());
}

/// Fills the run's memory key; false where values lie in memory of which nobody knows whether it is that of an earlier run.
bool SegmentRun::read_memory_key(std::size_t depth) {
  const Segment& segment = context_.segment();
  MemoryKey& key = run_.memory_key;
  key.clear();
  for (std::size_t i = 0; i <= depth; ++i) key.add(run_.arenas.depths()[i].generation);
  bool is_known = true;
  const auto add = [&](const RuntimeValue& value) {
    const std::shared_ptr<void> owner = value.imported != nullptr ? value.imported : value.memory;
    key.add(value.description, owner);
    is_known = is_known && (owner != nullptr || value.description.buffer == nullptr ||
                            run_.arenas.holds(value.description.buffer));
  };
  for (const int index : segment.capture->incoming)
    add(run_.incoming(segment.incoming[static_cast<std::size_t>(index)], feeds_));
  for (const int fetch : segment.capture->fetches) add(*fetches_[static_cast<std::size_t>(fetch)]);
  return is_known;
}

/// Does the range as it was recorded, or records it first where that is due. False: nothing was put on the stream.
bool SegmentRun::replay(RangeCapture& capture) {
  const CaptureRange& range = capture.range();
  const std::vector<Step>& steps = context_.segment().steps;
  const bp_recording* recording = capture.find(run_.memory_key);
  if (recording == nullptr && capture.should_record(run_.memory_key)) recording = record(capture);
  if (recording == nullptr) return false;
  if (run_.controls.stop.may_be_raised()) {
    hold_back(range.device, steps[range.begin], range.end - range.begin);
    fail_if_stopped(steps[range.begin]);
  }
  for (const int copied : range.host_copies) copy(steps[static_cast<std::size_t>(copied)]);
  Device& device = run_.devices.at(range.device);
  if (bp_status* status =
          device.call(device.plan_capture()->replay, run_.streams.raw(range.device), recording)) {
    refuse_capture(capture, steps[range.begin], status);
    return false;
  }
  capture.tally().replayed.fetch_add(1, std::memory_order_relaxed);
  if (!range.signals) return true;
  try {
    const std::uint64_t mark = run_.streams.at(range.device).signal();
    for (std::size_t i = range.begin; i < range.end; ++i) context_.marks()[i] = mark;
  } catch (const Error& error) {
    run_.fail(steps[range.end - 1], make_status(error.code(), error.message()));
  }
  return true;
}

/// Null where it cannot be: the reason is kept, and the steps are to be put on the stream one by one.
const bp_recording* SegmentRun::record(RangeCapture& capture) {
  const CaptureRange& range = capture.range();
  Device& device = run_.devices.at(range.device);
  const bp_plan_capture& table = *device.plan_capture();
  bp_stream* const stream = run_.streams.raw(range.device);
  const Step* failed = &context_.segment().steps[range.begin];
  bp_recording* made = nullptr;
  bp_status* status = device.call(table.begin, stream);
  if (status == nullptr) {
    status = record_steps(range, failed);
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
  return capture.keep(run_.memory_key, device, made);
}

bp_status* SegmentRun::record_steps(const CaptureRange& range, const Step*& failed) {
  AtWork work;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const Operation& operation = context_.operations()[i];
    const Step& step = step_at(operation.step);
    if (step.kind == StepKind::HostCopy) continue;
    failed = &step;
    work.on(operation);
    bp_status* const status = step.kind == StepKind::Compute ? operation.call() : put_copy(step);
    if (status != nullptr) return status;
  }
  return nullptr;
}

/// Throws where the device is lost; else the run goes on without, and this context tries no more, but after what may be
/// over in the next run: memory that ran out, and what others did meanwhile. A run that is to end says nothing of later ones.
void SegmentRun::refuse_capture(RangeCapture& capture, const Step& step, bp_status* status) {
  const bp_code code = status_code(status);
  if (code == BP_DEVICE_LOST) run_.fail(step, status);
  const std::string reason = take_error(status).message();
  if (code == BP_CANCELLED && run_.controls.stop.raised() != Code::Ok) return;
  const std::string name = run_.describe(step);
  const bool is_over = (code == BP_CANCELLED || code == BP_OUT_OF_MEMORY) && capture.forgives();
  if (!is_over) capture.refuse(name + ": " + reason);
  if (const Logger* const logger = run_.program.context().logger)
    logger->info("the work from ", name, " on is not recorded", is_over ? " in this run: " : ": ",
                 reason);
}

}  // namespace backplane::core
