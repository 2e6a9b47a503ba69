// Sizes rounded up.
#pragma once

#include <cstdint>

namespace backplane::cpu {

/// Bytes up to the next multiple of 64: parts of a workspace begin on cache lines.
constexpr std::uint64_t align64(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Least integer that is not below a / b, for b > 0; 0 where a is negative.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a <= 0 ? 0 : (a - 1) / b + 1;
}

}  // namespace backplane::cpu
