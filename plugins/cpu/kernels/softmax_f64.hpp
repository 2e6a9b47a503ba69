// Softmax and its logarithm over rows of double.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// As SoftmaxF32 has them; both nullptr where the instruction set has no vector form.
struct SoftmaxF64 {
  void (*rows)(const double* x, double* y, std::int64_t n, std::int64_t count);
  void (*log_rows)(const double* x, double* y, std::int64_t n, std::int64_t count);
};

SoftmaxF64 softmax_f64(Isa isa);

}  // namespace backplane::cpu
