#include "core/runtime/segment_run.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/denormals.hpp"
#include "core/plugin_host/host_copy.hpp"
#include "core/plugin_host/status.hpp"
#include "core/runtime/control_step.hpp"
#include "core/runtime/dynamic_fetch.hpp"
#include "core/runtime/work_of_thread.hpp"

namespace backplane::core {

void SegmentRun::execute(std::size_t depth) {
  const DenormalsAsZero denormals(run_.program.context().denormals_as_zero);
  const RunControls& controls = run_.controls;
  if (context_.captures().empty()) return execute_plainly();
  if (controls.observer == nullptr && controls.spans == nullptr) return execute_captured(depth);
  execute_plainly();
  ++context_.segment().capture->watched.plain;
}

void SegmentRun::execute_plainly() {
  if (run_.controls.observer != nullptr) return execute_watched(0, context_.operations().size());
  std::size_t next = 0;
  for (const auto& group : context_.parallel_runs()) {
    const std::vector<int>& steps = group->group().steps;
    execute_range(next, static_cast<std::size_t>(steps.front()));
    execute_group(*group);
    next = static_cast<std::size_t>(steps.back()) + 1;
  }
  execute_range(next, context_.operations().size());
}

void SegmentRun::execute_range(std::size_t begin, std::size_t end) {
  if (run_.controls.spans != nullptr) return execute_watched(begin, end);
  const bool may_stop = run_.controls.stop.may_be_raised();
  AtWork work;
  for (std::size_t i = begin; i < end; ++i) {
    const Operation& operation = context_.operations()[i];
    if (may_stop) {
      const Step& step = step_at(operation.step);
      if (step.on_stream) hold_back(step.device, step, 1);
      fail_if_stopped(step);
    }
    work.on(operation);
    if (!operation.plain) {
      execute_special(operation);
      release_dead(step_at(operation.step));
    } else if (bp_status* status = operation.call()) {
      run_.fail(step_at(operation.step), status);
    }
  }
}

void SegmentRun::execute_special(const Operation& operation) {
  const Step& step = step_at(operation.step);
  // Who watches a run sees one step after the other.
  if (step.other_half >= 0 && run_.controls.observer == nullptr && run_.controls.spans == nullptr)
    return copy_half(step);
  wait_for(step);
  if (step.kind == StepKind::Compute) {
    if (bp_status* status = operation.call()) run_.fail(step, status);
  } else if (step.kind == StepKind::Control) {
    execute_control(operation);
  } else if (step.kind == StepKind::HandOver) {
    hand_over(step);
  } else if (step.kind == StepKind::HandBack) {
    hand_back(step);
  } else {
    copy(step);
  }
  if (step.signals) signal(step, context_.marks()[static_cast<std::size_t>(operation.step)]);
}

/// Marks the step's stream, for those who wait for what is on it by then.
void SegmentRun::signal(const Step& step, std::uint64_t& mark) {
  try {
    mark = run_.streams.at(step.device).signal();
  } catch (const Error& error) {
    run_.fail(step, make_status(error.code(), error.message()));
  }
}

void SegmentRun::execute_control(const Operation& operation) {
  ControlCall call{operation.ctx->inputs, operation.ctx->outputs, run_.controls};
  call.controls.run = run_.id;
  try {
    context_.control(operation.step).run(call);
  } catch (const Error& error) {
    run_.fail(step_at(operation.step), make_status(error.code(), error.message()));
  }
}

void SegmentRun::execute_group(ParallelRun& group) {
  struct Call {
    SegmentRun* self;
    std::vector<Span>* spans;  ///< by step of the group; null: nobody wants them
    int first;
  };
  std::vector<Span> spans(run_.controls.spans != nullptr ? group.group().steps.size() : 0);
  Call call{this, run_.controls.spans != nullptr ? &spans : nullptr, group.group().steps.front()};
  const auto do_step = [](void* argument, int step, unsigned member) -> bp_status* {
    const Call& to = *static_cast<Call*>(argument);
    if (to.spans == nullptr) return to.self->execute_in_group(step);
    Span& span = (*to.spans)[static_cast<std::size_t>(step - to.first)];
    span = to.self->span_of(to.self->step_at(step));
    if (member > 0) span.lane += text(", thread ", member + 1);
    span.begin_ns = steady_ns();
    bp_status* status = to.self->execute_in_group(step);
    span.end_ns = steady_ns();
    return status;
  };
  bp_status* status = nullptr;
  bp_threads threads = *run_.threads;
  if (const unsigned limit = run_.program.context().inter_op_threads; limit > 0)
    threads.max_threads = std::min(threads.max_threads, limit);
  const int failed = group.run(threads, do_step, &call, status);
  if (failed >= 0) run_.fail(step_at(failed), status);
  for (Span& span : spans) run_.controls.spans->push_back(std::move(span));
}

bp_status* SegmentRun::execute_in_group(int step) {
  const Operation& operation = context_.operations()[static_cast<std::size_t>(step)];
  if (const Code why = run_.controls.stop.raised(); why != Code::Ok)
    return make_status(why, run_.controls.stop.error(why).message());
  AtWork work;
  work.on(operation);
  if (operation.plain) return operation.call();
  copy(step_at(step));  // from host to host
  return nullptr;
}

void SegmentRun::wait_for(const Step& step) {
  for (const Wait& wait : step.waits) {
    try {
      run_.streams.at(wait.stream).host_wait(context_.marks()[static_cast<std::size_t>(wait.step)]);
    } catch (const Error& error) {
      const Step& earlier = step_at(wait.step);
      run_.fail(earlier, make_status(error.code(), "at or before this: " + error.message()));
    }
  }
}

void SegmentRun::copy(const Step& step) {
  if (bp_status* status = put_copy(step)) run_.fail(step, status);
}

bp_status* SegmentRun::put_copy(const Step& step) {
  const RuntimeValue& from = context_.value(step.inputs[0]);
  const RuntimeValue& to = context_.value(step.outputs[0]);
  if (from.description.bytes == 0) return nullptr;
  if (step.kind == StepKind::HostCopy) {
    copy_on_host(*run_.threads, to.description.host_ptr, from.description.host_ptr,
                 from.description.bytes);
    return nullptr;
  }
  const bp_tensor source = end_of_copy(step, step.inputs[0]);
  const bp_tensor target = end_of_copy(step, step.outputs[0]);
  Device& device = run_.devices.at(step.device);
  return device.call(device.api().copy, run_.streams.raw(step.device), &source, &target);
}

/// A slot as a device's copy is given it.
bp_tensor SegmentRun::end_of_copy(const Step& step, int slot) {
  const Slot& described = context_.segment().slot(slot);
  bp_tensor tensor = context_.value(slot).description;
  if (described.place == Place::Arena && described.arena == pinned_arena(run_.devices, step.device))
    run_.arenas.point_into_buffer(described.arena, tensor);
  return tensor;
}

void SegmentRun::fail_if_stopped() { fail_if_stopped(context_.segment().steps.back()); }

void SegmentRun::fail_if_stopped(const Step& step) {
  const StopSignal& stop = run_.controls.stop;
  const Code why = stop.raised();
  if (why != Code::Ok) run_.fail(step, make_status(why, stop.error(why).message()));
}

/// Before `steps` of a run that may be ended, `step` the first, go to a device's stream: waits where much is on it.
void SegmentRun::hold_back(int device, const Step& step, std::size_t steps) {
  try {
    run_.streams.make_room(device, steps);
  } catch (const Error& error) {
    run_.fail(step, make_status(error.code(), "before this: " + error.message()));
  }
}

void SegmentRun::take_dynamic_fetches() {
  const Segment& segment = context_.segment();
  const RunControls& controls = run_.controls;
  // Such a fetch may get other memory; a view of an earlier plan could be over what it had.
  if (!segment.dynamic_fetches.empty() && controls.views != nullptr) controls.views->clear();
  for (const auto& [fetch, index] : segment.dynamic_fetches) {
    const Slot& slot = segment.slot(index);
    const bool constant = slot.place == Place::Weight && slot.state->type == DataType::String;
    // What comes from elsewhere is only read: it is not spare.
    RuntimeValue* from =
        constant ? const_cast<RuntimeValue*>(&slot.weight->value) : &context_.value(index);
    if (slot.place == Place::Incoming)
      from = const_cast<RuntimeValue*>(
          &run_.incoming(segment.incoming[static_cast<std::size_t>(slot.number)], feeds_));
    const ValueId id = run_.program.fetches()[static_cast<std::size_t>(fetch)];
    const std::string& output = run_.program.graph().value(id).name;
    RuntimeValue& to = *fetches_[static_cast<std::size_t>(fetch)];
    if (to.imported != nullptr) {
      if (!from->is_tensor() || to.element() != from->element() || to.dims != from->dims)
        refuse_fetch(to, *from, output);
      SpaceCopies(run_.devices).copy(from->description, to.description, slot.space);
      continue;
    }
    const bool resize =
        controls.resizable != nullptr && (*controls.resizable)[static_cast<std::size_t>(fetch)];
    take_contents(*from, to, {output, resize, run_.is_body, context_.is_spare(index)});
  }
}

}  // namespace backplane::core
