// Windows that slide over channels-last images, every channel by itself: depthwise convolution, max and
// average pooling.
#pragma once

#include <vector>

#include "plugins/cpu/dense/conv_direct.hpp"
#include "plugins/cpu/dense/sliding_rows.hpp"
#include "plugins/cpu/dense/window_kernels.hpp"

namespace backplane::cpu {

/// Output pixels [begin, end) of a line, whose windows have positions [tap_begin, tap_end) along the width
/// inside of the image.
struct LineRun {
  int64_t begin, end, tap_begin, tap_end;
};
std::vector<LineRun> line_runs(const Window& window);

/// A depthwise convolution (as many groups as input channels, and a few output channels of each) made ready.
/// Immutable.
class DepthwiseConv {
 public:
  static bool applies(const ConvShape& shape);
  DepthwiseConv(const ConvShape& shape, const Activation& activation, Isa isa);

  int64_t packed_floats() const { return shape_.window.taps() * weight_pitch_; }
  uint64_t workspace_bytes() const;
  /// As DirectConv::pack.
  void pack(const float* weights, const float* scales, float* packed,
            const sdk::Threads& threads) const;
  /// `args.x_channels_first` must be false.
  void run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;
  /// The lines [begin, end) of an image, which is flat, where there are as many output channels as input channels.
  void run_lines(const ConvArgs& args, int64_t image, int64_t begin, int64_t end) const;

  static constexpr int64_t kMaxTaps = 128;

 private:
  /// Pixels [begin, end) of a line.
  void run_line(const ConvArgs& args, int64_t image, int64_t z, int64_t y, int64_t begin,
                int64_t end) const;
  void slide_line(const ConvArgs& args, int64_t image, int64_t y) const;
  SlidingRows sliding(Isa isa) const;
  void repeat_channels(const ConvArgs& args, float* repeated, const sdk::Threads& threads) const;
  int64_t multiplier() const { return shape_.out_channels / shape_.in_channels; }

  ConvShape shape_;
  Activation activation_;
  const WindowKernels* kernels_;
  const ActivationKernels* activations_;
  int64_t weight_pitch_;  // from one tap's weights to the next one's
  std::vector<LineRun> runs_;
  SlidingRows slide_;  // what slide_line() does lines without a residual with; null: nothing
};

/// Max or average pooling made ready. Immutable.
class Pooling {
 public:
  enum Kind { kMax, kMean, kMeanWithPadding };
  static constexpr int64_t kMaxTaps = 512;
  /// `window` has at most kMaxTaps taps.
  Pooling(const Window& window, int64_t batch, int64_t channels, Kind kind, Isa isa)
      : window_(window),
        batch_(batch),
        channels_(channels),
        kind_(kind),
        kernels_(&window_kernels(isa)),
        runs_(line_runs(window)) {}

  void run(const float* x, const ImageStrides& x_strides, float* y, const ImageStrides& y_strides,
           const sdk::Threads& threads) const;

 private:
  void run_line(const float* x, const ImageStrides& x_strides, float* y, int64_t y_step,
                int64_t out_z, int64_t out_y) const;

  Window window_;
  int64_t batch_;
  int64_t channels_;
  Kind kind_;
  const WindowKernels* kernels_;
  std::vector<LineRun> runs_;
};

}  // namespace backplane::cpu
