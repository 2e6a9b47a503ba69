// A row of a matrix product for the types that have no packed kernels.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// y[j] = sum over k of a[k] * b[k * b_step + j] for j < columns; integers wrap, 16-bit numbers are summed in float.
using PlainRow = void (*)(const void* a, const void* b, std::int64_t b_step, std::int64_t depth,
                          std::int64_t columns, void* y);

/// For double, the 16-bit types and integers of 32 and 64 bits; null for others.
PlainRow plain_row(Isa isa, sdk::DataType type);

}  // namespace backplane::cpu
