// The data transforms of Winograd's F(2x2, 3x3) on bytes: Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks", arXiv:1509.09308. With the filters' transform doubled in both directions all numbers are whole: pixels take
// 10 bits and a sign, weights 11 and one, and four times the sums of the convolution come out, exactly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/cpu/dense/tile_u8.hpp"

namespace backplane::cpu {

constexpr std::int64_t kWinogradInU8 = 4;   // a tile reads 4x4 pixels
constexpr std::int64_t kWinogradOutU8 = 2;  // and makes 2x2
constexpr std::int64_t kWinogradPointsU8 = kWinogradInU8 * kWinogradInU8;

/// Sums of a tile in a panel's columns, and where the pixels go that they become.
struct WinogradOutputU8 {
  const std::int32_t* points;  // [point][point_stride], by lanes
  std::ptrdiff_t point_stride;
  ColumnsU8 columns;  // of sums that are four times as large
  const FinishU8* finish;
  std::int64_t width;   // columns that exist
  std::int64_t rows;    // of pixels that exist, 1 or 2
  std::int64_t pixels;  // of a row
  char* out;            // of the first pixel
  std::ptrdiff_t row_bytes, pixel_bytes;
};

struct WinogradKernelsU8 {
  /// points[p * point_stride + c] = (B^T d B)[p] for all channels c, 16 or more; d[i] is at rows[i * pitch], of signed
  /// bytes 128 more.
  void (*input)(const std::uint8_t* const* rows, std::ptrdiff_t pitch, std::int64_t channels,
                bool x_signed, std::int16_t* points, std::ptrdiff_t point_stride);
  void (*output)(const WinogradOutputU8& args);
};

const WinogradKernelsU8& winograd_kernels_u8(Isa isa);

/// 4 G w G^T of a 3x3 filter.
void winograd_filter_u8(const std::int8_t (&w)[9], std::int16_t (&u)[kWinogradPointsU8]);

}  // namespace backplane::cpu
