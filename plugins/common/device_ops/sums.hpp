// Sums of a tensor along some of its axes, which are told by steps: for operators that sum on their way. ReduceSum is the same kernels.
#pragma once

#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/kernels/pointwise.hpp"

namespace backplane::device_ops {

struct StridedSums {
  DataType type = DataType::Float;
  DataType made_type = DataType::Float;  ///< of the sums
  MemoryRef from, to;
  common::StridedLoops kept;    ///< the steps of both; those of the sums are dense
  common::StridedLoops folded;  ///< the elements' steps
};

/// Of at least one element. What rows that are divided need of the workspace is added to `pieces`.
void add_sums(Work& work, const StridedSums& sums, WorkspacePieces& pieces);

}  // namespace backplane::device_ops
