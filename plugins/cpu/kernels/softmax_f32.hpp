// Softmax and its logarithm over rows and columns of float.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// y and x may be the same array.
struct SoftmaxF32 {
  /// y[i] = e^(x[i] - max) / sum, over x[0, n), for each of `count` rows, one behind the other.
  void (*rows)(const float* x, float* y, std::int64_t n, std::int64_t count);
  /// y[i] = x[i] - max - ln(sum).
  void (*log_rows)(const float* x, float* y, std::int64_t n, std::int64_t count);
  /// The same along columns: element k of column j is x[k * stride + j]; j < width <= kSoftmaxTile.
  void (*columns)(const float* x, float* y, std::int64_t n, std::int64_t stride,
                  std::int64_t width);
  void (*log_columns)(const float* x, float* y, std::int64_t n, std::int64_t stride,
                      std::int64_t width);
  /// y[i] = max[i] + ln(sum of e^(x - max[i])) for rows like those of `rows`, whose maxima, or NaN, `max` has.
  void (*log_sums)(const float* x, const float* max, float* y, std::int64_t n, std::int64_t count);
};

inline constexpr std::int64_t kSoftmaxTile = 128;

const SoftmaxF32& softmax_f32(Isa isa);

}  // namespace backplane::cpu
