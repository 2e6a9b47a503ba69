// Products of pairs of bfloat16 numbers by the tiles of AMX: many rows at a time with a panel of packed weights.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/tile_f32.hpp"

namespace backplane::cpu {

/// As TileKernels::pair_tile, for panels of any number of vectors and for any number of rows; `more_tiles` counts for nothing.
/// A row's sums do not depend on what other rows are in the call, and are made in another order than those of pair_tile.
struct HighTiles {
  void (*tile)(const TileArgs& args, int64_t rows, int vectors);
  /// Rounds n floats to bfloat16, to nearest even; what is denormal is 0, as it is to the products.
  void (*round)(const float* from, void* to, int64_t n);
};

/// Null where `isa` is not kAmx.
const HighTiles* high_tiles(Isa isa);

/// Rows that a call's registers hold: calls are best of multiples of them.
constexpr int64_t kHighTileRows = 32;

}  // namespace backplane::cpu
