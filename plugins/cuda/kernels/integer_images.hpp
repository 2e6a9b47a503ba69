// Images and filters of eight bits as a library convolves them, as text for kernels: see ../integer_images.hpp.
#pragma once

namespace backplane::cuda {

/// An image channels last, moved and padded. A group of 64 x 4 items moves 64 points of 32 channels by way of local memory:
/// reads are neighbours along the points, writes along the channels. FLIP: 128 for unsigned elements, which become signed ones
/// 128 smaller; ZERO: the zero point, which fills the padding. Channels that are there for whole words are zero.
inline constexpr char kLayImage[] = R"kernel(
KERNEL run(IN(u8, x), IN(u8, zero), OUT(u32, y), i64 in_0, i64 in_1, i64 in_2, i64 b_0, i64 b_1,
           i64 b_2, i64 p_1, i64 p_2, i64 points, i64 channels, i64 laid_channels, i64 groups) {
  AT(x);
  AT(zero);
  AT(y);
  LOCAL u8 tile[32][68];
  int across = LOCAL_ID(0), down = LOCAL_ID(1);
  int words = (int)(groups * laid_channels) / 4, first_word = (int)GROUP_ID(1) * 8;
  i64 image = GLOBAL_ID(2), first = (i64)GROUP_ID(0) * 64, point = first + across;
  i64 z = point / (p_1 * p_2) - b_0, v = point / p_2 % p_1 - b_1, u = point % p_2 - b_2;
  i64 at = (z * in_1 + v) * in_2 + u, plane = in_0 * in_1 * in_2;
  int is_inside = point < points && z >= 0 && z < in_0 && v >= 0 && v < in_1 && u >= 0 && u < in_2;
  u8 padding = (u8)((u8)ZERO ^ FLIP);
  for (int i = down; i < 32; i += 4) {
    int channel = first_word * 4 + i, of_group = channel % (int)laid_channels;
    i64 from = (image * groups + channel / (int)laid_channels) * channels + of_group;
    u8 byte = 0;
    if (channel < words * 4 && of_group < channels) {
      byte = padding;
      if (is_inside) byte = (u8)(LOAD(u8, x, from * plane + at) ^ FLIP);
    }
    tile[i][across] = byte;
  }
  BARRIER;
  for (int i = down * 64 + across; i < 512; i += 256) {
    int word = i % 8, to = i / 8;
    u32 bits = 0;
    for (int j = 0; j < 4; ++j) bits |= (u32)tile[word * 4 + j][to] << (8 * j);
    if (first_word + word < words && first + to < points)
      STORE(u32, y, (image * points + first + to) * words + first_word + word, bits);
  }
}
)kernel";

/// Filters channels last, a work item four channels of a tap. One filter of each group may be of ones: what it makes are the
/// sums of windows.
inline constexpr char kLayFiltersBody[] = R"kernel(
  i64 group = i2 / laid_filters, filter = i2 % laid_filters;
  u32 bits = 0;
  for (int j = 0; j < 4; ++j) {
    i64 channel = i0 * 4 + j;
    if (channel >= channels) continue;
    u32 byte = filter == ones ? 1 : 0;
    if (filter < filters)
      byte = (u32)(u8)(LOAD(u8, w, ((group * filters + filter) * channels + channel) * taps + i1) ^ FLIP);
    bits |= byte << (8 * j);
  }
  STORE(u32, y, (i2 * taps + i1) * words + i0, bits);
)kernel";

}  // namespace backplane::cuda
