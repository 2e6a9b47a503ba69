// What AMX's tiles are set up for: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, LDTILECFG.
#pragma once

#if defined(__x86_64__)
#include <cstdint>
#include <hwy/base.h>
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("amx-tile")
namespace backplane::cpu {

/// Bytes of a row and rows of each tile, as the processor reads them.
struct alignas(64) TileShapes {
  static constexpr int kTiles = 8;

  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  /// Without rows a tile is not used.
  void set(int tile, std::int64_t its_rows, std::int64_t bytes) {
    row_bytes[tile] = static_cast<std::uint16_t>(its_rows == 0 ? 0 : bytes);
    rows[tile] = static_cast<std::uint8_t>(its_rows);
  }
  HWY_INLINE void use() const {
    // GCC 12 tells its optimiser that the first eight bytes are read, and of no others.
    asm volatile("" : : "r"(this) : "memory");
    _tile_loadconfig(this);
  }
};

}  // namespace backplane::cpu
HWY_POP_ATTRIBUTES
#endif
