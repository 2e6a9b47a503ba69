// A plan for other sizes out of one that nobody needs any more: only what has other sizes is looked at.
#pragma once

#include <optional>
#include <vector>

#include "core/plan/segment.hpp"

namespace backplane::core {

/// What is not as it was. Indices.
struct SegmentChange {
  std::vector<int> slots;
  std::vector<int> steps;
};

/// Whether a segment can be resized at all: the whole program, kernels on host memory alone, no bodies, and
/// outputs of sizes that are known.
bool may_be_resized(const Segment& segment);

/// Makes a segment for which may_be_resized() holds one for the states `feeds`. Nodes whose
/// inputs are what they were keep kernels, slots and memory; the others are prepared again. nullopt where the segment
/// would have to be another one than by sizes: other kernels, sharing of memory or packed weights, or more memory than
/// there is room for. It is of no use then, and neither is it after an exception, which are those of walk_shapes.
std::optional<SegmentChange> resize_segment(Program& program, Segment& segment,
                                            const FeedStates& feeds);

}  // namespace backplane::core
