// How items of a group share rows, for the kernels of kernels/rows.hpp: chosen by the rows' number and length.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "plugins/common/device_ops/kernel.hpp"

namespace backplane::device_ops {

inline std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The least power of two that is not below `least`.
inline std::int64_t power_from(std::int64_t least) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

/// `rows` of `n` elements each. A row is folded by `lanes` items; `group_items` / `lanes` rows share a group. See
/// kernels/rows.hpp for what the rest means there.
struct RowForm {
  std::int64_t rows = 1, n = 1;
  bool is_across = false;
  std::int64_t lanes = 1, group_items = 1;
  std::int64_t width = 1;  ///< V
  std::int64_t held = 0;   ///< HELD
  std::int64_t parts = 1;
  std::int64_t part_n = 1;  ///< elements of a part; the last may have fewer
  DataType type = DataType::Float;

  std::int64_t group_rows() const { return group_items / lanes; }
  /// Elements of a workspace that keeps one number a part.
  std::int64_t part_count() const { return rows * parts; }
  /// The definitions and functions that stand before a kernel.
  std::string functions() const;
  /// The first statements of a kernel: what lane and row of which part the item is.
  std::string beginning() const;
};

struct RowsWanted {
  std::int64_t rows = 1, n = 1;
  DataType type = DataType::Float;  ///< of the elements that are read
  bool is_across = false;           ///< neighbouring rows, not elements, are neighbours in memory
  bool is_dense = false;  ///< rows stand one behind the other, so that 16 bytes can be read at once
  bool holds = false;     ///< the kernel reads elements more than once
  bool may_divide = false;  ///< it has phases
  bool is_made = false;     ///< elements are computed from several operands
};

/// At least one row of at least one element.
RowForm choose_rows(const Device& device, const RowsWanted& wanted);

/// Whether items of this device share rows: where an item has a core to itself, they do not.
inline bool shares_rows(const Device& device) { return !device.limits().is_processor; }

/// How many of `outputs` channels an item computes at each of so many places, where what it reads serves them all: as many as leave
/// items enough, a power of two up to `most`.
inline std::int64_t outputs_at_once(const Device& device, std::int64_t outputs, std::int64_t most,
                                    std::int64_t places) {
  constexpr std::int64_t kManyItems = 1 << 16;
  std::int64_t width = std::min(most, power_from(outputs));
  while (shares_rows(device) && width > 1 && places * ceil_divide(outputs, width) < kManyItems)
    width /= 2;
  return width;
}

}  // namespace backplane::device_ops
