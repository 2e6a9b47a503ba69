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

// The channels of a pixel, or of a tap of a filter, and zeros.
FUNCTION uint2 pixel_at(GLOBAL const u16 *p) {
  uint2 made;
  if (CHANNELS == 4 && IS_AT(p, 8)) return *(GLOBAL const uint2 *)p;
  made.x = p[0];
  made.y = 0;
  if (CHANNELS > 1) made.x |= (u32)p[1] << 16;
  if (CHANNELS > 2) made.y = p[2];
  if (CHANNELS > 3) made.y |= (u32)p[3] << 16;
  return made;
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
    uint2 even[BATCH], odd[BATCH];
    UNROLL for (int i = 0; i < BATCH; ++i) {
      int each = begin + i * WARPS, tap = each / SLICES * 4 + in_quad, filter = first_filter + quad * LANE_FILTERS + each % SLICES * 2;
      GLOBAL const u16 *from = w + ((i64)filter * TAPS + tap) * CHANNELS;
      even[i].x = even[i].y = odd[i].x = odd[i].y = 0;
      if (each < STEPS * SLICES && tap < TAPS && filter < filters) {
        even[i] = pixel_at(from);
        odd[i] = pixel_at(from + TAPS * CHANNELS);
      }
    }
    UNROLL for (int i = 0; i < BATCH; ++i) {
      int each = begin + i * WARPS;
      uint4 rows;
      rows.x = even[i].x;
      rows.y = odd[i].x;
      rows.z = even[i].y;
      rows.w = odd[i].y;
      if (each < STEPS * SLICES) weights[each * 32 + lane] = rows;
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
        int each = begin + i * GROUP, v = patch_y + each / PAIRS, u = patch_x + each % PAIRS * 2;
        GLOBAL const u16 *from = x + (((i64)image * height + v) * width + u) * CHANNELS;
        int is_line = each < PATCH_ROWS * PAIRS && v >= 0 && v < height;
        taken[i].x = taken[i].y = taken[i].z = taken[i].w = 0;
        if (reads_wide) {
          if (is_line && u >= 0 && u < width) taken[i] = *(GLOBAL const uint4 *)from;
        } else {
          uint2 pixel;
          pixel.x = pixel.y = 0;
          if (is_line && u >= 0 && u < width) pixel = pixel_at(from);
          taken[i].x = pixel.x;
          taken[i].y = pixel.y;
          pixel.x = pixel.y = 0;
          if (is_line && u + 1 >= 0 && u + 1 < width) pixel = pixel_at(from + CHANNELS);
          taken[i].z = pixel.x;
          taken[i].w = pixel.y;
        }
      }
      UNROLL for (int i = 0; i < BATCH; ++i) {
        int each = begin + i * GROUP, at = each / PAIRS * PITCH + each % PAIRS * 2;
        if (each >= PATCH_ROWS * PAIRS) continue;
        patch[at].x = taken[i].x;
        patch[at].y = taken[i].y;
        patch[at + 1].x = taken[i].z;
        patch[at + 1].y = taken[i].w;
      }
    }
    BARRIER;
    float sums[TILES][2][SLICES][4];
    UNROLL for (int s = 0; s < SLICES; ++s) {
      float even = before[quad * LANE_FILTERS + s * 2], odd = before[quad * LANE_FILTERS + s * 2 + 1];
      UNROLL for (int m = 0; m < TILES * 2; ++m) {
        sums[m / 2][m % 2][s][0] = sums[m / 2][m % 2][s][1] = even;
        sums[m / 2][m % 2][s][2] = sums[m / 2][m % 2][s][3] = odd;
      }
    }
    int origin = warp * (TILES * STRIDE_Y * PITCH) + quad * STRIDE_X + SHIFT;
    UNROLL_STEPS for (int step = 0; step < STEPS; ++step) {
      // Beyond the last tap the weights are zeros, but zero times infinity is not.
      int tap = step * 4 + in_quad, is_tap = step * 4 + 3 < TAPS || tap < TAPS;
      int at = origin + (is_tap ? tap / COLUMNS * PITCH + tap % COLUMNS : 0);
      uint2 pixels[TILES][2];
      UNROLL for (int m = 0; m < TILES; ++m) {
        UNROLL for (int h = 0; h < 2; ++h) {
          pixels[m][h] = patch[at + m * (STRIDE_Y * PITCH) + h * (8 * STRIDE_X)];
          if (!is_tap) pixels[m][h].x = pixels[m][h].y = 0;
        }
      }
      UNROLL for (int s = 0; s < SLICES; ++s) {
        uint4 rows = weights[(step * SLICES + s) * 32 + lane];
        UNROLL for (int m = 0; m < TILES * 2; ++m) {
          ADD_PRODUCT(sums[m / 2][m % 2][s], rows.x, rows.y, rows.z, rows.w, pixels[m / 2][m % 2].x, pixels[m / 2][m % 2].y);
        }
      }
    }
    int filter = first_filter + quad * LANE_FILTERS;
    UNROLL for (int m = 0; m < TILES; ++m) {
      int row = first_y + warp * TILES + m;
      i64 line = ((i64)image * out_height + row) * out_width;
#if HAS_ADDEND
      UNROLL for (int e = 0; e < 4; ++e) {
        int column = first_x + e / 2 * 8 + in_quad * 2 + e % 2;
        if (row >= out_height || column >= out_width || filter >= filters) continue;
        u32 words[SLICES];
        GLOBAL const u16 *from = addend + (line + column) * filters + filter;
        if (writes_wide) {
          READ_WORDS(words, from);
        } else {
          UNROLL for (int s = 0; s < SLICES; ++s) words[s] = (u32)from[s * 2] | (u32)from[s * 2 + 1] << 16;
        }
        UNROLL for (int s = 0; s < SLICES; ++s) {
          u16 parts[2] = {(u16)words[s], (u16)(words[s] >> 16)};
          sums[m][e / 2][s][e % 2] += LOAD(T, parts, 0);
          sums[m][e / 2][s][2 + e % 2] += LOAD(T, parts, 1);
        }
      }
#endif
      UNROLL for (int e = 0; e < 4; ++e) {
        int column = first_x + e / 2 * 8 + in_quad * 2 + e % 2;
        if (row >= out_height || column >= out_width || filter >= filters) continue;
        u32 words[SLICES];
        GLOBAL u16 *to = y + (line + column) * filters + filter;
        UNROLL for (int s = 0; s < SLICES; ++s) words[s] = pair_of(sums[m][e / 2][s][e % 2], sums[m][e / 2][s][2 + e % 2]);
        if (writes_wide) {
          WRITE_WORDS(to, words);
        } else {
          UNROLL for (int j = 0; j < LANE_FILTERS; ++j) to[j] = (u16)(words[j / 2] >> (j % 2 * 16));
        }
      }
    }
  }
}
)kernel";

}  // namespace backplane::cuda
