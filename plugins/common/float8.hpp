// Conversions between float and the floating-point types of 8 and 4 bits, one element at a time.
// Formats and rules: https://onnx.ai/onnx/technical/float8.html and float4.html.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "plugins/common/half.hpp"

namespace backplane::common {

/// A format of one sign bit, kExponent and kMantissa bits.
///
/// `kInfinity`: the greatest exponent is for infinities and NaN, as in IEEE 754. `kUnsignedZero`
/// ("fnuz"): there is one zero, and the pattern of -0 is the only NaN. With neither, NaN is the pattern
/// of all ones.
template <int kExponent, int kMantissa, int kBias, bool kInfinity, bool kUnsignedZero>
struct SmallFloat {
  static constexpr std::uint32_t kSign = 1u << (kExponent + kMantissa);
  static constexpr std::uint32_t kAllOnes = kSign - 1;
  static constexpr std::uint32_t kNan = kUnsignedZero ? kSign : kAllOnes;
  static constexpr std::uint32_t kInfinityBits = ((1u << kExponent) - 1) << kMantissa;
  static constexpr std::uint32_t kGreatest =
      kUnsignedZero ? kAllOnes : (kInfinity ? kInfinityBits - 1 : kAllOnes - 1);

  static float decode(std::uint8_t bits) {
    const bool negative = (bits & kSign) != 0;
    const std::uint32_t magnitude = bits & kAllOnes;
    if (kUnsignedZero && bits == kNan) return std::numeric_limits<float>::quiet_NaN();
    if (!kUnsignedZero && !kInfinity && magnitude == kAllOnes) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    if (kInfinity && magnitude >= kInfinityBits) {
      if (magnitude > kInfinityBits) return std::numeric_limits<float>::quiet_NaN();
      return negative ? -HUGE_VALF : HUGE_VALF;
    }
    const auto exponent = static_cast<int>(magnitude >> kMantissa);
    const auto mantissa = static_cast<int>(magnitude & ((1u << kMantissa) - 1));
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << kMantissa);
    const float value =
        std::ldexp(static_cast<float>(whole), (exponent == 0 ? 1 : exponent) - kBias - kMantissa);
    return negative ? -value : value;
  }

  /// Rounds to nearest even. What is too large becomes the greatest number with `saturate`, otherwise
  /// infinity where there is one and NaN where not.
  static std::uint8_t encode(float value, bool saturate) {
    const std::uint32_t sign = std::signbit(value) ? kSign : 0;
    if (std::isnan(value)) return static_cast<std::uint8_t>(kUnsignedZero ? kNan : sign | kNan);
    const std::uint32_t magnitude = encode_magnitude(std::fabs(value));
    if (magnitude > kGreatest) {
      if (saturate) return static_cast<std::uint8_t>(sign | kGreatest);
      if (kInfinity) return static_cast<std::uint8_t>(sign | kInfinityBits);
      return static_cast<std::uint8_t>(kUnsignedZero ? kNan : sign | kNan);
    }
    if (kUnsignedZero && magnitude == 0) return 0;
    return static_cast<std::uint8_t>(sign | magnitude);
  }

 private:
  /// The pattern of a value that is not negative, continued beyond the greatest number.
  static std::uint32_t encode_magnitude(float value) {
    if (value > 1e30f) return ~0u;
    int exponent = 0;
    std::frexp(value, &exponent);  // value = [0.5, 1) * 2^exponent
    exponent = exponent - 1 < 1 - kBias ? 1 - kBias : exponent - 1;
    const auto whole = static_cast<std::uint32_t>(
        std::nearbyint(std::ldexp(value, kMantissa - exponent)));  // a carry reaches the exponent
    if (whole < (1u << kMantissa)) return whole;                   // subnormal
    return (static_cast<std::uint32_t>(exponent + kBias - 1) << kMantissa) + whole;
  }
};

using Float8E4M3FN = SmallFloat<4, 3, 7, false, false>;
using Float8E4M3FNUZ = SmallFloat<4, 3, 8, false, true>;
using Float8E5M2 = SmallFloat<5, 2, 15, true, false>;
using Float8E5M2FNUZ = SmallFloat<5, 2, 16, false, true>;

/// Four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no infinity, no NaN.
struct Float4E2M1 {
  static float decode(std::uint8_t bits) {
    constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const float value = kValues[bits & 7u];
    return (bits & 8u) != 0 ? -value : value;
  }
  /// Rounds to nearest even; what is too large becomes 6. NaN has no pattern and becomes -0, as in
  /// ONNX's reference.
  static std::uint8_t encode(float value) {
    const std::uint8_t sign = std::signbit(value) ? 8 : 0;
    const float magnitude = std::fabs(value);
    // The midpoints between neighbours; a tie goes to the neighbour with an even pattern.
    constexpr float kMiddle[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    std::uint8_t bits = 0;
    if (std::isnan(value)) return 8;
    while (bits < 7 &&
           (magnitude > kMiddle[bits] || (magnitude == kMiddle[bits] && bits % 2 == 1))) {
      ++bits;
    }
    return static_cast<std::uint8_t>(sign | bits);
  }
};

enum class ScaleRounding { kNearest, kUp, kDown };

/// Eight bits of exponent, a power of two from 2^-127 to 2^127; 255 is NaN. There is no zero and no
/// negative number; with `saturate` zero becomes the least number and what is too large the greatest one.
struct Float8E8M0 {
  static float decode(std::uint8_t bits) {
    if (bits == 255) return std::numeric_limits<float>::quiet_NaN();
    return std::ldexp(1.0f, static_cast<int>(bits) - 127);
  }
  static std::uint8_t encode(float value, bool saturate, ScaleRounding rounding) {
    if (value == 0) return saturate ? 0 : 255;
    if (std::isnan(value) || std::signbit(value)) return 255;
    if (std::isinf(value)) return saturate ? 254 : 255;
    int exponent = 0;
    const float fraction = std::frexp(value, &exponent) * 2;  // [1, 2)
    --exponent;
    const bool up = rounding == ScaleRounding::kUp        ? fraction > 1
                    : rounding == ScaleRounding::kNearest ? fraction >= 1.5f
                                                          : false;
    const int bits = exponent + 127 + (up ? 1 : 0);
    if (bits < 0) return saturate ? 0 : 255;
    if (bits > 254) return saturate ? 254 : 255;
    return static_cast<std::uint8_t>(bits);
  }
};

}  // namespace backplane::common
