// Which large values go by way of pinned memory piece by piece.
#pragma once

#include "core/plan/segment.hpp"

namespace backplane::core {

/// Joins a copy on the host and the device's copy before or behind it (Step::other_half), where the value is large: the device
/// copies one piece while the host copies the next one to pinned memory, or the one before from there. The segment's steps are
/// in their final order, with their waits.
void find_piecewise_copies(Segment& segment, const DeviceSet& devices);

}  // namespace backplane::core
