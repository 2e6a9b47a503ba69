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

/// Inward: down along an axis that grows, up along one that shrinks.
enum class Rounding { PreferFloor, PreferCeil, Floor, Ceil, Inward };

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
  bool same = false;  // every element comes from its own place; then there are no tables
  std::vector<std::int64_t> places;  // [output][taps]
  std::vector<double> weights;       // likewise; empty for nearest, and where floats are asked for
  std::vector<float> float_weights;
  std::vector<std::uint8_t> outside;
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

/// As std::floor(), which is a call where instruction sets are not known; of what int64 holds.
inline std::int64_t floor_of(double at) {
  const auto cut = static_cast<std::int64_t>(at);
  return static_cast<double>(cut) > at ? cut - 1 : cut;
}

inline std::int64_t round_place(Rounding rounding, double at) {
  switch (rounding) {
    case Rounding::Floor:
      return floor_of(at);
    case Rounding::Ceil:
      return -floor_of(-at);
    case Rounding::PreferCeil:
      return floor_of(at + 0.5);
    default:
      return -floor_of(0.5 - at);
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

/// The sources of one output element.
inline std::int64_t taps_of(const ResampleRule& rule, const AxisRequest& axis) {
  return rule.interpolation == Interpolation::Nearest ? 1 : 2 * half_taps(rule, axis.scale);
}

/// Whether an axis is asked for as it is. (The arithmetic of coordinates would say so of short axes alone.)
inline bool stays(const ResampleRule& rule, const AxisRequest& axis) {
  return axis.input == axis.output && axis.scale == 1 &&
         rule.coordinates != Coordinates::TfCropAndResize &&
         rule.coordinates != Coordinates::TfHalfPixelForNearest;
}

/// As source_of(), but within what integers hold: a roi may lie anywhere, and so far from the image all places
/// are its border's.
inline double place_of(const ResampleRule& rule, const AxisRequest& axis, std::int64_t index) {
  constexpr double kFar = 1e15;
  const auto at = static_cast<double>(source_of(rule.coordinates, axis, index));
  return at < kFar ? std::max(at, -kFar) : kFar;
}

/// Whether an output element is the extrapolation value.
inline bool is_outside(const ResampleRule& rule, const AxisRequest& axis, std::int64_t index) {
  if (rule.coordinates != Coordinates::TfCropAndResize) return false;
  const double at = place_of(rule, axis, index);
  return at < 0 || at > static_cast<double>(axis.input - 1);
}

/// The same of any element: the coordinates rise or fall all along the axis.
inline bool any_outside(const ResampleRule& rule, const AxisRequest& axis) {
  return is_outside(rule, axis, 0) || is_outside(rule, axis, axis.output - 1);
}

inline std::int64_t nearest_place(const ResampleRule& rule, const AxisRequest& axis,
                                  std::int64_t index) {
  const Rounding inward = axis.scale < 1 ? Rounding::Ceil : Rounding::Floor;
  const Rounding rounding = rule.rounding == Rounding::Inward ? inward : rule.rounding;
  const std::int64_t at = round_place(rounding, place_of(rule, axis, index));
  return std::clamp<std::int64_t>(at, 0, axis.input - 1);
}

/// Writes the places and weights of output elements [begin, end), `taps_of()` for each; not for nearest.
template <class T>
void write_taps(const ResampleRule& rule, const AxisRequest& axis, std::int64_t begin,
                std::int64_t end, std::int64_t* places, T* weights) {
  const double scale = rule.antialias ? std::min(axis.scale, 1.0) : 1.0;
  const std::int64_t taps = taps_of(rule, axis), last = axis.input - 1;
  const bool sums_to_one = rule.antialias || rule.exclude_outside;
  if (rule.interpolation == Interpolation::Linear && !sums_to_one) {
    for (std::int64_t y = begin; y < end; ++y, places += 2, weights += 2) {
      const double at = place_of(rule, axis, y);
      const std::int64_t first = floor_of(at);
      weights[0] = static_cast<T>(1 - (at - static_cast<double>(first)));
      weights[1] = static_cast<T>(1 - (static_cast<double>(first + 1) - at));
      places[0] = std::clamp<std::int64_t>(first, 0, last);
      places[1] = std::clamp<std::int64_t>(first + 1, 0, last);
    }
    return;
  }
  for (std::int64_t y = begin; y < end; ++y, places += taps, weights += taps) {
    const double at = place_of(rule, axis, y);
    const std::int64_t first = floor_of(at) + 1 - taps / 2;
    const auto weight = [&](std::int64_t place) {
      if (rule.exclude_outside && (place < 0 || place > last)) return 0.0;
      const double distance = (static_cast<double>(place) - at) * scale;
      return rule.interpolation == Interpolation::Cubic ? cubic(distance, rule.cubic_coefficient)
                                                        : std::max(0.0, 1 - std::fabs(distance));
    };
    double sum = 0;
    if (sums_to_one) {
      for (std::int64_t k = 0; k < taps; ++k) sum += weight(first + k);
    }
    if (sum == 0) sum = 1;
    for (std::int64_t k = 0; k < taps; ++k) {
      weights[k] = static_cast<T>(weight(first + k) / sum);
      places[k] = std::clamp<std::int64_t>(first + k, 0, last);
    }
  }
}

/// Whether the tables say that every element comes from its own place.
inline bool is_identity(const AxisTaps& axis) {
  if (axis.input != axis.output || !axis.outside.empty()) return false;
  for (std::int64_t y = 0; y < axis.output; ++y) {
    for (std::int64_t k = 0; k < axis.taps; ++k) {
      const auto at = static_cast<std::size_t>(y * axis.taps + k);
      const double weight = !axis.weights.empty()         ? axis.weights[at]
                            : !axis.float_weights.empty() ? double{axis.float_weights[at]}
                                                          : 1;
      if (axis.places[at] != y && weight != 0) return false;
    }
  }
  return true;
}

/// The tables of a whole axis, with weights in double or in float.
inline AxisTaps make_taps(const ResampleRule& rule, const AxisRequest& request, bool in_double) {
  AxisTaps axis;
  axis.input = request.input;
  axis.output = request.output;
  axis.same = stays(rule, request);
  if (request.output == 0 || axis.same) return axis;  // 0: by a scale of any smallness
  axis.taps = taps_of(rule, request);
  axis.places.resize(static_cast<std::size_t>(axis.output * axis.taps));
  if (rule.interpolation == Interpolation::Nearest) {
    for (std::int64_t y = 0; y < axis.output; ++y)
      axis.places[static_cast<std::size_t>(y)] = nearest_place(rule, request, y);
  } else if (in_double) {
    axis.weights.resize(axis.places.size());
    write_taps(rule, request, 0, axis.output, axis.places.data(), axis.weights.data());
  } else {
    axis.float_weights.resize(axis.places.size());
    write_taps(rule, request, 0, axis.output, axis.places.data(), axis.float_weights.data());
  }
  if (any_outside(rule, request)) {
    axis.outside.resize(static_cast<std::size_t>(axis.output));
    for (std::int64_t y = 0; y < axis.output; ++y)
      axis.outside[static_cast<std::size_t>(y)] = is_outside(rule, request, y) ? 1 : 0;
  }
  axis.same = is_identity(axis);
  return axis;
}

}  // namespace backplane::common
