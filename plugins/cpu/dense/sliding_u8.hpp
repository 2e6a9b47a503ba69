// Convolutions of bytes that keep channels apart, with kernels of 3 x 3 positions that are neighbours along the width, where
// bytes are widened: a line at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/cpu/dense/tile_u8.hpp"

namespace backplane::cpu {

/// Pixels of a line of a convolution that keeps channels apart: sum[p][c] = start[c] +
/// sum over r, k of weight[r][k][c] and the number of channel c at column first + p * stride + k of line r, or of `zeros` where
/// there is no such column.
struct SlidingU8Args {
  const std::uint8_t* lines[3];
  std::ptrdiff_t steps[3];  // from column to column; 0 where `zeros` are the line
  const std::uint8_t* zeros;
  std::int64_t first;
  std::int64_t width;  // columns
  std::int64_t stride;
  std::int64_t pixels;
  const void* weights;  // of sliding_taps
  ColumnsU8 columns;
  const FinishU8* finish;
  void* out;  // dense
  std::int64_t channels;
};

/// Of at least KernelsU8::depthwise_channels channels, after KernelsU8::pack_depthwise of kSlidingTaps taps.
using SlideU8 = void (*)(const SlidingU8Args& args, bool x_signed);

/// Null: there is none, and KernelsU8::depthwise serves.
SlideU8 slide_u8(Isa isa);

/// What the 3 x 3 weights of a channel are packed as.
constexpr int kSlidingTaps = 12;
void sliding_taps(const std::int8_t* weights, std::int8_t* taps);

}  // namespace backplane::cpu
