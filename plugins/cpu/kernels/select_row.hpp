// Choosing between two operands, element by element.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// out[i] = condition[i] ? x[i] : y[i] for i < n; a step is 1, or 0 for an operand of one element. `out` may
/// be the same memory as an operand that steps.
struct SelectRow {
  const std::uint8_t* condition;
  std::int64_t condition_step;
  const char* x;
  std::int64_t x_step;
  const char* y;
  std::int64_t y_step;
  char* out;
  std::int64_t n;
};

using SelectLoop = void (*)(const SelectRow& row);

/// The loop for elements of 1, 2, 4, 8 or 16 bytes; nullptr for other sizes.
SelectLoop select_loop(Isa isa, int element_bytes);

}  // namespace backplane::cpu
