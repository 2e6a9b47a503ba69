// Conversions between float and the 16-bit floating-point types, one element at a time, rounding to
// nearest even. IEEE 754-2008 binary16; bfloat16 is the upper half of a binary32.
#pragma once

#include <cstdint>
#include <cstring>

#include "backplane/plugin.hpp"

namespace backplane::common {

using sdk::BFloat16;
using sdk::Half;

inline std::uint32_t float_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_from_bits(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float to_float(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = half.bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity and NaN
    return float_from_bits(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  }
  // As an integer times 2^-14-10 a subnormal needs no special case: 2^112 makes up for the biases.
  const float scaled = float_from_bits(magnitude << 13) * 0x1p112f;
  return float_from_bits(sign | float_bits(scaled));
}

inline float to_float(BFloat16 value) {
  return float_from_bits(static_cast<std::uint32_t>(value.bits) << 16);
}

inline Half to_half(float value) {
  const std::uint32_t bits = float_bits(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<std::uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};  // >= 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: the addition rounds to multiples of 2^-24
    const float rounded = float_from_bits(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (float_bits(rounded) - 0x3F000000u))};
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  const std::uint32_t rounded = magnitude + 0xFFFu + odd - (112u << 23);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

inline BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = float_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};  // stays a NaN
  }
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

/// A float from which a further rounding to fewer bits gives what rounding `value` directly would:
/// where the conversion is inexact, the last bit of the truncated value is set ("round to odd").
inline float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  std::uint32_t bits = float_bits(nearest);
  if ((back < 0 ? -back : back) > (value < 0 ? -value : value)) --bits;  // towards zero
  return float_from_bits(bits | 1u);
}

/// The element as the type that arithmetic on it is done in: float for the 16-bit types.
inline float widen(Half value) { return to_float(value); }
inline float widen(BFloat16 value) { return to_float(value); }
template <class T>
constexpr T widen(T value) {
  return value;
}

/// The other way round; rounds.
template <class T, class Wide>
inline T narrow(Wide value) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
using Wide = decltype(widen(T{}));

}  // namespace backplane::common
