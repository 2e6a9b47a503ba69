// How rows are cut into tiles: of nearly equal height, so that none is so low that it computes little for the weights it reads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {

/// Calls body(first, height, count) for `count` tiles of `height` rows each, from row `first` on, until all `rows` are in
/// one. No tile is higher than `tallest`; `count` is at most `most`, for kernels that compute several tiles in a call.
template <class Body>
void for_equal_tiles(std::int64_t rows, std::int64_t tallest, std::int64_t most, const Body& body) {
  if (rows == 0) return;
  if (rows <= tallest) return body(0, rows, 1);
  const std::int64_t tiles = ceil_div(rows, tallest);
  const std::int64_t least = rows / tiles;
  const std::int64_t higher = rows - least * tiles;  // tiles of one row more
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < tiles;) {
    const std::int64_t height = i < higher ? least + 1 : least;
    const std::int64_t count = std::min(most, (i < higher ? higher : tiles) - i);
    body(first, height, count);
    first += height * count;
    i += count;
  }
}

}  // namespace backplane::cpu
