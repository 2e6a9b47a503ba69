// Comparisons over rows, with a byte of 0 or 1 for each element.
#pragma once

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/kernels/broadcast_rows.hpp"

namespace backplane::cpu {

enum class Compare { kEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

/// The loops for elements of `type`; bools are compared as uint8.
/// Errors: BP_UNSUPPORTED for a type without a C++ type of its own.
RowLoops compare_loops(Isa isa, Compare compare, sdk::DataType type);

}  // namespace backplane::cpu
