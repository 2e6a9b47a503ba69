// The inner loop of local response normalisation.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// y[c][i] = x[c][i] / (bias + alpha / size * sum of x[k][i]^2)^beta, over the k in
/// [c - (size - 1) / 2, c + size / 2] that are channels. Channels lie `stride` elements apart.
struct LrnArgs {
  std::int64_t channels;
  std::int64_t stride;
  std::int64_t size;
  float alpha;
  float beta;
  float bias;
};

/// For i < n; x and y are different arrays.
using LrnF32 = void (*)(const LrnArgs& args, const float* x, float* y, std::int64_t n);

LrnF32 lrn_f32(Isa isa);

}  // namespace backplane::cpu
