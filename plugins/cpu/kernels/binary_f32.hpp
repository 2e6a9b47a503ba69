// Functions of two variables over rows of float.
#pragma once

#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/kernels/broadcast_rows.hpp"

namespace backplane::cpu {

/// Operators of two inputs of one type whose output has it too.
enum class BinaryOp {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,    // NaN where one of the two is
  kMin,    // likewise
  kPRelu,  // a below 0: a * b
  kPow,
  kMod,   // the remainder with the divisor's sign
  kFMod,  // the remainder with the dividend's sign
};

/// The loops for `op`; all nullptr where there is no vector form of it.
RowLoops binary_f32(Isa isa, BinaryOp op);

}  // namespace backplane::cpu
