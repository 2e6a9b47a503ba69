// Functions of two variables over rows of double.
#pragma once

#include "plugins/cpu/kernels/binary_f32.hpp"

namespace backplane::cpu {

/// The loops for `op`, plain ones where there is no vector form of it.
RowLoops binary_f64(Isa isa, BinaryOp op);

}  // namespace backplane::cpu
