// The rows of a convolution as a product: output pixels, each given by a pointer for every kernel position.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "plugins/cpu/dense/conv_geometry.hpp"
#include "plugins/cpu/dense/layout_copy.hpp"
#include "plugins/cpu/dense/product.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {

/// Calls line(image, z, y, x, first, count) for the parts of rows [row, row + rows) that lie in one output
/// line each: pixels x to x + count of the line, rows first to first + count.
template <class Line>
void for_each_line(const Window& window, int64_t row, int64_t rows, const Line& line) {
  const auto& out = window.out;
  int64_t x = row % out[2];
  int64_t y = row / out[2] % out[1];
  int64_t z = row / (out[2] * out[1]) % out[0];
  int64_t image = row / (out[2] * out[1] * out[0]);
  for (int64_t i = 0; i < rows;) {
    const int64_t count = std::min(rows - i, out[2] - x);
    line(image, z, y, x, i, count);
    i += count;
    x = 0;
    if (++y < out[1]) continue;
    y = 0;
    if (++z < out[0]) continue;
    z = 0;
    ++image;
  }
}

/// Where the product's rows, the pixels of `batch` images of these extents, go.
inline OutLines out_lines(const std::array<int64_t, 3>& extents, int64_t batch,
                          const ImageStrides& strides) {
  const int64_t line = extents[2] * strides.width;
  const bool follow = (extents[1] == 1 || strides.height == line) &&
                      (extents[0] == 1 || strides.depth == extents[1] * line) &&
                      (batch == 1 || strides.batch == extents[0] * extents[1] * line);
  if (follow) return {};
  return {extents[2], extents[1], extents[0], strides.height, strides.depth, strides.batch};
}

/// A channels-last image batch whose pixels are the rows of a product.
template <class T>
struct RowSource {
  const Window& window;
  const T* x;
  ImageStrides strides;
};

/// Writes the pointers of one kernel position for a run of output pixels; `zeros` stands for padding.
template <class T>
void fill_tap(const T** table, const RowSource<T>& source, const T* zeros,
              const std::array<int64_t, 3>& tap, int64_t row, int64_t rows) {
  const Window& window = source.window;
  const ImageStrides& strides = source.strides;
  const int64_t dz = tap[0] * window.dilation[0] - window.pad_begin[0];
  const int64_t dy = tap[1] * window.dilation[1] - window.pad_begin[1];
  const int64_t dx = tap[2] * window.dilation[2] - window.pad_begin[2];
  const int64_t stride = window.stride[2];
  // Pixels [inside_begin, inside_end) of a line have this position inside of the image along the width.
  const int64_t inside_begin = ceil_div(-dx, stride);
  const int64_t inside_end = ceil_div(window.in[2] - dx, stride);
  for_each_line(
      window, row, rows,
      [&](int64_t image, int64_t oz, int64_t oy, int64_t ox, int64_t first, int64_t count) {
        const int64_t z = oz * window.stride[0] + dz;
        const int64_t y = oy * window.stride[1] + dy;
        const T** to = table + first;
        if (z < 0 || z >= window.in[0] || y < 0 || y >= window.in[1]) {
          std::fill(to, to + count, zeros);
          return;
        }
        const T* line = source.x + image * strides.batch + z * strides.depth + y * strides.height;
        const int64_t begin = std::clamp<int64_t>(inside_begin - ox, 0, count);
        const int64_t end = std::clamp<int64_t>(inside_end - ox, begin, count);
        std::fill(to, to + begin, zeros);
        const T* pixel = line + ((ox + begin) * stride + dx) * strides.width;
        for (int64_t i = begin; i < end; ++i, pixel += stride * strides.width) to[i] = pixel;
        std::fill(to + end, to + count, zeros);
      });
}

/// Writes the pointers of output pixels [row, row + count): table[t * pitch + i] for kernel position t of pixel
/// row + i.
template <class T>
void fill_taps(const T** table, int64_t pitch, const RowSource<T>& source, const T* zeros,
               int64_t row, int64_t count) {
  const std::array<int64_t, 3>& kernel = source.window.kernel;
  for (int64_t z = 0; z < kernel[0]; ++z) {
    for (int64_t y = 0; y < kernel[1]; ++y) {
      for (int64_t x = 0; x < kernel[2]; ++x, table += pitch) {
        fill_tap(table, source, zeros, {z, y, x}, row, count);
      }
    }
  }
}

}  // namespace backplane::cpu
