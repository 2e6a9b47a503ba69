// Plans with a step too few or too many: for tests that break them on purpose.
#pragma once

#include <cstddef>

#include "core/plan/segment.hpp"

namespace backplane::core::faults {

/// Takes a step out; whoever waited for it does not.
inline void remove_step(Segment& segment, std::size_t removed) {
  const int index = static_cast<int>(removed);
  segment.steps.erase(segment.steps.begin() + index);
  for (Step& step : segment.steps) {
    std::erase_if(step.waits, [&](const Wait& wait) { return wait.step == index; });
    for (Wait& wait : step.waits) wait.step -= wait.step > index ? 1 : 0;
  }
}

/// Does a copy once more, behind itself; whoever waited for it waits for both.
inline void repeat_copy(Segment& segment, std::size_t repeated) {
  const int index = static_cast<int>(repeated);
  const Step& once = segment.steps[repeated];
  Step again;
  again.kind = once.kind;
  again.device = once.device;
  again.on_stream = once.on_stream;
  again.inputs = once.inputs;
  again.outputs = once.outputs;
  again.signals = once.signals;
  again.label = once.label;
  segment.steps.insert(segment.steps.begin() + index + 1, std::move(again));
  for (Step& step : segment.steps) {
    for (Wait& wait : step.waits) wait.step += wait.step >= index ? 1 : 0;
  }
}

}  // namespace backplane::core::faults
