// Conversions between arrays of float and of the 16-bit floating-point types, rounding to nearest even.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// Loops over n elements, which may not overlap.
struct HalfConversion {
  void (*to_float)(const void* from, float* to, std::int64_t n);
  void (*from_float)(const float* from, void* to, std::int64_t n);
};

/// For DataType::Float16 and DataType::BFloat16.
const HalfConversion& half_conversion(Isa isa, sdk::DataType type);

}  // namespace backplane::cpu
