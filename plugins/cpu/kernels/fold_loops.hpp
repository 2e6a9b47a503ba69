// The loops of a fold for any arithmetic type: vectors for float, plain C++ otherwise.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "plugins/cpu/kernels/reduce_f32.hpp"
#include "plugins/cpu/kernels/reduction.hpp"

namespace backplane::cpu {

/// The greatest (least) number of T where `least` is false (true), infinity where there is one.
template <class T>
constexpr T extreme(bool least) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity)
    return least ? -Limits::infinity() : Limits::infinity();
  else
    return least ? Limits::lowest() : Limits::max();
}

/// The plain fold of `x` into `acc`. Integers wrap, as they are accumulated in an unsigned type.
template <Fold fold, class Acc, class T>
Acc fold_one(Acc acc, T x) {
  if constexpr (fold == Fold::kSum) return acc + static_cast<Acc>(x);
  if constexpr (fold == Fold::kSumAbs) {
    const auto wide = static_cast<Acc>(x);
    return acc + (x < 0 ? Acc(0) - wide : wide);
  }
  if constexpr (fold == Fold::kSumSquare) return acc + static_cast<Acc>(x) * static_cast<Acc>(x);
  if constexpr (fold == Fold::kProd) return acc * static_cast<Acc>(x);
  // Two choices: which of two numbers is the greater one is not for branches.
  if constexpr (fold == Fold::kMax) {
    const Acc greater = acc > x ? acc : x;
    return acc != acc ? acc : greater;
  }
  if constexpr (fold == Fold::kMin) {
    const Acc less = acc < x ? acc : x;
    return acc != acc ? acc : less;
  }
}

/// The fold of an element into an accumulator where no NaN is among them.
template <Fold fold, class Acc, class T>
Acc fold_number(Acc acc, T x) {
  if constexpr (fold == Fold::kMax)
    return acc > x ? acc : x;
  else if constexpr (fold == Fold::kMin)
    return acc < x ? acc : x;
  else
    return fold_one<fold>(acc, x);
}

/// Whether no NaN is among x[0, n), and no infinity in long rows; without branches, which random numbers make slow.
template <class T>
bool are_numbers(const T* x, std::int64_t n) {
  constexpr std::int64_t kParts = 8;
  if (n < 2 * kParts) {
    int unordered = 0;
    for (std::int64_t i = 0; i < n; ++i) unordered |= static_cast<int>(x[i] != x[i]);
    return unordered == 0;
  }
  T zero[kParts] = {};
  std::int64_t i = 0;
  for (; i + kParts <= n; i += kParts) {
    for (std::int64_t k = 0; k < kParts; ++k) zero[k] += x[i + k] * T(0);
  }
  for (; i < n; ++i) zero[0] += x[i] * T(0);
  for (std::int64_t k = 1; k < kParts; ++k) zero[0] += zero[k];
  return zero[0] == 0;
}

template <Fold fold>
inline constexpr bool kIsExtreme = fold == Fold::kMax || fold == Fold::kMin;

/// Partial results of a row, since each step waits for the one before.
inline constexpr std::int64_t kFoldParts = 8;

/// The fold of x[0, n), of whole parts; `acc` is that of nothing or of x[0].
template <Fold fold, class T, class Acc>
Acc fold_parts(const T* x, std::int64_t n, Acc acc) {
  Acc part[kFoldParts];
  for (Acc& each : part) each = acc;
  for (std::int64_t i = 0; i < n; i += kFoldParts) {
    for (std::int64_t k = 0; k < kFoldParts; ++k) part[k] = fold_number<fold>(part[k], x[i + k]);
  }
  for (std::int64_t k = 1; k < kFoldParts; ++k) {
    if constexpr (kIsExtreme<fold> || fold == Fold::kProd)
      part[0] = fold_number<fold>(part[0], part[k]);
    else
      part[0] += part[k];
  }
  return part[0];
}

template <Fold fold, class T, class Acc>
Acc scalar_row(const T* x, std::int64_t n) {
  Acc acc = fold == Fold::kProd ? Acc(1) : Acc(0);
  if constexpr (kIsExtreme<fold>) acc = x[0];
  std::int64_t i = 0;
  if constexpr (std::is_floating_point_v<T>) {
    if constexpr (kIsExtreme<fold>) {
      if (!are_numbers(x, n)) {
        for (; i < n; ++i) acc = fold_one<fold>(acc, x[i]);
        return acc;
      }
    }
    if (n >= 2 * kFoldParts) {
      i = n / kFoldParts * kFoldParts;
      acc = fold_parts<fold>(x, i, acc);
    }
  }
  for (; i < n; ++i) acc = fold_number<fold>(acc, x[i]);
  return acc;
}

template <Fold fold, class T, class Acc>
void scalar_rows(const T* x, std::int64_t rows, std::int64_t n, Acc* y) {
  for (std::int64_t r = 0; r < rows; ++r) y[r] = scalar_row<fold, T, Acc>(x + r * n, n);
}

template <Fold fold, class T, class Acc>
void scalar_columns(const T* x, std::int64_t stride, std::int64_t rows, Acc* acc, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride) {
    for (std::int64_t i = 0; i < n; ++i) acc[i] = fold_one<fold>(acc[i], x[i]);
  }
}

template <Fold fold, class Acc>
void join_all(Acc* total, const Acc* acc, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (fold == Fold::kProd)
      total[i] *= acc[i];
    else if constexpr (fold == Fold::kMax || fold == Fold::kMin)
      total[i] = fold_one<fold>(total[i], acc[i]);
    else
      total[i] += acc[i];
  }
}

template <Fold fold, class T, class Acc>
FoldLoops<T, Acc> loops_with(Acc start) {
  return {start, scalar_rows<fold, T, Acc>, scalar_columns<fold, T, Acc>, join_all<fold, Acc>};
}

/// What T is accumulated in: sums and products of integers wrap in 64 bits without a sign.
template <class T, Fold fold>
using Accumulator =
    std::conditional_t<std::is_floating_point_v<T> || fold == Fold::kMax || fold == Fold::kMin, T,
                       std::uint64_t>;

template <Fold fold, class T>
FoldLoops<T, Accumulator<T, fold>> fold_loops([[maybe_unused]] Isa isa) {
  using Acc = Accumulator<T, fold>;
  Acc start = fold == Fold::kProd ? Acc(1) : Acc(0);
  if constexpr (fold == Fold::kMax) start = extreme<T>(true);
  if constexpr (fold == Fold::kMin) start = extreme<T>(false);
  FoldLoops<T, Acc> loops = loops_with<fold, T, Acc>(start);
  if constexpr (std::is_same_v<T, float>) {
    const FoldF32 vector = fold_f32(isa, fold);
    loops.rows = vector.rows;
    loops.columns = vector.columns;
  }
  return loops;
}

}  // namespace backplane::cpu
