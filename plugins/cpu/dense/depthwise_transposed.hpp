// Transposed convolution of every channel by itself, on images that are channels last: output pixels of one remainder modulo
// the stride along the width are reached by the same kernel positions, and are a run of windows that move by one pixel.
#pragma once

#include <vector>

#include "plugins/cpu/dense/conv_direct.hpp"
#include "plugins/cpu/dense/window_kernels.hpp"

namespace backplane::cpu {

/// Made ready. Immutable.
class DepthwiseTransposed {
 public:
  /// Judges by the weights' dims and groups alone.
  static bool applies(const ConvShape& shape);
  DepthwiseTransposed(const ConvShape& shape, const Activation& activation, Isa isa);

  int64_t packed_floats() const { return shape_.window.taps() * shape_.out_channels; }
  void pack(const float* weights, const float* scales, float* packed) const;
  void run(const ConvArgs& args, const sdk::Threads& threads) const;

 private:
  static constexpr int64_t kMaxTaps = 256;
  /// A kernel position, and the input that it is over: of the first pixel of a run.
  struct Tap {
    int64_t position, in;
  };
  /// Output pixels begin, begin + stride, ... of a line, which all have these positions along the width.
  struct Run {
    int64_t begin, pixels;
    std::vector<Tap> taps;
  };
  void add_runs(int64_t first);
  void run_line(const ConvArgs& args, int64_t image, int64_t z, int64_t y) const;

  ConvShape shape_;
  Activation activation_;
  const WindowKernels* kernels_;
  const ActivationKernels* activations_;
  std::vector<Run> runs_;
};

}  // namespace backplane::cpu
