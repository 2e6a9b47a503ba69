// The inner loop of convolutions on images that are channels first: vectors run along lines of pixels, and a weight is the
// same for all of them.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// Lines of pixels of the filters of a block: y[f][l][p] = clamp(sum over steps s of
/// x[at + l * x_line + offsets[s] + p] * weights[s][f] + bias[f] + residual[f][l][p], lo, hi). Strides count floats. Nothing is
/// owned.
struct PlaneRun {
  const float* x;
  int64_t at;  // what is read of x: at least one vector of pixels
  int64_t x_line;
  const int64_t* offsets;
  int64_t steps;         // positions of the kernel in all channels of the group
  const float* weights;  // as many for each step as the block has filters
  int64_t lines;
  int64_t pixels;  // of a line, at least 1
  float* y;        // of the first filter
  int64_t y_line;
  int64_t plane;          // from one filter's y, and residual, to the next one's
  const float* bias;      // null: none
  const float* residual;  // null: none; not y's memory
  float lo, hi;
};

constexpr int kMaxBlockFilters = 4;

struct PlaneKernels {
  int lanes;
  void (*run[kMaxBlockFilters + 1])(const PlaneRun& run);  // by the filters of the block
};

const PlaneKernels& plane_kernels(Isa isa);

}  // namespace backplane::cpu
