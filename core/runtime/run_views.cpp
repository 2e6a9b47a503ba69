// A run's views of host memory: got, handed over and handed back.
#include "core/plugin_host/status.hpp"
#include "core/runtime/segment_run.hpp"

namespace backplane::core {

/// The view that the step hands over, kept for the run.
HostView& SegmentRun::take_view(const Step& step) {
  const Segment& segment = context_.segment();
  const Slot& slot = segment.slot(step.outputs[0]);
  const auto number = static_cast<std::size_t>(slot.number);
  const PlannedView& planned = segment.views[number];
  const bp_tensor& host = context_.value(planned.host_slot).description;
  HostViews& views = run_.controls.views != nullptr ? *run_.controls.views : run_.own_views;
  bp_status* status = nullptr;
  std::shared_ptr<HostView> view = views.get(run_.devices.entry(planned.device).device,
                                             {host.host_ptr, host.bytes, planned.access}, status);
  if (status != nullptr && status_code(status) == BP_UNSUPPORTED) refuse_view(step, status);
  if (status != nullptr) run_.fail(step, status);
  context_.bind_view(number, *view);
  run_.held.push_back(std::move(view));
  return *run_.held.back();
}

void SegmentRun::hand_over(const Step& step) {
  HostView& view = take_view(step);
  if (bp_status* status = view.hand_over(run_.streams.raw(step.device))) run_.fail(step, status);
}

void SegmentRun::hand_back(const Step& step) {
  const Slot& slot = context_.segment().slot(step.inputs[0]);
  HostView& view = context_.view(static_cast<std::size_t>(slot.number));
  if (bp_status* status = view.hand_back(run_.streams.raw(step.device))) run_.fail(step, status);
}

/// Nothing is wrong: the run begins anew with copies, once nothing of this one goes on.
void SegmentRun::refuse_view(const Step& step, bp_status* status) {
  const ViewRefused refused{run_.devices.at(step.device).label() + ": " +
                            take_error(status).message()};
  run_.give_up();
  throw refused;
}

}  // namespace backplane::core
