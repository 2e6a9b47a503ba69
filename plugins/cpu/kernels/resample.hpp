// Resampling along one axis at a time: where each output element comes from, with which weights.
// https://onnx.ai/onnx/operators/onnx__Resize.html
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::cpu {

/// How output coordinates map to input coordinates.
enum class Coordinates {
  HalfPixel,
  HalfPixelSymmetric,
  PytorchHalfPixel,
  TfHalfPixelForNearest,
  AlignCorners,
  Asymmetric,
  TfCropAndResize
};

enum class Rounding { PreferFloor, PreferCeil, Floor, Ceil };

enum class Interpolation { Nearest, Linear, Cubic };

/// What holds for all axes of a node.
struct ResampleRule {
  Interpolation interpolation = Interpolation::Nearest;
  Coordinates coordinates = Coordinates::HalfPixel;
  Rounding rounding = Rounding::PreferFloor;
  double cubic_coefficient = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
};

/// What is asked of one axis.
struct AxisRequest {
  std::int64_t input = 1, output = 1;
  double scale = 1;  // output per input, as given
  double roi_start = 0, roi_end = 1;
};

/// The sources of each output element of one axis: `taps` of them, their places and weights. Where `outside`
/// is set (it may be empty) the element is the extrapolation value instead.
struct AxisTaps {
  std::int64_t input = 1, output = 1, taps = 1;
  std::vector<std::int64_t> places;  // [output][taps]
  std::vector<double> weights;       // likewise; empty for nearest
  std::vector<float> float_weights;
  std::vector<std::uint8_t> outside;

  /// True when every element comes from its own place.
  bool identity() const;
};

AxisTaps make_taps(const ResampleRule& rule, const AxisRequest& request);

/// target[o][y][i] = the weighted sum of source[o][places of y][i]; T is float or double.
template <class T>
void resample_pass(const AxisTaps& axis, const T* source, T* target, std::int64_t outer,
                   std::int64_t inner, const sdk::Threads& threads);

}  // namespace backplane::cpu
