// Runs that somebody watches: every step is timed for a trace, or shown to a callback. Streams wait after each.
#include <string>
#include <vector>

#include "core/plugin_host/status.hpp"
#include "core/runtime/download.hpp"
#include "core/runtime/run_context.hpp"
#include "core/runtime/work_of_thread.hpp"

namespace backplane::core {

Span RunContext::span_of(const Step& step) const {
  Span span;
  const bool computes = step.node != kNone;
  span.name =
      computes ? program_.context().scope + program_.graph().node(step.node).name : step.label;
  const bool views = step.kind == StepKind::HandOver || step.kind == StepKind::HandBack;
  span.category = computes ? "node" : views ? "view" : "copy";
  const std::string device = step.device >= 0 ? devices_.at(step.device).label() : "host";
  span.lane = step.on_stream ? device + " stream" : device;
  span.details = {{"kernel", step.label}, {"device", device}};
  if (views) span.details.emplace_back("bytes", "0");
  if (computes) span.details.emplace_back("op", program_.graph().node(step.node).op_type);
  if (step.kernel != nullptr) {
    const PrepareResult& said = step.kernel->said;
    if (said.flops > 0) span.details.emplace_back("flops", std::to_string(said.flops));
    if (said.bytes_moved > 0) span.details.emplace_back("bytes", std::to_string(said.bytes_moved));
  }
  span.run = run_id_;
  return span;
}

void RunContext::add_device_spans(const Step& step) {
  if (!step.on_stream) return;
  const auto device = static_cast<std::size_t>(step.device);
  std::vector<DeviceTime> times;
  try {
    times = times_[device].take(*streams_[device]);
  } catch (const Error& error) {
    fail(step, make_status(error.code(), error.message()));
  }
  for (DeviceTime& time : times) {
    Span span = span_of(step);
    span.category = "device";
    span.lane = devices_.at(step.device).label() + " work";
    span.begin_ns = time.begin_ns;
    span.end_ns = time.end_ns;
    span.details.emplace_back("work", std::move(time.name));
    controls_.spans->push_back(std::move(span));
  }
}

void RunContext::execute_watched(SegmentContext& context, std::size_t first, std::size_t last) {
  AtWork work;
  for (std::size_t i = first; i < last; ++i) {
    const Operation& operation = context.operations()[i];
    work.on(operation);
    const Step& step = context.segment().steps[static_cast<std::size_t>(operation.step)];
    fail_if_stopped(step);
    observe(context, step, false);
    const std::uint64_t begin = steady_ns();
    execute_special(context, operation);
    if (step.on_stream) {
      if (auto error = streams_[static_cast<std::size_t>(step.device)]->drain())
        fail(step, make_status(error->code(), error->message()));
    }
    const std::uint64_t end = steady_ns();
    if (controls_.spans != nullptr) {
      Span span = span_of(step);
      span.begin_ns = begin;
      span.end_ns = end;
      controls_.spans->push_back(std::move(span));
      add_device_spans(step);
    }
    observe(context, step, true);
    forget_spent(context, step);
  }
}

void RunContext::observe(SegmentContext& context, const Step& step, bool done) {
  if (controls_.observer == nullptr || step.kind != StepKind::Compute) return;
  std::vector<RuntimeValuePtr> copies;
  const auto shown = [&](int index) -> RuntimeValue* {
    if (index < 0) return nullptr;
    const Slot& slot = context.segment().slots[static_cast<std::size_t>(index)];
    if (slot.place == Place::Weight && slot.state->type == DataType::String)
      return const_cast<RuntimeValue*>(&slot.weight->value);
    RuntimeValue& value = context.value(index);
    if (slot.space == kHostSpace || !value.is_tensor() || value.description.buffer == nullptr)
      return &value;
    copies.push_back(download(devices_.at(DeviceSet::device_of_space(slot.space)), value));
    return copies.back().get();
  };
  std::vector<RuntimeValue*> inputs, outputs;
  const Node& node = program_.graph().node(step.node);
  const std::string name = program_.context().scope + node.name;
  const std::string provider = devices_.at(step.device).label();
  try {
    for (const int input : step.inputs) inputs.push_back(shown(input));
    if (done) {
      for (const int output : step.outputs) outputs.push_back(shown(output));
    }
  } catch (const Error& error) {
    fail(step, make_status(error.code(), error.message()));
  }
  const NodeView view{name, node.op_type, node.domain, provider, done, inputs, outputs};
  if (!(*controls_.observer)(view))
    fail(step, make_status(Code::Cancelled, "the callback stopped the run"));
}

}  // namespace backplane::core
