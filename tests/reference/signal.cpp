// DFT, STFT, window functions, MelWeightMatrix: sums over all samples, from the definitions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

struct Number {
  double re = 0;
  double im = 0;
};

/// sum over n of x(n) * exp(sign * 2 pi i k n / length).
template <class At>
Number transform(std::int64_t length, std::int64_t k, double sign, const At& x) {
  Number sum;
  for (std::int64_t n = 0; n < length; ++n) {
    const double angle =
        sign * kTurn * static_cast<double>(k * n % length) / static_cast<double>(length);
    const Number value = x(n);
    sum.re += value.re * std::cos(angle) - value.im * std::sin(angle);
    sum.im += value.re * std::sin(angle) + value.im * std::cos(angle);
  }
  return sum;
}

/// The element of an array whose last axis holds the parts of a number.
Number number_at(const Array& array, const Dims& index) {
  const std::int64_t at = offset_of(array.dims, index);
  return {array.values[at], array.dims.back() == 2 ? array.values[at + 1] : 0};
}

/// The axis of a DFT: an attribute before opset 20, an input from then on.
std::int64_t dft_axis(const Call& call) {
  std::int64_t axis = call.integer("axis", call.node.opset < 20 ? 1 : -2);
  if (call.node.opset >= 20 && call.optional(2) != nullptr) axis = call.integers(2)[0];
  return positive_axis(axis, call.input(0).rank());
}

/// Element n of the spectrum of a real signal of `length`, of which `x` has the first half along `axis`.
Number mirrored_at(const Array& x, Dims index, std::int64_t axis, std::int64_t n,
                   std::int64_t length) {
  // What a one-sided spectrum leaves out is the conjugate of what it has.
  const bool mirrored = n > length / 2;
  index[axis] = mirrored ? length - n : n;
  if (index[axis] >= x.dims[axis]) return Number{};
  Number value = number_at(x, index);
  if (mirrored) value.im = -value.im;
  if (n == 0 || 2 * n == length) value.im = 0;
  return value;
}

Arrays dft(const Call& call) {
  const Array& x = call.input(0);
  const bool inverse = call.integer("inverse", 0) != 0;
  const bool onesided = call.integer("onesided", 0) != 0;
  const bool to_real = inverse && onesided;
  const std::int64_t axis = dft_axis(call);
  const std::int64_t stored = x.dims[axis];
  std::int64_t length = to_real ? 2 * (stored - 1) : stored;
  if (call.optional(1) != nullptr) length = call.integers(1)[0];
  Dims lines = x.dims;
  lines.back() = 1;
  lines[axis] = onesided && !inverse ? length / 2 + 1 : length;
  Array y = filled(x.type, lines);
  y.dims.back() = to_real ? 1 : 2;
  y.values.clear();
  for_each_index(lines, [&](const Dims& index) {
    const Number sum = transform(length, index[axis], inverse ? 1 : -1, [&](std::int64_t n) {
      if (to_real) return mirrored_at(x, index, axis, n, length);
      Dims at = index;
      at[axis] = n;
      return n < stored ? number_at(x, at) : Number{};
    });
    const double factor = inverse ? 1 / static_cast<double>(length) : 1;
    y.values.push_back(sum.re * factor);
    if (!to_real) y.values.push_back(sum.im * factor);
  });
  return {y};
}

Arrays stft(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t step = call.integers(1)[0];
  const Array* window = call.optional(2);
  std::int64_t length = window == nullptr ? x.dims[1] : window->size();
  if (call.optional(3) != nullptr) length = call.integers(3)[0];
  const std::int64_t frames = (x.dims[1] - length) / step + 1;
  const std::int64_t bins = call.integer("onesided", 1) != 0 ? length / 2 + 1 : length;
  Array y{x.type, {x.dims[0], frames, bins, 2}, {}};
  for_each_index({x.dims[0], frames, bins}, [&](const Dims& index) {
    const Number sum = transform(length, index[2], -1, [&](std::int64_t n) {
      Number value = number_at(x, {index[0], index[1] * step + n, 0});
      const double weight = window == nullptr ? 1 : window->values[n];
      return Number{value.re * weight, value.im * weight};
    });
    y.values.push_back(sum.re);
    y.values.push_back(sum.im);
  });
  return {y};
}

Arrays window(const Call& call) {
  const std::int64_t size = call.integers(0)[0];
  const auto period = static_cast<double>(call.integer("periodic", 1) != 0 ? size : size - 1);
  Array y{static_cast<ElementType>(call.integer("output_datatype", 1)), {size}, {}};
  for (std::int64_t n = 0; n < size; ++n) {
    const double t = kTurn * static_cast<double>(n) / period;
    double value = 0.5 - 0.5 * std::cos(t);
    if (call.node.op_type == "HammingWindow") value = 25.0 / 46 - 21.0 / 46 * std::cos(t);
    if (call.node.op_type == "BlackmanWindow")
      value = 0.42 - 0.5 * std::cos(t) + 0.08 * std::cos(2 * t);
    y.values.push_back(value);
  }
  return {y};
}

const Registration kDft({"DFT"}, dft);
const Registration kStft({"STFT"}, stft);
const Registration kWindow({"HannWindow", "HammingWindow", "BlackmanWindow"}, window);

}  // namespace
}  // namespace backplane::reference
