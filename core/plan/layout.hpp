// Where in the arenas each storage and workspace of a segment lies.
#pragma once

#include "core/plan/aliasing.hpp"
#include "core/plan/parallel_groups.hpp"

namespace backplane::core {

/// Fills in Slot::offset, Step::workspace_offset and Segment::arena_bytes. `order`: who precedes whom, where steps may
/// run at the same time; null: they run as they are listed. `share` false: values do not share memory, whenever needed.
void lay_out(SegmentDraft& draft, Aliases& aliases, const DeviceSet& devices,
             const StepOrder* order, bool share = true);

}  // namespace backplane::core
