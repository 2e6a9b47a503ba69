// Functions of one variable in plain C++: for double and integers, and for functions without a vector
// form.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "plugins/cpu/kernels/unary_f32.hpp"

namespace backplane::cpu {

/// 1 / (1 + e^-x) without overflow.
template <class T>
T scalar_sigmoid(T x) {
  return x >= 0 ? T(1) / (T(1) + std::exp(-x)) : std::exp(x) / (T(1) + std::exp(x));
}

template <class T>
T scalar_softplus(T x) {
  return (x > 0 ? x : T(0)) + std::log1p(std::exp(-std::fabs(x)));
}

/// x within 0 and 1.
template <class T>
T scalar_clamp(T x) {
  return x < 0 ? T(0) : (x > 1 ? T(1) : x);
}

/// The activations that bend at a few points, for floating-point T.
template <UnaryOp op, class T>
T apply_bent(T x, T a, T b) {
  if constexpr (op == UnaryOp::kLeakyRelu) return x < 0 ? a * x : x;
  if constexpr (op == UnaryOp::kThresholdedRelu) return x <= a ? T(0) : x;
  if constexpr (op == UnaryOp::kElu) return x < 0 ? a * std::expm1(x) : x;
  if constexpr (op == UnaryOp::kCelu) return x < 0 ? a * std::expm1(x / a) : x;
  if constexpr (op == UnaryOp::kSelu) return b * (x < 0 ? a * std::expm1(x) : x);
  if constexpr (op == UnaryOp::kShrink) return x < -b ? x + a : (x > b ? x - a : T(0));
  if constexpr (op == UnaryOp::kHardSigmoid) return scalar_clamp(a * x + b);
  if constexpr (op == UnaryOp::kHardSwish) return x * scalar_clamp(x / 6 + T(0.5));
}

/// The activations that are smooth, for floating-point T.
template <UnaryOp op, class T>
T apply_smooth(T x, T a) {
  if constexpr (op == UnaryOp::kErf) return std::erf(x);
  if constexpr (op == UnaryOp::kSigmoid) return scalar_sigmoid(x);
  if constexpr (op == UnaryOp::kSoftplus) return scalar_softplus(x);
  if constexpr (op == UnaryOp::kSoftsign) return x / (1 + std::fabs(x));
  if constexpr (op == UnaryOp::kMish) return x * std::tanh(scalar_softplus(x));
  if constexpr (op == UnaryOp::kSwish) return x * scalar_sigmoid(a * x);
  if constexpr (op == UnaryOp::kGelu)
    return T(0.5) * x * (1 + std::erf(x * T(0.70710678118654752)));
  if constexpr (op == UnaryOp::kGeluTanh) {
    return T(0.5) * x * (1 + std::tanh(T(0.79788456080286536) * (x + T(0.044715) * x * x * x)));
  }
}

/// The elementary functions, for floating-point T.
template <UnaryOp op, class T>
T apply_elementary(T x) {
  if constexpr (op == UnaryOp::kFloor) return std::floor(x);
  if constexpr (op == UnaryOp::kCeil) return std::ceil(x);
  if constexpr (op == UnaryOp::kRound) return std::nearbyint(x);
  if constexpr (op == UnaryOp::kSqrt) return std::sqrt(x);
  if constexpr (op == UnaryOp::kReciprocal) return 1 / x;
  if constexpr (op == UnaryOp::kExp) return std::exp(x);
  if constexpr (op == UnaryOp::kLog) return std::log(x);
  if constexpr (op == UnaryOp::kTanh) return std::tanh(x);
  if constexpr (op == UnaryOp::kSin) return std::sin(x);
  if constexpr (op == UnaryOp::kCos) return std::cos(x);
  if constexpr (op == UnaryOp::kTan) return std::tan(x);
  if constexpr (op == UnaryOp::kAsin) return std::asin(x);
  if constexpr (op == UnaryOp::kAcos) return std::acos(x);
  if constexpr (op == UnaryOp::kAtan) return std::atan(x);
  if constexpr (op == UnaryOp::kSinh) return std::sinh(x);
  if constexpr (op == UnaryOp::kCosh) return std::cosh(x);
  if constexpr (op == UnaryOp::kAsinh) return std::asinh(x);
  if constexpr (op == UnaryOp::kAcosh) return std::acosh(x);
  if constexpr (op == UnaryOp::kAtanh) return std::atanh(x);
}

constexpr bool is_arithmetic(UnaryOp op) {
  return op == UnaryOp::kAbs || op == UnaryOp::kNeg || op == UnaryOp::kSign || op == UnaryOp::kRelu;
}

constexpr bool is_bent(UnaryOp op) {
  return op == UnaryOp::kLeakyRelu || op == UnaryOp::kThresholdedRelu || op == UnaryOp::kElu ||
         op == UnaryOp::kCelu || op == UnaryOp::kSelu || op == UnaryOp::kShrink ||
         op == UnaryOp::kHardSigmoid || op == UnaryOp::kHardSwish;
}

constexpr bool is_smooth(UnaryOp op) {
  return op >= UnaryOp::kErf && op <= UnaryOp::kGeluTanh && op != UnaryOp::kTanh && !is_bent(op);
}

/// -x; integers wrap, as the least number has no positive counterpart.
template <class T>
T scalar_negate(T x) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(Unsigned(0) - static_cast<Unsigned>(x));
  } else {
    return -x;
  }
}

template <class T>
T scalar_sign(T x) {
  if constexpr (std::is_unsigned_v<T>)
    return x != 0 ? T(1) : T(0);
  else
    return x > 0 ? T(1) : (x < 0 ? T(-1) : x);
}

/// What is_arithmetic names, for any arithmetic T.
template <UnaryOp op, class T>
T apply_arithmetic(T x) {
  if constexpr (op == UnaryOp::kNeg) {
    return scalar_negate(x);
  } else if constexpr (op == UnaryOp::kSign) {
    return scalar_sign(x);
  } else if constexpr (std::is_unsigned_v<T>) {
    return x;
  } else if constexpr (op == UnaryOp::kRelu) {
    return x < 0 ? T(0) : x;
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(x);
  } else {
    // Without a branch, which signs in any order would often send the wrong way.
    using Unsigned = std::make_unsigned_t<T>;
    const auto sign = static_cast<Unsigned>(x >> (8 * sizeof(T) - 1));
    return static_cast<T>(static_cast<Unsigned>((static_cast<Unsigned>(x) ^ sign) - sign));
  }
}

/// f(x) for any arithmetic T; integers know only what is_arithmetic says.
template <UnaryOp op, class T>
T apply_unary(T x, [[maybe_unused]] const UnaryParams& params) {
  if constexpr (is_arithmetic(op)) {
    return apply_arithmetic<op, T>(x);
  } else if constexpr (std::is_floating_point_v<T> && is_bent(op)) {
    return apply_bent<op, T>(x, static_cast<T>(params.a), static_cast<T>(params.b));
  } else if constexpr (std::is_floating_point_v<T> && is_smooth(op)) {
    return apply_smooth<op, T>(x, static_cast<T>(params.a));
  } else if constexpr (std::is_floating_point_v<T>) {
    return apply_elementary<op, T>(x);
  }
}

/// y[i] = f(x[i]); x and y may be the same array of T.
template <UnaryOp op, class T>
void unary_loop(const void* x, void* y, std::int64_t n, const UnaryParams& params) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(y);
  for (std::int64_t i = 0; i < n; ++i) to[i] = apply_unary<op, T>(from[i], params);
}

}  // namespace backplane::cpu
