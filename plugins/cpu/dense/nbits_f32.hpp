// Loops over packed weights of 4 or 8 bits that compute in float.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/dense/nbits.hpp"

namespace backplane::cpu {

/// Rows that a pass over the weights serves at most.
constexpr int kThinRows = 4;

/// Rows as `thin` reads them: padded with zeros to whole eights, those of a pass side by side, and the sum of each
/// block of a row.
struct ThinRows {
  float* x = nullptr;     // of each pass [layout.padded_depth() / 8][its rows][8]
  float* sums = nullptr;  // [rows][layout.blocks()]
};

struct NBitsKernels {
  /// Fills in `to` from `rows` rows of the layout's depth, `stride` floats apart.
  void (*spread_rows)(const NBitsLayout& layout, const float* x, std::int64_t stride,
                      std::int64_t rows, const ThinRows& to);
  /// out[i][j] = sum over k of row i's x[k] * weight[k][j] for up to kThinRows rows and all columns of a panel, those
  /// that do not exist too. Rows of `out` are a panel's columns apart.
  void (*thin)(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
               const ThinRows& rows, int count, float* out);
  /// Writes `steps` steps from `first`, a multiple of 8, of a panel as floats: to[step][column]. Writes whole eights.
  void (*unpack)(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
                 std::int64_t first, std::int64_t steps, float* to);
};

const NBitsKernels& nbits_kernels(Isa isa);

}  // namespace backplane::cpu
