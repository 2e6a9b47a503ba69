// What attention does with rows of scores, between its two products.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// Rows of `n` floats, changed where they are.
struct AttentionRows {
  /// x[i] = cap * tanh(x[i] / cap).
  void (*cap)(float* x, std::int64_t n, float cap);
  /// x[i] += addend[i].
  void (*add)(float* x, const float* addend, std::int64_t n);
  /// x[i] = otherwise where mask[i] != kept.
  void (*keep)(float* x, const bool* mask, std::int64_t n, bool kept, float otherwise);
  /// The greatest element; -infinity for none. A NaN may be passed over: exp_sum keeps it.
  float (*max)(const float* x, std::int64_t n);
  /// x[i] = e^(x[i] - max); returns their sum. No element is above `max`.
  float (*exp_sum)(float* x, std::int64_t n, float max);
  /// y[i] = x[i] * factor; y may be x.
  void (*scale)(const float* x, float* y, std::int64_t n, float factor);
  /// y = (x1 cos1 - x2 sin1, x2 cos2 + x1 sin2) of rows with two halves of `half` floats; y may be x.
  void (*turn)(const float* x, const float* cos, const float* sin, float* y, std::int64_t half);
};

const AttentionRows& attention_rows(Isa isa);

}  // namespace backplane::cpu
