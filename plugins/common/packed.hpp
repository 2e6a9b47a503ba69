// Elements of 4 and 2 bits: packed, the first in the low bits of the first byte.
#pragma once

#include <cstdint>

namespace backplane::common {

/// The pattern of element `index`.
template <int kBits>
inline std::uint8_t get_packed(const std::uint8_t* data, std::int64_t index) {
  constexpr int kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const int shift = static_cast<int>(index % kPerByte) * kBits;
  return static_cast<std::uint8_t>((data[index / kPerByte] >> shift) & kMask);
}

/// The same, as a signed number.
template <int kBits>
inline std::int8_t get_packed_signed(const std::uint8_t* data, std::int64_t index) {
  constexpr int kSign = 1 << (kBits - 1);
  return static_cast<std::int8_t>((get_packed<kBits>(data, index) ^ kSign) - kSign);
}

/// Writes the low bits of `value`; the other elements of the byte stay. Two threads must not write to
/// one byte.
template <int kBits>
inline void set_packed(std::uint8_t* data, std::int64_t index, std::uint8_t value) {
  constexpr int kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const int shift = static_cast<int>(index % kPerByte) * kBits;
  std::uint8_t& byte = data[index / kPerByte];
  byte = static_cast<std::uint8_t>((byte & ~(kMask << shift)) | ((value & kMask) << shift));
}

/// The bytes that `count` elements of `bits` bits take.
inline std::int64_t packed_bytes(std::int64_t count, int bits) { return (count * bits + 7) / 8; }

}  // namespace backplane::common
