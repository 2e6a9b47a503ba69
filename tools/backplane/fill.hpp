// Made-up inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"

namespace backplane::cli {

/// A tensor that depends on name, type and dims only: floats in [-1, 1), 8-bit and smaller integers of all kinds
/// of small values, wider ones 0 and 1 (they are mostly indices, and every table has two rows), strings and bools
/// of two kinds.
Value filled_tensor(const std::string& name, ElementType type,
                    const std::vector<std::int64_t>& dims);

}  // namespace backplane::cli
