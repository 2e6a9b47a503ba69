// Runs that somebody watches: every step is timed for a trace, or shown to a callback. Streams wait after each.
#include <string>
#include <vector>

#include "core/plugin_host/status.hpp"
#include "core/runtime/download.hpp"
#include "core/runtime/segment_run.hpp"
#include "core/runtime/work_of_thread.hpp"

namespace backplane::core {

Span SegmentRun::span_of(const Step& step) const {
  Span span;
  const bool computes = step.node != kNone;
  span.name = computes ? run_.program.context().scope + run_.program.graph().node(step.node).name
                       : step.label;
  const bool views = step.kind == StepKind::HandOver || step.kind == StepKind::HandBack;
  span.category = computes ? "node" : views ? "view" : "copy";
  const std::string device = step.device >= 0 ? run_.devices.at(step.device).label() : "host";
  span.lane = step.on_stream ? device + " stream" : device;
  span.details = {{"kernel", step.label}, {"device", device}};
  if (views) span.details.emplace_back("bytes", "0");
  if (computes) span.details.emplace_back("op", run_.program.graph().node(step.node).op_type);
  if (step.kernel != nullptr) {
    const PrepareResult& said = step.kernel->said;
    if (said.flops > 0) span.details.emplace_back("flops", std::to_string(said.flops));
    if (said.bytes_moved > 0) span.details.emplace_back("bytes", std::to_string(said.bytes_moved));
  }
  span.run = run_.id;
  return span;
}

void SegmentRun::add_device_spans(const Step& step) {
  if (!step.on_stream) return;
  std::vector<DeviceTime> times;
  try {
    times = run_.streams.times(step.device);
  } catch (const Error& error) {
    run_.fail(step, make_status(error.code(), error.message()));
  }
  for (DeviceTime& time : times) {
    Span span = span_of(step);
    span.category = "device";
    span.lane = run_.devices.at(step.device).label() + " work";
    span.begin_ns = time.begin_ns;
    span.end_ns = time.end_ns;
    span.details.emplace_back("work", std::move(time.name));
    run_.controls.spans->push_back(std::move(span));
  }
}

void SegmentRun::execute_watched(std::size_t first, std::size_t last) {
  AtWork work;
  for (std::size_t i = first; i < last; ++i) {
    const Operation& operation = context_.operations()[i];
    work.on(operation);
    const Step& step = step_at(operation.step);
    fail_if_stopped(step);
    observe(step, false);
    const std::uint64_t begin = steady_ns();
    execute_special(operation);
    if (step.on_stream) {
      if (auto error = run_.streams.at(step.device).drain())
        run_.fail(step, make_status(error->code(), error->message()));
    }
    const std::uint64_t end = steady_ns();
    if (run_.controls.spans != nullptr) {
      Span span = span_of(step);
      span.begin_ns = begin;
      span.end_ns = end;
      run_.controls.spans->push_back(std::move(span));
      add_device_spans(step);
    }
    observe(step, true);
    release_dead(step);
  }
}

void SegmentRun::observe(const Step& step, bool done) {
  if (run_.controls.observer == nullptr || step.kind != StepKind::Compute) return;
  std::vector<RuntimeValuePtr> copies;
  const auto shown = [&](int index) -> RuntimeValue* {
    if (index < 0) return nullptr;
    const Slot& slot = context_.segment().slot(index);
    if (slot.place == Place::Weight && slot.state->type == DataType::String)
      return const_cast<RuntimeValue*>(&slot.weight->value);
    RuntimeValue& value = context_.value(index);
    if (slot.space == kHostSpace || !value.is_tensor() || value.description.buffer == nullptr)
      return &value;
    copies.push_back(download(run_.devices.at(DeviceSet::device_of_space(slot.space)), value));
    return copies.back().get();
  };
  std::vector<RuntimeValue*> inputs, outputs;
  const Node& node = run_.program.graph().node(step.node);
  const std::string name = run_.program.context().scope + node.name;
  const std::string provider = run_.devices.at(step.device).label();
  try {
    for (const int input : step.inputs) inputs.push_back(shown(input));
    if (done) {
      for (const int output : step.outputs) outputs.push_back(shown(output));
    }
  } catch (const Error& error) {
    run_.fail(step, make_status(error.code(), error.message()));
  }
  const NodeView view{name, node.op_type, node.domain, provider, done, inputs, outputs};
  if (!(*run_.controls.observer)(view))
    run_.fail(step, make_status(Code::Cancelled, "the callback stopped the run"));
}

}  // namespace backplane::core
