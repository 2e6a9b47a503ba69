// What lies behind packed weights of bytes whose sums are to be corrected by zero points.
#pragma once

#include <cstdint>

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {

/// Of each column of the weights, behind their packed bytes. Nothing is owned.
struct ZeroPointTail {
  std::int32_t* has_zeros;  // whether any zero point is not 0
  std::int32_t* sums;
  std::int32_t* zeros;

  /// The tail of weights that take `weight_bytes`.
  static ZeroPointTail behind(void* packed, std::uint64_t weight_bytes, std::int64_t columns) {
    char* const flag = static_cast<char*>(packed) + align64(weight_bytes);
    char* const sums_begin = flag + kFlagBytes;
    return {reinterpret_cast<std::int32_t*>(flag), reinterpret_cast<std::int32_t*>(sums_begin),
            reinterpret_cast<std::int32_t*>(sums_begin + column_bytes(columns))};
  }
  static ZeroPointTail behind(const void* packed, std::uint64_t weight_bytes,
                              std::int64_t columns) {
    return behind(const_cast<void*>(packed), weight_bytes, columns);
  }
  /// The bytes of weights and tail.
  static std::uint64_t end(std::uint64_t weight_bytes, std::int64_t columns) {
    return align64(weight_bytes) + kFlagBytes + 2 * column_bytes(columns);
  }

 private:
  static constexpr std::uint64_t kFlagBytes = 64;
  static std::uint64_t column_bytes(std::int64_t columns) {
    return align64(static_cast<std::uint64_t>(columns) * 4);
  }
};

}  // namespace backplane::cpu
