// Dims and axes, as the data movement operators need them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"

namespace backplane::cpu {

using common::dense_strides;
using common::normalize_axis;

/// One flag per dimension, set for those named; none may be named twice.
inline std::vector<bool> axis_flags(const std::vector<std::int64_t>& axes, int rank) {
  std::vector<bool> chosen(static_cast<std::size_t>(rank), false);
  for (const int axis : common::normalize_axes(axes, rank))
    chosen[static_cast<std::size_t>(axis)] = true;
  return chosen;
}

/// The product of dims[begin..end).
inline std::int64_t dims_product(sdk::DimsView dims, std::size_t begin, std::size_t end) {
  return common::product(dims, static_cast<int>(begin), static_cast<int>(end));
}

inline sdk::Dims to_dims(sdk::DimsView dims) { return sdk::Dims(dims.begin(), dims.end()); }

/// A view makes sense only where the host can point into memory.
inline bool has_memory(sdk::DataType type) { return type != sdk::DataType::String; }

}  // namespace backplane::cpu
