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
  if constexpr (fold == Fold::kMax) return acc != acc || acc > x ? acc : x;
  if constexpr (fold == Fold::kMin) return acc != acc || acc < x ? acc : x;
}

template <Fold fold, class T, class Acc>
Acc scalar_row(const T* x, std::int64_t n) {
  Acc acc = fold == Fold::kProd ? Acc(1) : Acc(0);
  if constexpr (fold == Fold::kMax || fold == Fold::kMin) acc = x[0];
  for (std::int64_t i = 0; i < n; ++i) acc = fold_one<fold>(acc, x[i]);
  return acc;
}

template <Fold fold, class T, class Acc>
void scalar_columns(const T* x, std::int64_t stride, std::int64_t rows, Acc* acc, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride) {
    for (std::int64_t i = 0; i < n; ++i) acc[i] = fold_one<fold>(acc[i], x[i]);
  }
}

template <Fold fold, class Acc>
Acc join(Acc a, Acc b) {
  if constexpr (fold == Fold::kProd)
    return a * b;
  else if constexpr (fold == Fold::kMax || fold == Fold::kMin)
    return fold_one<fold>(a, b);
  else
    return a + b;
}

template <Fold fold, class T, class Acc>
FoldLoops<T, Acc> loops_with(Acc start) {
  return {start, scalar_row<fold, T, Acc>, scalar_columns<fold, T, Acc>, join<fold, Acc>};
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
    loops.row = vector.row;
    loops.columns = vector.columns;
  }
  return loops;
}

}  // namespace backplane::cpu
