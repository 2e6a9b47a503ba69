// Operands of eight bits as lines of int8 that a library multiplies, as text for kernels: see ../integer_lines.hpp.
#pragma once

namespace backplane::cuda {

/// A work item lays out four elements: x's element k of line l of matrix m is at m * matrix_step + l * line_step +
/// k * step. FLIP: 128 for unsigned elements, which become signed ones 128 smaller.
inline constexpr char kLayOutBody[] = R"kernel(
  u32 bits = 0;
  for (int j = 0; j < 4; ++j) {
    i64 k = i0 * 4 + j;
    if (i1 < lines && k < depth)
      bits |= (u32)(u8)(LOAD(u8, x, i2 * matrix_step + i1 * line_step + k * step) ^ FLIP) << (8 * j);
  }
  STORE(u32, y, (i2 * out_lines + i1) * words + i0, bits);
)kernel";

/// The same of the windows of images: a line is a point of the output and holds what its window covers, in the order of
/// the weights; what is in the padding is the zero point.
inline constexpr char kWindowsBody[] = R"kernel(
  i64 image = i2 % images + first_image, group = i2 / images, taps = k_0 * k_1 * k_2;
  i64 oz = i1 / (out_1 * out_2), oy = i1 / out_2 % out_1, ox = i1 % out_2;
  i64 plane = image * channels + group * group_channels;
  u32 padding = (u32)(u8)((u8)ZERO ^ FLIP), bits = 0;
  for (int j = 0; j < 4; ++j) {
    i64 k = i0 * 4 + j;
    if (i1 >= points || k >= group_channels * taps) continue;
    i64 tap = k % taps;
    i64 z = oz * s_0 - b_0 + tap / (k_1 * k_2) * d_0;
    i64 v = oy * s_1 - b_1 + tap / k_2 % k_1 * d_1;
    i64 u = ox * s_2 - b_2 + tap % k_2 * d_2;
    u32 byte = padding;
    if (z >= 0 && z < in_0 && v >= 0 && v < in_1 && u >= 0 && u < in_2)
      byte = (u32)(u8)(LOAD(u8, x, (((plane + k / taps) * in_0 + z) * in_1 + v) * in_2 + u) ^ FLIP);
    bits |= byte << (8 * j);
  }
  STORE(u32, y, (i2 * out_lines + i1) * words + i0, bits);
)kernel";

/// The words of four elements of int8 that the next two kernels add.
inline constexpr char kBytesOfWords[] = R"kernel(
#define BYTE(bits, j) ((i32)(i8)(u8)((bits) >> (8 * (j))))
)kernel";

/// The sums of lines, a group of 64 items a line.
inline constexpr char kLineSums[] = R"kernel(
KERNEL run(IN(u32, x), OUT(i32, y), i64 words) {
  AT(x);
  AT(y);
  LOCAL i32 part[64];
  i64 line = GROUP_ID(0);
  int item = LOCAL_ID(0);
  i32 sum = 0;
  for (i64 i = item; i < words; i += 64) {
    u32 bits = LOAD(u32, x, line * words + i);
    sum += BYTE(bits, 0) + BYTE(bits, 1) + BYTE(bits, 2) + BYTE(bits, 3);
  }
  part[item] = sum;
  for (int half = 32; half > 0; half /= 2) {
    BARRIER;
    if (item < half) part[item] += part[item + half];
  }
  if (item == 0) STORE(i32, y, line, part[0]);
}
)kernel";

/// Products of lines where the library has no algorithm: a group of 16 x 16 computes as many sums.
inline constexpr char kLineProduct[] = R"kernel(
KERNEL run(IN(u32, a), IN(u32, b), OUT(i32, y), i64 rows, i64 columns, i64 out_columns, i64 words,
           i64 a_step, i64 b_step, i64 y_step) {
  AT(a);
  AT(b);
  AT(y);
  LOCAL u32 tile_a[16][17];
  LOCAL u32 tile_b[16][17];
  int across = LOCAL_ID(0), down = LOCAL_ID(1);
  i64 batch = GLOBAL_ID(2);
  i64 row = (i64)GROUP_ID(1) * 16 + down, column = (i64)GROUP_ID(0) * 16 + across;
  i64 b_line = (i64)GROUP_ID(0) * 16 + down;
  u32 sum = 0;
  for (i64 first = 0; first < words; first += 16) {
    i64 i = first + across;
    tile_a[down][across] = row < rows && i < words ? LOAD(u32, a, batch * a_step + row * words + i) : 0;
    tile_b[down][across] =
        b_line < columns && i < words ? LOAD(u32, b, batch * b_step + b_line * words + i) : 0;
    BARRIER;
    for (int k = 0; k < 16; ++k) {
      u32 left = tile_a[down][k], right = tile_b[across][k];
      for (int j = 0; j < 4; ++j) sum += (u32)(BYTE(left, j) * BYTE(right, j));
    }
    BARRIER;
  }
  if (row < rows && column < columns)
    STORE(i32, y, batch * y_step + row * out_columns + column, (i32)sum);
}
)kernel";

}  // namespace backplane::cuda
