#include "plugins/cpu/dense/layout_copy.hpp"

#include <algorithm>
#include <cstring>

namespace backplane::cpu {
namespace {

/// One image line, channels-first planes to channels-last pixels.
template <int kChannels>
void interleave(const float* x, int64_t plane, int64_t channels, int64_t width, float* out) {
  const int64_t count = kChannels > 0 ? kChannels : channels;
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t c = 0; c < count; ++c) out[i * count + c] = x[c * plane + i];
  }
}

void interleave_line(const float* x, int64_t plane, int64_t channels, int64_t width, float* out) {
  switch (channels) {
    case 1:
      return interleave<1>(x, plane, channels, width, out);
    case 3:
      return interleave<3>(x, plane, channels, width, out);
    case 4:
      return interleave<4>(x, plane, channels, width, out);
    default:
      return interleave<0>(x, plane, channels, width, out);
  }
}

void copy_line(const PaddedCopy& copy, const float* x, int64_t image, int64_t z, int64_t y,
               float* out) {
  const int64_t channels = copy.channels;
  if (copy.x_channels_first) {
    const int64_t plane = copy.in[0] * copy.in[1] * copy.in[2];
    const float* from = x + image * channels * plane + (z * copy.in[1] + y) * copy.in[2];
    interleave_line(from, plane, channels, copy.in[2], out);
    return;
  }
  const ImageStrides& strides = copy.x_strides;
  const float* from = x + image * strides.batch + z * strides.depth + y * strides.height;
  if (strides.width == channels) {
    std::memcpy(out, from, static_cast<std::size_t>(copy.in[2] * channels) * 4);
    return;
  }
  for (int64_t i = 0; i < copy.in[2]; ++i) {
    std::memcpy(out + i * channels, from + i * strides.width,
                static_cast<std::size_t>(channels) * 4);
  }
}

/// Tiles of 16 by 16 keep the cache lines of both sides in the first-level cache.
template <class T>
void transpose_tile(const T* x, T* y, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  constexpr int64_t kTile = 16;
  const int64_t row_end = std::min(rows, row + kTile);
  const int64_t column_end = std::min(columns, column + kTile);
  for (int64_t c = column; c < column_end; ++c) {
    for (int64_t r = row; r < row_end; ++r) y[c * rows + r] = x[r * columns + c];
  }
}

template <class T>
void transpose(const void* from, void* to, int64_t batch, int64_t rows, int64_t columns,
               const sdk::Threads& threads) {
  constexpr int64_t kTile = 16;
  constexpr uint64_t kGrainElements = 16384;
  const int64_t bands = (columns + kTile - 1) / kTile;
  const uint64_t grain =
      kGrainElements / static_cast<uint64_t>(std::max<int64_t>(1, rows * kTile)) + 1;
  threads.parallel_for(
      static_cast<uint64_t>(batch * bands), grain, [&](uint64_t begin, uint64_t end, uint32_t) {
        for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
          const int64_t image = i / bands;
          const T* x = static_cast<const T*>(from) + image * rows * columns;
          T* y = static_cast<T*>(to) + image * rows * columns;
          for (int64_t row = 0; row < rows; row += kTile) {
            transpose_tile(x, y, rows, columns, row, i % bands * kTile);
          }
        }
      });
}

}  // namespace

void padded_copy(const PaddedCopy& copy, const float* x, float* out, const sdk::Threads& threads) {
  const int64_t lines = copy.batch * copy.out[0] * copy.out[1];
  const int64_t line_floats = copy.out[2] * copy.channels;
  const uint64_t grain = 8192 / static_cast<uint64_t>(std::max<int64_t>(1, line_floats)) + 1;
  threads.parallel_for(
      static_cast<uint64_t>(lines), grain, [&](uint64_t begin, uint64_t end, uint32_t) {
        for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
          const int64_t y = i % copy.out[1] - copy.begin[1];
          const int64_t z = i / copy.out[1] % copy.out[0] - copy.begin[0];
          const int64_t image = i / (copy.out[1] * copy.out[0]);
          float* line = out + i * line_floats;
          if (z < 0 || z >= copy.in[0] || y < 0 || y >= copy.in[1]) {
            std::fill(line, line + line_floats, 0.0f);
            continue;
          }
          float* first = line + copy.begin[2] * copy.channels;
          float* last = first + copy.in[2] * copy.channels;
          std::fill(line, first, 0.0f);
          copy_line(copy, x, image, z, y, first);
          std::fill(last, line + line_floats, 0.0f);
        }
      });
}

void transpose_planes(const void* x, void* y, int64_t batch, int64_t rows, int64_t columns,
                      int element_bytes, const sdk::Threads& threads) {
  if (rows == 1 || columns == 1) {
    std::memcpy(y, x, static_cast<std::size_t>(batch * rows * columns * element_bytes));
    return;
  }
  switch (element_bytes) {
    case 1:
      return transpose<uint8_t>(x, y, batch, rows, columns, threads);
    case 2:
      return transpose<uint16_t>(x, y, batch, rows, columns, threads);
    case 4:
      return transpose<uint32_t>(x, y, batch, rows, columns, threads);
    case 8:
      return transpose<uint64_t>(x, y, batch, rows, columns, threads);
    default:
      sdk::unsupported("elements of ", element_bytes, " bytes cannot be transposed");
  }
}

}  // namespace backplane::cpu
