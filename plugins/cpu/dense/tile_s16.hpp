// The inner loops of integer products: 8-bit numbers without their zero points, held in 16 bits, multiplied
// in pairs and summed in 32 bits. Sums are exact as long as they fit 32 bits and wrap beyond.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// One call of a tile kernel: out[i][j] = sum over taps t and pairs p of
/// rows[t * row_pitch + i][offset + 2p] * panel[t][p][j][0] + rows[...][offset + 2p + 1] * panel[t][p][j][1].
struct TileS16Args {
  const std::int16_t* const* rows;
  std::ptrdiff_t row_pitch;
  std::ptrdiff_t offset;
  std::int64_t taps;
  std::int64_t pairs;
  const std::int16_t* panel;
  std::int32_t* out;
  std::ptrdiff_t out_stride;
  std::int64_t width;  // columns of the panel that exist
};

/// out[c] = sum over taps t of rows[t][c] * weights[t * channels + c].
struct ChannelSums {
  const std::int16_t* const* rows;
  std::int64_t taps;
  const std::int16_t* weights;
  std::int64_t channels;
  std::int32_t* out;
};

/// y[i] = clamp(round(x[i] * scale[i * scale_step] * factor) + zero_point, least, most), to nearest even.
struct Requantize {
  const double* scale;
  std::int64_t scale_step;
  double factor;
  std::int32_t zero_point;
  std::int32_t least;
  std::int32_t most;
};

constexpr int kMaxIntegerRows = 8;

struct IntegerKernels {
  using Tile = void (*)(const TileS16Args& args);
  int panel_columns;
  int max_rows;
  Tile tile[kMaxIntegerRows + 1];  // by the number of rows
  void (*channel_sums)(const ChannelSums& args);
  /// y[i] = x[i] - zero.
  void (*widen_u8)(const std::uint8_t* x, std::int16_t* y, std::int64_t n, std::int16_t zero);
  void (*widen_s8)(const std::int8_t* x, std::int16_t* y, std::int64_t n, std::int16_t zero);
  void (*narrow)(const Requantize& args, const std::int32_t* x, std::uint8_t* y, std::int64_t n);
};

const IntegerKernels& integer_kernels(Isa isa);

}  // namespace backplane::cpu
