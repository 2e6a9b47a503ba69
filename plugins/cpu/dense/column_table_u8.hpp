// What lies behind packed weights of bytes: the numbers that finish the sums of their columns.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/tile_u8.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {

/// Three arrays by lanes, one behind another. Nothing is owned.
struct ColumnTableU8 {
  std::int32_t* start;
  float* scale;
  float* shift;

  /// The table of weights that take `weight_bytes`.
  static ColumnTableU8 behind(void* packed, std::uint64_t weight_bytes, std::int64_t lanes) {
    auto* start =
        reinterpret_cast<std::int32_t*>(static_cast<char*>(packed) + align64(weight_bytes));
    auto* scale = reinterpret_cast<float*>(start + lanes);
    return {start, scale, scale + lanes};
  }
  /// Likewise, to be read alone.
  static ColumnsU8 behind(const void* packed, std::uint64_t weight_bytes, std::int64_t lanes) {
    const ColumnTableU8 table = behind(const_cast<void*>(packed), weight_bytes, lanes);
    return {table.start, table.scale, table.shift};
  }
  /// The bytes of weights and table.
  static std::uint64_t end(std::uint64_t weight_bytes, std::int64_t lanes) {
    return align64(weight_bytes) + static_cast<std::uint64_t>(lanes) * 12;
  }

  void set(std::int64_t lane, std::int32_t its_start, float its_scale, float its_shift) const {
    start[lane] = its_start;
    scale[lane] = its_scale;
    shift[lane] = its_shift;
  }
};

}  // namespace backplane::cpu
