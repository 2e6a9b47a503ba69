// Folding arrays of float into one number, and rows of float into one row.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// What is folded: the elements, their absolute values or their squares by addition; or the elements by
/// product, maximum, minimum (NaN where one of them is).
enum class Fold { kSum, kSumAbs, kSumSquare, kProd, kMax, kMin };

/// What folding nothing gives.
float fold_start(Fold fold);

struct FoldF32 {
  /// y[r] = the fold of the `n` > 0 numbers from x[r * n] on, for r < rows.
  void (*rows)(const float* x, std::int64_t rows, std::int64_t n, float* y);
  /// acc[i] = fold of acc[i] and x[r * stride + i] for r < rows; i < n. `acc` starts as fold_start.
  void (*columns)(const float* x, std::int64_t stride, std::int64_t rows, float* acc,
                  std::int64_t n);
};

FoldF32 fold_f32(Isa isa, Fold fold);

}  // namespace backplane::cpu
