// Resampling along one axis at a time: where each output element comes from, with which weights.
// https://onnx.ai/onnx/operators/onnx__Resize.html
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::common {

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

/// The input coordinate of output element `index`. In single precision, as other runtimes have it: where a
/// coordinate lies between two elements, the last bit of the scale decides which one is the nearest.
inline float source_of(Coordinates coordinates, const AxisRequest& axis, std::int64_t index) {
  const auto at = static_cast<float>(index), input = static_cast<float>(axis.input);
  const auto scale = static_cast<float>(axis.scale);
  const float output = scale * input;  // not rounded
  switch (coordinates) {
    case Coordinates::AlignCorners:
      return output == 1 ? 0 : at * (input - 1) / (output - 1);
    case Coordinates::Asymmetric:
      return at / scale;
    case Coordinates::TfHalfPixelForNearest:
      return (at + 0.5F) / scale;
    case Coordinates::PytorchHalfPixel:
      return axis.output > 1 ? (at + 0.5F) / scale - 0.5F : 0;
    case Coordinates::HalfPixelSymmetric: {
      const float adjustment = static_cast<float>(axis.output) / output;
      return input / 2 * (1 - adjustment) + (at + 0.5F) / scale - 0.5F;
    }
    case Coordinates::TfCropAndResize: {
      const auto start = static_cast<float>(axis.roi_start), end = static_cast<float>(axis.roi_end);
      if (output == 1) return 0.5F * (start + end) * (input - 1);
      return start * (input - 1) + at * (end - start) * (input - 1) / (output - 1);
    }
    default:
      return (at + 0.5F) / scale - 0.5F;
  }
}

inline double round_place(Rounding rounding, double at) {
  switch (rounding) {
    case Rounding::Floor:
      return std::floor(at);
    case Rounding::Ceil:
      return std::ceil(at);
    case Rounding::PreferCeil:
      return std::floor(at + 0.5);
    default:
      return std::ceil(at - 0.5);
  }
}

/// The kernel of Keys with coefficient `a`, at distance x.
inline double cubic(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// Half the number of input elements that one output element reads.
inline std::int64_t half_taps(const ResampleRule& rule, double scale) {
  const double reach = rule.interpolation == Interpolation::Cubic ? 2 : 1;
  if (!rule.antialias || scale >= 1) return static_cast<std::int64_t>(reach);
  return static_cast<std::int64_t>(std::ceil(reach / scale));
}

inline bool AxisTaps::identity() const {
  if (input != output || !outside.empty()) return false;
  for (std::int64_t y = 0; y < output; ++y) {
    for (std::int64_t k = 0; k < taps; ++k) {
      const auto at = static_cast<std::size_t>(y * taps + k);
      const bool own = places[at] == y;
      if (weights.empty() ? !own : !own && weights[at] != 0) return false;
    }
  }
  return true;
}

/// The places and weights of the output element that lies at `at` of the input.
inline void add_row(const ResampleRule& rule, double at, double scale, std::int64_t half,
                    AxisTaps& axis) {
  const std::int64_t last = axis.input - 1;
  const std::int64_t first = static_cast<std::int64_t>(std::floor(at)) + 1 - half;
  const std::size_t begin = axis.weights.size();
  double sum = 0;
  for (std::int64_t place = first; place < first + axis.taps; ++place) {
    const double distance = (static_cast<double>(place) - at) * scale;
    double weight = rule.interpolation == Interpolation::Cubic
                        ? cubic(distance, rule.cubic_coefficient)
                        : std::max(0.0, 1 - std::fabs(distance));
    if (rule.exclude_outside && (place < 0 || place > last)) weight = 0;
    axis.weights.push_back(weight);
    sum += weight;
    axis.places.push_back(std::clamp<std::int64_t>(place, 0, last));
  }
  if (sum == 0 || (!rule.antialias && !rule.exclude_outside)) return;
  for (std::size_t i = begin; i < axis.weights.size(); ++i) axis.weights[i] /= sum;
}

inline AxisTaps make_taps(const ResampleRule& rule, const AxisRequest& request) {
  AxisTaps axis;
  axis.input = request.input;
  axis.output = request.output;
  if (request.output == 0) return axis;  // by a scale of any smallness
  const bool nearest = rule.interpolation == Interpolation::Nearest;
  const double scale = rule.antialias ? std::min(request.scale, 1.0) : 1.0;
  const std::int64_t half = nearest ? 0 : half_taps(rule, request.scale);
  axis.taps = nearest ? 1 : 2 * half;
  const std::int64_t last = request.input - 1;
  bool any_outside = false;
  std::vector<std::uint8_t> outside(static_cast<std::size_t>(request.output), 0);
  for (std::int64_t y = 0; y < request.output; ++y) {
    // A roi may lie anywhere; so far from the image all places are its border's.
    constexpr double kFar = 1e15;
    double at = static_cast<double>(source_of(rule.coordinates, request, y));
    at = at < kFar ? std::max(at, -kFar) : kFar;
    if (rule.coordinates == Coordinates::TfCropAndResize &&
        (at < 0 || at > static_cast<double>(last))) {
      outside[static_cast<std::size_t>(y)] = 1;
      any_outside = true;
    }
    if (nearest) {
      const auto place = static_cast<std::int64_t>(round_place(rule.rounding, at));
      axis.places.push_back(std::clamp<std::int64_t>(place, 0, last));
      continue;
    }
    add_row(rule, at, scale, half, axis);
  }
  axis.float_weights.assign(axis.weights.begin(), axis.weights.end());
  if (any_outside) axis.outside = std::move(outside);
  return axis;
}

}  // namespace backplane::common
