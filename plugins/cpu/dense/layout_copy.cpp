#include "plugins/cpu/dense/layout_copy.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/kernels/transpose_tile.hpp"

namespace backplane::cpu {
namespace {

void copy_line(const PaddedCopy& copy, const float* x, int64_t image, int64_t z, int64_t y,
               float* out) {
  const int64_t channels = copy.channels;
  if (copy.x_channels_first) {
    const int64_t plane = copy.in[0] * copy.in[1] * copy.in[2];
    const float* from = x + image * channels * plane + (z * copy.in[1] + y) * copy.in[2];
    transpose_tile(copy.isa, 4, reinterpret_cast<const char*>(from), plane * 4,
                   reinterpret_cast<char*>(out), channels * 4, copy.in[2], channels);
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

void transpose_planes(Isa isa, const void* x, void* y, int64_t batch, int64_t rows, int64_t columns,
                      int element_bytes, const sdk::Threads& threads) {
  const int64_t plane_bytes = rows * columns * element_bytes;
  if (batch * plane_bytes == 0) return;
  if (rows == 1 || columns == 1) {
    std::memcpy(y, x, static_cast<std::size_t>(batch * plane_bytes));
    return;
  }
  if (element_bytes > 8)
    sdk::unsupported("elements of ", element_bytes, " bytes cannot be transposed");
  // Bands of a cache line of a row; a thread takes runs of them.
  constexpr uint64_t kGrainBytes = 65536;
  const int64_t band = 64 / element_bytes;
  const int64_t bands = (columns + band - 1) / band;
  const uint64_t grain = kGrainBytes / static_cast<uint64_t>(std::max<int64_t>(1, rows * 64)) + 1;
  threads.parallel_for(
      static_cast<uint64_t>(batch * bands), grain, [&](uint64_t begin, uint64_t end, uint32_t) {
        for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end);) {
          const int64_t image = i / bands;
          const int64_t run = std::min(static_cast<int64_t>(end) - i, bands - i % bands);
          const int64_t first = i % bands * band;
          const int64_t count = std::min(columns - first, run * band);
          transpose_tile(isa, element_bytes,
                         static_cast<const char*>(x) + image * plane_bytes + first * element_bytes,
                         columns * element_bytes,
                         static_cast<char*>(y) + image * plane_bytes + first * rows * element_bytes,
                         rows * element_bytes, count, rows);
          i += run;
        }
      });
}

}  // namespace backplane::cpu
