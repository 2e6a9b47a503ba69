// Convolutions of images of up to four channels by matrix units, as text for kernels: see ../few_channels.hpp.
#pragma once

namespace backplane::cuda {

/// A group has a patch of the image in local memory, a pixel of four channels in 8 bytes, for WARPS x TILES rows of 16 results, and
/// all weights of 16 x SLICES filters, for as many such tiles as it comes to. The weights are the unit's left matrix, a row a filter, and
/// pixels its right one, a column a result. A step is four taps of the window: of both matrices lane t of four has elements 2t, 2t + 1,
/// 2t + 8 and 2t + 9 along the depth, which here are the four channels of tap t, so that a pixel is read into the words that the unit
/// takes. Which filter is which row is free, too: those of a lane are such that its results lie together, as do those of its neighbours.
inline constexpr char kFewChannels[] = R"kernel(
#define TAPS (ROWS * COLUMNS)
#define STEPS ((TAPS + 3) / 4)
#define GROUP (32 * WARPS)
#define FILTERS (16 * SLICES)
#define LANE_FILTERS (2 * SLICES)
#define TILE_ROWS (WARPS * TILES)
#define PATCH_ROWS ((TILE_ROWS - 1) * STRIDE_Y + ROWS)
#define PAIRS ((15 * STRIDE_X + COLUMNS + SHIFT + 1) / 2)
#define BATCH 8
#define WORDS_BYTES (4 * SLICES)

#if SLICES == 4
#define READ_WORDS(words, p) \
  { \
    uint4 q = *(GLOBAL const uint4 *)(p); \
    words[0] = q.x; \
    words[1] = q.y; \
    words[2] = q.z; \
    words[3] = q.w; \
  }
#define WRITE_WORDS(p, words) \
  { \
    uint4 q; \
    q.x = words[0]; \
    q.y = words[1]; \
    q.z = words[2]; \
    q.w = words[3]; \
    write_16(p, q); \
  }
#elif SLICES == 2
#define READ_WORDS(words, p) \
  { \
    uint2 q = *(GLOBAL const uint2 *)(p); \
    words[0] = q.x; \
    words[1] = q.y; \
  }
#define WRITE_WORDS(p, words) \
  { \
    uint2 q; \
    q.x = words[0]; \
    q.y = words[1]; \
    write_8(p, q); \
  }
#else
#define READ_WORDS(words, p) words[0] = *(GLOBAL const u32 *)(p)
#define WRITE_WORDS(p, words) write_4(p, words[0])
#endif

FUNCTION uint2 two(u32 x, u32 y) {
  uint2 made;
  made.x = x;
  made.y = y;
  return made;
}

// The channels of a pixel, or of a tap of a filter, and zeros.
FUNCTION uint2 pixel_at(GLOBAL const u16 *p) {
  if (CHANNELS == 4 && IS_AT(p, 8)) return *(GLOBAL const uint2 *)p;
  u32 low = p[0], high = 0;
  if (CHANNELS > 1) low |= (u32)p[1] << 16;
  if (CHANNELS > 2) high = p[2];
  if (CHANNELS > 3) high |= (u32)p[3] << 16;
  return two(low, high);
}

FUNCTION uint4 joined(uint2 first, uint2 second) {
  uint4 made;
  made.x = first.x;
  made.y = first.y;
  made.z = second.x;
  made.w = second.y;
  return made;
}

// Two pixels of an image, zeros outside of it.
FUNCTION uint4 pixels_at(GLOBAL const u16 *image, int v, int u, int height, int width, int is_wide) {
  GLOBAL const u16 *from = image + ((i64)v * width + u) * CHANNELS;
  int is_line = v >= 0 && v < height, is_first = is_line && u >= 0 && u < width, is_second = is_line && u + 1 >= 0 && u + 1 < width;
  uint2 first = two(0, 0), second = two(0, 0);
  if (is_wide) return is_first ? *(GLOBAL const uint4 *)from : joined(first, second);
  if (is_first) first = pixel_at(from);
  if (is_second) second = pixel_at(from + CHANNELS);
  return joined(first, second);
}

// The unit's words of a slice for a lane: a tap of two filters.
FUNCTION uint4 filters_at(GLOBAL const u16 *w) {
  uint2 even = pixel_at(w), odd = pixel_at(w + TAPS * CHANNELS);
  return joined(two(even.x, odd.x), two(even.y, odd.y));
}

// What a lane has of 16 results of a line, from `column` on: of four of them LANE_FILTERS filters.
FUNCTION void put(float (*sums)[SLICES][4], GLOBAL const u16 *addend, GLOBAL u16 *y, int column, int out_width, int filters, int is_wide) {
#if HAS_ADDEND
  UNROLL for (int e = 0; e < 4; ++e) {
    int at = column + e / 2 * 8 + e % 2;
    if (at >= out_width) continue;
    u32 words[SLICES];
    GLOBAL const u16 *from = addend + (i64)at * filters;
    if (is_wide) {
      READ_WORDS(words, from);
    } else {
      UNROLL for (int s = 0; s < SLICES; ++s) words[s] = (u32)from[s * 2] | (u32)from[s * 2 + 1] << 16;
    }
    UNROLL for (int s = 0; s < SLICES; ++s) {
      u16 parts[2] = {(u16)words[s], (u16)(words[s] >> 16)};
      sums[e / 2][s][e % 2] += LOAD(T, parts, 0);
      sums[e / 2][s][2 + e % 2] += LOAD(T, parts, 1);
    }
  }
#endif
  UNROLL for (int e = 0; e < 4; ++e) {
    int at = column + e / 2 * 8 + e % 2;
    if (at >= out_width) continue;
    u32 words[SLICES];
    GLOBAL u16 *to = y + (i64)at * filters;
    UNROLL for (int s = 0; s < SLICES; ++s) words[s] = pair_of(sums[e / 2][s][e % 2], sums[e / 2][s][2 + e % 2]);
    if (is_wide) {
      WRITE_WORDS(to, words);
    } else {
      UNROLL for (int j = 0; j < LANE_FILTERS; ++j) to[j] = (u16)(words[j / 2] >> (j % 2 * 16));
    }
  }
}

#ifdef __CUDACC__
#undef KERNEL
#define KERNEL extern "C" __global__ void __launch_bounds__(GROUP, RESIDENT)
#endif
KERNEL run(IN(T, x), IN(T, w), IN(T, bias), IN(T, addend), OUT(T, y), int height, int width, int out_height, int out_width, int filters,
           int top, int left, int down, int across, int tiles, int groups) {
  AT(x);
  AT(w);
  AT(bias);
  AT(addend);
  AT(y);
  MEETING
  LOCAL uint2 patch[PATCH_ROWS * PITCH];
  LOCAL uint4 weights[STEPS * SLICES * 32];
  LOCAL float before[FILTERS];
  int item = (int)LOCAL_ID(0), lane = item % 32, warp = item / 32, quad = lane / 4, in_quad = lane % 4;
  int first_filter = (int)GROUP_ID(1) * FILTERS;
  int reads_wide = CHANNELS == 4 && width % 2 == 0 && IS_AT(x, 16);
  int writes_wide = IS_AT(y, WORDS_BYTES) && (!HAS_ADDEND || IS_AT(addend, WORDS_BYTES));
  // All of a batch is asked for before any of it is stored.
  for (int begin = warp; begin < STEPS * SLICES; begin += WARPS * BATCH) {
    uint4 taken[BATCH];
    UNROLL for (int i = 0; i < BATCH; ++i) {
      int each = begin + i * WARPS, tap = each / SLICES * 4 + in_quad, filter = first_filter + quad * LANE_FILTERS + each % SLICES * 2;
      taken[i] = joined(two(0, 0), two(0, 0));
      if (tap < TAPS && filter < filters) taken[i] = filters_at(w + ((i64)filter * TAPS + tap) * CHANNELS);
    }
    UNROLL for (int i = 0; i < BATCH; ++i) {
      if (begin + i * WARPS < STEPS * SLICES) weights[(begin + i * WARPS) * 32 + lane] = taken[i];
    }
  }
  for (int i = item; i < FILTERS; i += GROUP)
    before[i] = HAS_BIAS && first_filter + i < filters ? LOAD(T, bias, first_filter + i) : 0.0f;
  for (int tile = (int)GROUP_ID(0); tile < tiles; tile += groups) {
    int image = tile / (down * across), of_image = tile % (down * across);
    int first_y = of_image / across * TILE_ROWS, first_x = of_image % across * 16;
    int patch_y = first_y * STRIDE_Y - top, patch_x = first_x * STRIDE_X - left;
    BARRIER;
    for (int begin = item; begin < PATCH_ROWS * PAIRS; begin += GROUP * BATCH) {
      uint4 taken[BATCH];
      UNROLL for (int i = 0; i < BATCH; ++i) {
        int each = begin + i * GROUP, v = each < PATCH_ROWS * PAIRS ? patch_y + each / PAIRS : -1;
        taken[i] = pixels_at(x + (i64)image * height * width * CHANNELS, v, patch_x + each % PAIRS * 2, height, width, reads_wide);
      }
      UNROLL for (int i = 0; i < BATCH; ++i) {
        int each = begin + i * GROUP, at = each / PAIRS * PITCH + each % PAIRS * 2;
        if (each >= PATCH_ROWS * PAIRS) continue;
        patch[at] = two(taken[i].x, taken[i].y);
        patch[at + 1] = two(taken[i].z, taken[i].w);
      }
    }
    BARRIER;
    float sums[TILES][2][SLICES][4];
    UNROLL for (int s = 0; s < SLICES; ++s) {
      float even = before[quad * LANE_FILTERS + s * 2], odd = before[quad * LANE_FILTERS + s * 2 + 1];
      UNROLL for (int i = 0; i < TILES * 8; ++i) sums[i / 8][i / 4 % 2][s][i % 4] = i % 4 < 2 ? even : odd;
    }
    int origin = warp * (TILES * STRIDE_Y * PITCH) + quad * STRIDE_X + SHIFT;
    UNROLL_STEPS for (int step = 0; step < STEPS; ++step) {
      // Beyond the last tap the weights are zeros, but zero times infinity is not.
      int tap = step * 4 + in_quad, is_tap = step * 4 + 3 < TAPS || tap < TAPS;
      int at = origin + (is_tap ? tap / COLUMNS * PITCH + tap % COLUMNS : 0);
      uint2 pixels[TILES][2];
      UNROLL for (int m = 0; m < TILES; ++m) {
        UNROLL for (int h = 0; h < 2; ++h) {
          uint2 pixel = patch[at + m * (STRIDE_Y * PITCH) + h * (8 * STRIDE_X)];
          pixels[m][h] = is_tap ? pixel : two(0, 0);
        }
      }
      UNROLL for (int s = 0; s < SLICES; ++s) {
        uint4 rows = weights[(step * SLICES + s) * 32 + lane];
        UNROLL for (int m = 0; m < TILES * 2; ++m)
          ADD_PRODUCT(sums[m / 2][m % 2][s], rows.x, rows.y, rows.z, rows.w, pixels[m / 2][m % 2].x, pixels[m / 2][m % 2].y);
      }
    }
    int filter = first_filter + quad * LANE_FILTERS, row = first_y + warp * TILES;
    UNROLL for (int m = 0; m < TILES; ++m) {
      i64 at = ((i64)image * out_height + row + m) * out_width * filters + filter;
      if (row + m < out_height && filter < filters)
        put(sums[m], addend + at, y + at, first_x + in_quad * 2, out_width, filters, writes_wide);
    }
  }
}
)kernel";

}  // namespace backplane::cuda
