// Converting arrays between element types that have a C++ type of their own.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// to[i] = from[i] by the rules of Cast, for i < n; the arrays do not overlap.
using NativeConversion = void (*)(const void* from, void* to, std::int64_t n);

/// For float, double, bool and integers of 8 to 64 bits. Errors: BP_UNSUPPORTED for others.
NativeConversion native_conversion(Isa isa, sdk::DataType from, sdk::DataType to);

}  // namespace backplane::cpu
