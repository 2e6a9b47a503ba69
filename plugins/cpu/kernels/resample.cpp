#include "plugins/cpu/kernels/resample.hpp"

#include <algorithm>
#include <cmath>

namespace backplane::cpu {
namespace {

/// The input coordinate of output element `index`. In single precision, as other runtimes have it: where a
/// coordinate lies between two elements, the last bit of the scale decides which one is the nearest.
float source_of(Coordinates coordinates, const AxisRequest& axis, std::int64_t index) {
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

double round_place(Rounding rounding, double at) {
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
double cubic(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// Half the number of input elements that one output element reads.
std::int64_t half_taps(const ResampleRule& rule, double scale) {
  const double reach = rule.interpolation == Interpolation::Cubic ? 2 : 1;
  if (!rule.antialias || scale >= 1) return static_cast<std::int64_t>(reach);
  return static_cast<std::int64_t>(std::ceil(reach / scale));
}

}  // namespace

bool AxisTaps::identity() const {
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

AxisTaps make_taps(const ResampleRule& rule, const AxisRequest& request) {
  AxisTaps axis;
  axis.input = request.input;
  axis.output = request.output;
  const bool nearest = rule.interpolation == Interpolation::Nearest;
  const double scale = rule.antialias ? std::min(request.scale, 1.0) : 1.0;
  const std::int64_t half = nearest ? 0 : half_taps(rule, request.scale);
  axis.taps = nearest ? 1 : 2 * half;
  const std::int64_t last = request.input - 1;
  std::vector<double> row(static_cast<std::size_t>(axis.taps));
  bool any_outside = false;
  std::vector<std::uint8_t> outside(static_cast<std::size_t>(request.output), 0);
  for (std::int64_t y = 0; y < request.output; ++y) {
    const double at = static_cast<double>(source_of(rule.coordinates, request, y));
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
    const double floor = std::floor(at);
    const std::int64_t first = static_cast<std::int64_t>(floor) + 1 - half;
    double sum = 0;
    for (std::int64_t k = 0; k < axis.taps; ++k) {
      const std::int64_t place = first + k;
      const double distance = (static_cast<double>(place) - at) * scale;
      double weight = rule.interpolation == Interpolation::Cubic
                          ? cubic(distance, rule.cubic_coefficient)
                          : std::max(0.0, 1 - std::fabs(distance));
      if (rule.exclude_outside && (place < 0 || place > last)) weight = 0;
      row[static_cast<std::size_t>(k)] = weight;
      sum += weight;
      axis.places.push_back(std::clamp<std::int64_t>(place, 0, last));
    }
    const bool normalize = (rule.antialias || rule.exclude_outside) && sum != 0;
    for (const double weight : row) axis.weights.push_back(normalize ? weight / sum : weight);
  }
  axis.float_weights.assign(axis.weights.begin(), axis.weights.end());
  if (any_outside) axis.outside = std::move(outside);
  return axis;
}

namespace {

template <class T>
const T* weights_of(const AxisTaps& axis) {
  if constexpr (std::is_same_v<T, float>) {
    return axis.float_weights.data();
  } else {
    return axis.weights.data();
  }
}

// Rows of `inner` elements: sums of whole rows.
template <class T>
void sum_rows(const AxisTaps& axis, const T* source, T* target, std::int64_t inner,
              std::int64_t row) {
  const std::int64_t block = row / axis.output, y = row % axis.output;
  const T* from = source + block * axis.input * inner;
  const std::int64_t* places = axis.places.data() + y * axis.taps;
  const T* weights = weights_of<T>(axis) + y * axis.taps;
  T* to = target + row * inner;
  const T *first = from + places[0] * inner, *second = from + places[1] * inner;
  for (std::int64_t i = 0; i < inner; ++i) to[i] = weights[0] * first[i] + weights[1] * second[i];
  for (std::int64_t k = 2; k < axis.taps; ++k) {
    const T* next = from + places[k] * inner;
    const T weight = weights[k];
    for (std::int64_t i = 0; i < inner; ++i) to[i] += weight * next[i];
  }
}

// The last axis: sums within a row.
template <class T>
void sum_columns(const AxisTaps& axis, const T* from, T* to) {
  const std::int64_t* places = axis.places.data();
  const T* weights = weights_of<T>(axis);
  if (axis.taps == 2) {
    for (std::int64_t x = 0; x < axis.output; ++x) {
      to[x] = weights[2 * x] * from[places[2 * x]] + weights[2 * x + 1] * from[places[2 * x + 1]];
    }
    return;
  }
  for (std::int64_t x = 0; x < axis.output; ++x, places += axis.taps, weights += axis.taps) {
    T sum = 0;
    for (std::int64_t k = 0; k < axis.taps; ++k) sum += weights[k] * from[places[k]];
    to[x] = sum;
  }
}

}  // namespace

template <class T>
void resample_pass(const AxisTaps& axis, const T* source, T* target, std::int64_t outer,
                   std::int64_t inner, const sdk::Threads& threads) {
  const std::int64_t rows = inner == 1 ? outer : outer * axis.output;
  const std::int64_t work =
      std::max<std::int64_t>(1, (inner == 1 ? axis.output : inner) * axis.taps);
  const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end); ++row) {
      if (inner == 1) {
        sum_columns(axis, source + row * axis.input, target + row * axis.output);
      } else {
        sum_rows(axis, source, target, inner, row);
      }
    }
  };
  if (rows * work < 64 * 1024) return part(0, static_cast<std::uint64_t>(rows), 0);
  threads.parallel_for(static_cast<std::uint64_t>(rows),
                       static_cast<std::uint64_t>(1 + 16 * 1024 / work), part);
}

template void resample_pass(const AxisTaps&, const float*, float*, std::int64_t, std::int64_t,
                            const sdk::Threads&);
template void resample_pass(const AxisTaps&, const double*, double*, std::int64_t, std::int64_t,
                            const sdk::Threads&);

}  // namespace backplane::cpu
