// Functions of one variable over arrays of double.
#pragma once

#include <cstdint>

#include "plugins/cpu/kernels/unary_f32.hpp"

namespace backplane::cpu {

/// y[i] = f(x[i]) for i < n doubles; x and y may be the same array.
using UnaryF64 = void (*)(const void* x, void* y, std::int64_t n, const UnaryParams& params);

/// The loop for `op`; nullptr where there is no vector form of it, or none of this instruction set.
UnaryF64 unary_f64(Isa isa, UnaryOp op);

}  // namespace backplane::cpu
