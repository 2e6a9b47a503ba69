// Inner loops of depthwise convolution and pooling on channels-last images: every channel by itself, so
// that vectors run along the channels.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// A run of output pixels along the width, all of whose taps lie inside of the image.
/// Strides count floats. Nothing is owned.
struct WindowRun {
  const float* const* taps;     // per tap that exists: the input pixel of the first output pixel
  const float* const* weights;  // per tap: its weights, one per channel (depthwise)
  int64_t tap_count;
  int64_t pixels;
  int64_t x_step;  // from one output pixel's input to the next one's
  float* y;
  int64_t y_step;
  int64_t channels;
  const float* bias;      // depthwise; null: none
  const float* residual;  // depthwise; null: none
  int64_t residual_step;
  float lo, hi;  // depthwise
  float scale;   // mean
};

struct WindowKernels {
  /// y[p][c] = clamp(sum over taps of x * weights[tap][c] + bias[c] + residual[p][c], lo, hi).
  void (*depthwise)(const WindowRun& run);
  /// y[p][c] = max over taps of x; NaN wins. At least one tap.
  void (*max)(const WindowRun& run);
  /// y[p][c] = scale * sum over taps of x.
  void (*mean)(const WindowRun& run);
};

const WindowKernels& window_kernels(Isa isa);

}  // namespace backplane::cpu
