// The data transforms of Winograd's minimal filtering F(4x4, 3x3): Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks", arXiv:1509.09308, with the points 0, 1, -1, 2, -2 and infinity.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

constexpr int64_t kWinogradIn = 6;   // a tile reads 6x6 pixels
constexpr int64_t kWinogradOut = 4;  // and makes 4x4
constexpr int64_t kWinogradPoints = kWinogradIn * kWinogradIn;

/// A tile's pixels: `first` is pixel (0, 0), which may lie outside of the image; only rows [y_begin,
/// y_end) and columns [x_begin, x_end) of the tile exist, the rest counts as zero. Strides in floats.
struct WinogradTile {
  int64_t height_stride;
  int64_t width_stride;
  int64_t y_begin, y_end;
  int64_t x_begin, x_end;
};

struct WinogradKernels {
  /// points[p * point_stride + c] = (B^T d B)[p] for all channels c.
  void (*input)(const WinogradTile& tile, const float* first, int64_t channels, float* points,
                int64_t point_stride);
  /// y(pixel)[c] = min(max((A^T m A)(pixel) + bias[c] + residual(pixel)[c], lo), hi) for the pixels of the
  /// tile that exist (rows and columns from 0). `bias` and `residual` may be null.
  void (*output)(const WinogradTile& tile, const float* points, int64_t point_stride,
                 const float* bias, const float* residual, const WinogradTile& residual_tile,
                 float lo, float hi, int64_t channels, float* y);
};

const WinogradKernels& winograd_kernels(Isa isa);

/// The transform G w G^T of 16 3x3 filters at a time: u[p * point_stride + f] of w[tap][f].
constexpr int64_t kWinogradFilters = 16;
void winograd_filters(const float (*w)[kWinogradFilters], float* u, int64_t point_stride);

}  // namespace backplane::cpu
