// Functions of two variables in plain C++, which the compiler vectorises for the build's own target:
// for double and integers, comparisons, and what has no vector form.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "plugins/cpu/kernels/binary_f32.hpp"
#include "plugins/cpu/kernels/broadcast_rows.hpp"

namespace backplane::cpu {

/// Rows of op(a, b), for elements of types A and B and results of type Y.
template <RowForm form, class Op, class A, class B, class Y>
void scalar_rows(const RowArgs& args) {
  const Op op;
  const std::int64_t n =
      args.n;  // not read again after each store, which may be to numbers of its type
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const auto* a = reinterpret_cast<const A*>(args.a + row * args.a_stride);
    const auto* b = reinterpret_cast<const B*>(args.b + row * args.b_stride);
    auto* y = reinterpret_cast<Y*>(args.y + row * args.y_stride);
    if constexpr (form == RowForm::kBoth) {
      for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<Y>(op(a[i], b[i]));
    } else if constexpr (form == RowForm::kFirst) {
      const B second = *b;
      for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<Y>(op(a[i], second));
    } else {
      const A first = *a;
      for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<Y>(op(first, b[i]));
    }
  }
}

template <class Op, class A, class B = A, class Y = A>
RowLoops scalar_loops() {
  return {{scalar_rows<RowForm::kBoth, Op, A, B, Y>, scalar_rows<RowForm::kFirst, Op, A, B, Y>,
           scalar_rows<RowForm::kSecond, Op, A, B, Y>}};
}

/// An unsigned type of 32 bits or more in which sums and products of T wrap instead of overflowing.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) <= 4, std::uint32_t, std::uint64_t>;

/// a^b for integers, wrapping; b below 0 gives the truncated fraction.
template <class T>
T integer_power(T base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == static_cast<T>(-1)) return exponent % 2 == 0 ? T(1) : static_cast<T>(-1);
    return 0;
  }
  Wrapping<T> result = 1;
  auto factor = static_cast<Wrapping<T>>(base);
  for (auto left = static_cast<std::uint64_t>(exponent); left != 0; left >>= 1) {
    if ((left & 1u) != 0) result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}

/// The remainder with the divisor's sign (Python's %); 0 where an integer divisor is 0.
template <class T>
T floor_mod(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;  // the least number % -1 traps
      const auto rest = static_cast<T>(a % b);
      return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
    } else {
      return static_cast<T>(a % b);
    }
  }
}

/// The remainder with the dividend's sign (C's fmod); 0 where an integer divisor is 0.
template <class T>
T trunc_mod(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(a, b);
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
}

/// The truncated quotient of integers; 0 where the divisor is 0, since there is no NaN to give.
template <class T>
T divide(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a / b;
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return static_cast<T>(Wrapping<T>(0) - static_cast<Wrapping<T>>(a));
    }
    return static_cast<T>(a / b);
  }
}

/// a op b for any arithmetic T.
template <BinaryOp op>
struct ScalarBinary {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (op == BinaryOp::kDiv)
      return divide(a, b);
    else if constexpr (op == BinaryOp::kMod)
      return floor_mod(a, b);
    else if constexpr (op == BinaryOp::kFMod)
      return trunc_mod(a, b);
    else if constexpr (op == BinaryOp::kMax)
      return a != a ? a : (a > b ? a : b);
    else if constexpr (op == BinaryOp::kMin)
      return a != a ? a : (a < b ? a : b);
    else if constexpr (op == BinaryOp::kPRelu && std::is_unsigned_v<T>)
      return a;
    else if constexpr (op == BinaryOp::kPRelu)
      return a < 0 ? wrapped<BinaryOp::kMul>(a, b) : a;
    else if constexpr (op == BinaryOp::kPow && std::is_floating_point_v<T>)
      return std::pow(a, b);
    else if constexpr (op == BinaryOp::kPow)
      return integer_power(a, static_cast<std::int64_t>(b));
    else
      return wrapped<op>(a, b);
  }

 private:
  template <BinaryOp which, class T>
  static T wrapped(T a, T b) {
    using W = std::conditional_t<std::is_integral_v<T>, Wrapping<T>, T>;
    const auto x = static_cast<W>(a);
    const auto y = static_cast<W>(b);
    if constexpr (which == BinaryOp::kAdd)
      return static_cast<T>(x + y);
    else if constexpr (which == BinaryOp::kSub)
      return static_cast<T>(x - y);
    else
      return static_cast<T>(x * y);
  }
};

/// The plain loops of `op` for elements of type T.
template <class T>
RowLoops scalar_binary(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return scalar_loops<ScalarBinary<BinaryOp::kAdd>, T>();
    case BinaryOp::kSub:
      return scalar_loops<ScalarBinary<BinaryOp::kSub>, T>();
    case BinaryOp::kMul:
      return scalar_loops<ScalarBinary<BinaryOp::kMul>, T>();
    case BinaryOp::kDiv:
      return scalar_loops<ScalarBinary<BinaryOp::kDiv>, T>();
    case BinaryOp::kMax:
      return scalar_loops<ScalarBinary<BinaryOp::kMax>, T>();
    case BinaryOp::kMin:
      return scalar_loops<ScalarBinary<BinaryOp::kMin>, T>();
    case BinaryOp::kPRelu:
      return scalar_loops<ScalarBinary<BinaryOp::kPRelu>, T>();
    case BinaryOp::kPow:
      return scalar_loops<ScalarBinary<BinaryOp::kPow>, T>();
    case BinaryOp::kMod:
      return scalar_loops<ScalarBinary<BinaryOp::kMod>, T>();
    case BinaryOp::kFMod:
      return scalar_loops<ScalarBinary<BinaryOp::kFMod>, T>();
  }
  return {{nullptr, nullptr, nullptr}};
}

}  // namespace backplane::cpu
