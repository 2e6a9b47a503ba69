// Functions of one variable over arrays of float.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// Operators of one input whose output has its type. `a` and `b` below are UnaryParams.
enum class UnaryOp {
  kAbs,
  kNeg,
  kSign,
  kFloor,
  kCeil,
  kRound,
  kSqrt,
  kReciprocal,
  kExp,
  kLog,
  kErf,
  kTanh,
  kSigmoid,
  kSoftplus,
  kSoftsign,
  kRelu,
  kLeakyRelu,        // a: slope below 0
  kThresholdedRelu,  // a: threshold
  kElu,              // a: alpha
  kCelu,             // a: alpha
  kSelu,             // a: alpha, b: gamma
  kHardSigmoid,      // a: alpha, b: beta
  kHardSwish,
  kMish,
  kSwish,   // a: alpha
  kShrink,  // a: bias, b: lambd
  kGelu,
  kGeluTanh,
  kClip,  // a: least, b: greatest
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
};

struct UnaryParams {
  float a = 0;
  float b = 0;
};

/// y[i] = f(x[i]) for i < n; x and y may be the same array.
using UnaryF32 = void (*)(const float* x, float* y, std::int64_t n, const UnaryParams& params);

/// The loop for `op`; nullptr where there is no vector form of it.
UnaryF32 unary_f32(Isa isa, UnaryOp op);

}  // namespace backplane::cpu
