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

/// A line of output pixels of a depthwise convolution whose kernel is few positions wide, one pixel after the other. Strides
/// count floats. Nothing is owned.
struct SlidingRun {
  static constexpr int kRows = 7;
  int rows;                     // of the kernel that lie inside of the image, 1 to kRows
  const float* x[kRows];        // where the window of the first pixel begins
  const float* weights[kRows];  // of the positions of a row, `channels` for each
  int64_t begin,
      in;  // the pixel where the window of the first pixel begins, pixels of a line of the input
  int64_t x_step;  // from one pixel of the input to the next one
  int64_t stride;  // in pixels of the input, 1 or 2
  float* y;
  int64_t y_step;
  int64_t pixels;     // at least 1
  int64_t channels;   // at least WindowKernels::lanes
  bool before;        // whether the first position of the first window is inside of the image
  bool after;         // whether the last position of the last window is
  const float* bias;  // null: none
  float lo, hi;
};

struct WindowKernels {
  /// y[p][c] = clamp(sum over taps of x * weights[tap][c] + bias[c] + residual[p][c], lo, hi).
  void (*depthwise)(const WindowRun& run);
  /// The same for a few channels, where pixels of x and y lie one behind the other: vectors go over pixels and channels
  /// alike. Each tap has `repeated(channels)` weights, those of a pixel again and again.
  void (*dense_depthwise)(const WindowRun& run);
  /// 0: not for so many channels.
  int64_t (*repeated)(int64_t channels);
  /// As depthwise, of kernels of three positions by up to three, where each pixel of the input is read once for all windows that
  /// it is in; null: not faster here.
  void (*sliding_depthwise)(const SlidingRun& run);
  int lanes;  // floats in a vector
  /// y[p][c] = max over taps of x; NaN wins. At least one tap.
  void (*max)(const WindowRun& run);
  /// y[p][c] = scale * sum over taps of x.
  void (*mean)(const WindowRun& run);
};

const WindowKernels& window_kernels(Isa isa);

}  // namespace backplane::cpu
