// The inner kernel of all matrix products and convolutions whose sums are fp32: a register tile of the product of a
// few rows, each given by pointers, with a panel of packed weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// One call of a tile kernel: out[i][j] = clamp(sum over taps t and depth k of
/// rows[t * row_pitch + i][offset + k] * panel[t][k][j] + bias[j] + residual[i][j]).
///
/// A matrix product has one tap; a convolution has one per kernel position, and a row is an output
/// pixel. Strides count floats. Nothing is owned.
///
/// Kernels of pairs take two numbers of bfloat16, the first one in the lower half, for a float of the rows and of the
/// panel: `depth` and `offset` count pairs, and a step of the depth adds both products.
struct TileArgs {
  const float* const* rows;
  ptrdiff_t row_pitch;
  ptrdiff_t offset;
  int64_t taps;
  int64_t depth;
  const void*
      panel;  // weights of the kernel's type, aligned to a vector of them, padded to whole vectors
  float* out;
  ptrdiff_t out_stride;
  int64_t width;          // columns of the panel that exist
  const float* bias;      // null: none
  const float* residual;  // null: none
  ptrdiff_t residual_stride;
  float lo;
  float hi;
  bool first;          // starts from the bias; otherwise goes on from what `out` holds
  bool last;           // adds the residual and clamps
  int64_t more_tiles;  // that follow this one's rows and are computed in the same call
};

constexpr int kMaxPanelVectors = 4;
constexpr int kMaxTileRows = 8;

/// The tile kernels of one instruction set.
struct TileKernels {
  using Function = void (*)(const TileArgs& args);
  int lanes;                           // floats in a vector
  int panel_vectors;                   // vectors in the widest panel
  bool takes_one_more;                 // whether a panel of one more is faster than one of one
  int max_rows[kMaxPanelVectors + 1];  // by the number of vectors in the panel
  // By the number of vectors and of rows. In the place of 0 rows: for a product's only row, which has too few sums to hide
  // how long an addition takes, and so adds into several, in another order.
  Function tile[kMaxPanelVectors + 1][kMaxTileRows + 1];
  // Of weights of float16 and of bfloat16, which are computed with in float; null where the set has no such loads.
  Function half_tile[kMaxPanelVectors + 1][kMaxTileRows + 1];
  Function bfloat_tile[kMaxPanelVectors + 1][kMaxTileRows + 1];
  // Of pairs; only where has_bfloat_products().
  Function pair_tile[kMaxPanelVectors + 1][kMaxTileRows + 1];
};

const TileKernels& tile_kernels(Isa isa);

}  // namespace backplane::cpu
