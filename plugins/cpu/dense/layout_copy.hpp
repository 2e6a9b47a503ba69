// Copies between channels-first and channels-last images.
#pragma once

#include <array>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// Strides of a channels-last image batch [batch, depth, height, width, channels], in floats; channels
/// are dense.
struct ImageStrides {
  int64_t batch = 0;
  int64_t depth = 0;
  int64_t height = 0;
  int64_t width = 0;

  static ImageStrides dense(const std::array<int64_t, 3>& extents, int64_t channels) {
    const int64_t row = extents[2] * channels;
    return {extents[0] * extents[1] * row, extents[1] * row, row, channels};
  }
};

/// A copy of images into a larger frame of zeros, dense and channels last. Extents are [depth, height,
/// width].
struct PaddedCopy {
  int64_t batch = 1;
  int64_t channels = 1;
  std::array<int64_t, 3> in{1, 1, 1};
  std::array<int64_t, 3> out{1, 1, 1};    // of the frame
  std::array<int64_t, 3> begin{0, 0, 0};  // where the image starts in it
  ImageStrides x_strides;
  Isa isa = Isa::kBaseline;
  bool x_channels_first = false;  // x is a dense [batch, channels, spatial ...] instead
};
void padded_copy(const PaddedCopy& copy, const float* x, float* out, const sdk::Threads& threads);

/// [batch, rows, columns] to [batch, columns, rows], of elements of 1, 2, 4 or 8 bytes. Channels-first
/// images become channels-last with rows = channels and columns = pixels, and back the other way round.
void transpose_planes(Isa isa, const void* x, void* y, int64_t batch, int64_t rows, int64_t columns,
                      int element_bytes, const sdk::Threads& threads);

}  // namespace backplane::cpu
