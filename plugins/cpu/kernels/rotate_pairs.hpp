// Pairs of floats, turned by angles.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// Turns n pairs by the angles that `cos` and `sin` are of: (a cos - b sin, a sin + b cos). y may be x.
using RotatePairs = void (*)(const float* x, float* y, std::int64_t n, const float* cos,
                             const float* sin);

/// A pair is x[i] and x[n + i], or, interleaved, x[2 i] and x[2 i + 1].
RotatePairs rotate_pairs(Isa isa, bool is_interleaved);

}  // namespace backplane::cpu
