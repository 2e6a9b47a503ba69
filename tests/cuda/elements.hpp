// Elements of 16 bits for the stand-in, by their definitions: IEEE 754 binary16, and bfloat16, the upper half of a
// binary32. Rounding is to nearest even.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace backplane::cuda {

/// `kFraction` bits of the fraction behind `kExponent` bits of the exponent.
template <int kExponent, int kFraction>
struct SmallFloat {
  std::uint16_t bits = 0;

  SmallFloat() = default;
  explicit SmallFloat(double value) {
    constexpr int kBias = (1 << (kExponent - 1)) - 1;
    constexpr int kInfinite = ((1 << kExponent) - 1) << kFraction;
    const int sign = std::signbit(value) ? 1 << (kExponent + kFraction) : 0;
    int magnitude = kInfinite;
    if (std::isnan(value)) {
      magnitude += 1 << (kFraction - 1);
    } else if (value == 0) {
      magnitude = 0;
    } else if (!std::isinf(value)) {
      int exponent = 0;
      std::frexp(value, &exponent);
      // Denormal numbers have the exponent of the smallest normal one.
      exponent = std::max(exponent - 1, 1 - kBias);
      const double steps = std::nearbyint(std::ldexp(std::fabs(value), kFraction - exponent));
      // What rounds up to the next power of two carries into the exponent by itself.
      magnitude = static_cast<int>(steps) + ((exponent + kBias - 1) << kFraction);
      if (magnitude > kInfinite) magnitude = kInfinite;
    }
    bits = static_cast<std::uint16_t>(sign + magnitude);
  }
  explicit operator double() const {
    constexpr int kBias = (1 << (kExponent - 1)) - 1;
    const int exponent = bits >> kFraction & ((1 << kExponent) - 1);
    const int fraction = bits & ((1 << kFraction) - 1);
    double value = 0;
    if (exponent == (1 << kExponent) - 1) {
      value = fraction == 0 ? HUGE_VAL : std::nan("");
    } else if (exponent == 0) {
      value = std::ldexp(fraction, 1 - kBias - kFraction);
    } else {
      value = std::ldexp(fraction + (1 << kFraction), exponent - kBias - kFraction);
    }
    return bits >> (kExponent + kFraction) != 0 ? -value : value;
  }
};
using HalfElement = SmallFloat<5, 10>;
using BrainElement = SmallFloat<8, 7>;

}  // namespace backplane::cuda
