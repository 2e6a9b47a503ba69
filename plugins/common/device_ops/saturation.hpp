// Rounding to quantised types, in kernels.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/common/device_ops/kernel.hpp"

namespace backplane::device_ops {

/// What a type of 8 or 16 bits holds.
struct IntegerRange {
  std::int64_t low, high;
  explicit IntegerRange(DataType type) {
    const bool is_signed = type == DataType::Int8 || type == DataType::Int16;
    const int bits = sdk::element_bits(type);
    low = is_signed ? -(std::int64_t{1} << (bits - 1)) : 0;
    high = low + (std::int64_t{1} << bits) - 1;
  }
};

/// The function `i32 saturate(float, i32 zero)`: rounds to nearest even, adds the zero point and keeps to the type's range,
/// whose least NaN becomes.
inline std::string saturation_text(DataType type) {
  const IntegerRange range(type);
  return sdk::message(
      "FUNCTION i32 saturate(float v, i32 zero) {\n  float r = rint(v) + (float)zero;\n",
      "  return r > ", range.low, " ? r < ", range.high, " ? (i32)r : ", range.high, " : ",
      range.low, ";\n}\n");
}

}  // namespace backplane::device_ops
