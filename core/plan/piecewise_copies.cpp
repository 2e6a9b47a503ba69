#include "core/plan/piecewise_copies.hpp"

#include "core/plugin_host/host_copy.hpp"

namespace backplane::core {
namespace {

/// The device's copy from or to a slot in its pinned memory that is worth pieces; else false.
bool goes_in_pieces(const Segment& segment, const Step& copy, const DeviceSet& devices) {
  if (copy.kind != StepKind::Copy) return false;
  const Slot& from = segment.slot(copy.inputs[0]);
  const Slot& to = segment.slot(copy.outputs[0]);
  const Slot& pinned = from.space == kHostSpace ? from : to;
  return from.space != to.space && pinned.space == kHostSpace && pinned.place == Place::Arena &&
         pinned.arena == pinned_arena(devices, copy.device) &&
         pinned.state->bytes >= kLargeCopyBytes && from.state->format == BP_FORMAT_PLAIN &&
         to.state->format == BP_FORMAT_PLAIN && !from.strides && !to.strides;
}

}  // namespace

void find_piecewise_copies(Segment& segment, const DeviceSet& devices) {
  std::vector<Step>& steps = segment.steps;
  const auto join = [&](std::size_t host, std::size_t device) {
    steps[host].other_half = static_cast<int>(device);
    steps[device].other_half = static_cast<int>(host);
    const int record = steps[device].record;
    if (record >= 0)
      segment.copies[static_cast<std::size_t>(record)].pieces =
          CopyPieces(segment.slot(steps[device].inputs[0]).state->bytes).count();
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (step.kind != StepKind::HostCopy) continue;
    // To the device: its copies begin before the step's turn comes, so it must be the next one, and wait for nobody.
    if (i + 1 < steps.size() && steps[i + 1].inputs.size() == 1 &&
        steps[i + 1].inputs[0] == step.outputs[0] && steps[i + 1].waits.empty() &&
        goes_in_pieces(segment, steps[i + 1], devices)) {
      join(i, i + 1);
      continue;
    }
    // From the device: the step waits for that copy alone, which is then waited for piece by piece.
    if (step.waits.size() != 1) continue;
    const auto earlier = static_cast<std::size_t>(step.waits[0].step);
    if (steps[earlier].other_half < 0 && steps[earlier].kind == StepKind::Copy &&
        steps[earlier].outputs[0] == step.inputs[0] &&
        goes_in_pieces(segment, steps[earlier], devices))
      join(i, earlier);
  }
}

}  // namespace backplane::core
