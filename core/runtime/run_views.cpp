// A run's views of host memory: got, handed over and handed back.
#include "core/plugin_host/status.hpp"
#include "core/runtime/run_context.hpp"

namespace backplane::core {

/// The view that the step hands over, kept for the run.
HostView& RunContext::take_view(SegmentContext& context, const Step& step) {
  const Segment& segment = context.segment();
  const Slot& slot = segment.slots[static_cast<std::size_t>(step.outputs[0])];
  const auto number = static_cast<std::size_t>(slot.number);
  const PlannedView& planned = segment.views[number];
  const bp_tensor& host = context.value(planned.host_slot).description;
  HostViews& views = controls_.views != nullptr ? *controls_.views : own_views_;
  bp_status* status = nullptr;
  std::shared_ptr<HostView> view =
      views.get(devices_.devices[static_cast<std::size_t>(planned.device)].device,
                {host.host_ptr, host.bytes, planned.access}, status);
  if (status != nullptr && status_code(status) == BP_UNSUPPORTED) refuse_view(step, status);
  if (status != nullptr) fail(step, status);
  context.bind_view(number, *view);
  held_.push_back(std::move(view));
  return *held_.back();
}

void RunContext::hand_over(SegmentContext& context, const Step& step) {
  HostView& view = take_view(context, step);
  if (bp_status* status = view.hand_over(raw_streams_[static_cast<std::size_t>(step.device)]))
    fail(step, status);
}

void RunContext::hand_back(SegmentContext& context, const Step& step) {
  const Slot& slot = context.segment().slots[static_cast<std::size_t>(step.inputs[0])];
  HostView& view = context.view(static_cast<std::size_t>(slot.number));
  if (bp_status* status = view.hand_back(raw_streams_[static_cast<std::size_t>(step.device)]))
    fail(step, status);
}

/// Nothing is wrong: the run begins anew with copies, once nothing of this one goes on.
void RunContext::refuse_view(const Step& step, bp_status* status) {
  const ViewRefused refused{devices_.at(step.device).label() + ": " + take_error(status).message()};
  for (const auto& stream : streams_) {
    if (stream != nullptr) stream->drain();
  }
  for (const auto& view : held_) view->set_broken();
  throw refused;
}

}  // namespace backplane::core
