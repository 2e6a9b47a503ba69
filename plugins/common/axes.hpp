// Axes as ONNX's attributes give them: negative ones count from the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::common {

/// `axis` in [0, rank). Errors: BP_INVALID_ARGUMENT when it is outside [-rank, rank).
inline int normalize_axis(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    sdk::invalid("axis ", axis, " is out of range for rank ", rank, "; it must be in [", -rank,
                 ", ", rank - 1, "]");
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

/// Each axis in [0, rank), ascending. Errors: as above, and an axis that is given twice.
inline std::vector<int> normalize_axes(const std::vector<std::int64_t>& axes, int rank) {
  std::vector<int> result;
  result.reserve(axes.size());
  for (const std::int64_t axis : axes) result.push_back(normalize_axis(axis, rank));
  std::sort(result.begin(), result.end());
  const auto twice = std::adjacent_find(result.begin(), result.end());
  if (twice != result.end()) sdk::invalid("axis ", *twice, " is given twice");
  return result;
}

/// The product of dims[begin, end).
inline std::int64_t product(sdk::DimsView dims, int begin, int end) {
  std::uint64_t count = 1;  // where there are no elements the other dims may be any, and wrap
  for (int axis = begin; axis < end; ++axis)
    count *= static_cast<std::uint64_t>(dims[static_cast<std::size_t>(axis)]);
  return static_cast<std::int64_t>(count);
}

/// Row-major strides, in elements.
inline std::vector<std::int64_t> dense_strides(sdk::DimsView dims) {
  std::vector<std::int64_t> strides(dims.size());
  std::uint64_t stride = 1;  // as above
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    strides[axis] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(dims[axis]);
  }
  return strides;
}

}  // namespace backplane::common
