// The inner loop of depthwise convolutions whose kernels are 3, 5 or 7 positions wide: a block of output pixels has its sums in
// registers, and a pixel of the input is read once for all windows of a block that it is in.
#pragma once

#include "plugins/cpu/dense/window_kernels.hpp"

namespace backplane::cpu {

/// y[p][c] = clamp(sum over taps of x * weights + bias[c], lo, hi) for all pixels of a run.
using SlidingRows = void (*)(const SlidingRun& run);

/// For kernels of this width and this stride along it; null: there is none.
SlidingRows sliding_rows(Isa isa, int64_t width, int64_t stride);

}  // namespace backplane::cpu
