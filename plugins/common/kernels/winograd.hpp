// Winograd's convolution of 3x3 taps with stride 1, F(4x4, 3x3), as text for kernels of processors: an image is cut into
// tiles of 4x4 results, each made of 6x6 pixels; both transforms stand here, the 36 products between them are plain ones
// (product.hpp). See "Fast Algorithms for Convolutional Neural Networks", https://arxiv.org/abs/1509.09308.
//
// In steps: both kernels do `rows` rows of tiles, from row `first` on, counted through the images, `tiles_y` in each. Point
// (i, j) of tile t of these rows, of channel c, lies at v[(i * 6 + j) * point_step + c * channel_step + t]. VW tiles of a row
// are done at a time: what is stored for tiles past its end is overwritten by the next row, so that each channel needs VW
// elements more than it has tiles. Whole: see kWinogradWhole. OpenCL C alone has the vectors.
#pragma once

namespace backplane::common {

inline constexpr char kWinogradArguments[] = R"kernel(
#define WINOGRAD_ARGUMENTS \
  i64 channels, i64 height, i64 width, i64 tiles_y, i64 tiles_x, i64 first, i64 rows, i64 point_step, \
  i64 channel_step
)kernel";

/// take_tiles: a row of `tiles` tiles of x, of `total` elements, whose image begins at x[image] and whose upper left pixel is
/// (top, left), to `to` and the places `point_step` after it. LANES is (0, 1, 2 ...).
inline constexpr char kWinogradTake[] = R"kernel(
#define IT JOIN(int, VW)
#define BUFFER (5 * VW)

/* Pixels u, u + 1 ... of the line that begins at x[line]; 0 outside of it. */
FUNCTION VT load_pixels(GLOBAL const float *x, i64 line, i64 u, i64 width, i64 total) {
  if (u >= 0 && u + VW <= width) return VLOAD(0, x + line + u);
  if (u >= width || u + VW <= 0) return (VT)(0.0f);
  if (line + u >= 0 && line + u + VW <= total) {
    IT lane = (IT)(LANES) + (IT)((int)u);
    return select((VT)(0.0f), VLOAD(0, x + line + u), (lane >= 0) & (lane < (IT)((int)width)));
  }
  float part[VW];
  for (int j = 0; j < VW; ++j) part[j] = u + j >= 0 && u + j < width ? x[line + u + j] : 0.0f;
  return VLOAD(0, part);
}

/* q without its first lane, and `last` at the end. */
FUNCTION VT next_lanes(VT q, float last) {
#if defined(__clang__) && defined(POCL_DEVICE_ADDRESS_BITS) && VW == 16
  return __builtin_shufflevector(q, (VT)(last), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
#elif VW == 16
  return (VT)(q.s1, q.s2, q.s3, q.s4, q.s5, q.s6, q.s7, q.s8, q.s9, q.sa, q.sb, q.sc, q.sd, q.se, q.sf, last);
#elif VW == 8
  return (VT)(q.s1, q.s2, q.s3, q.s4, q.s5, q.s6, q.s7, last);
#else
  return (VT)(q.s1, q.s2, q.s3, last);
#endif
}

/* One dimension of B^T d. */
#define TRANSFORM_IN(d, r) \
  r[0] = fma((VT)(4.0f), d[0], fma((VT)(-5.0f), d[2], d[4])); \
  { \
    VT even = fma((VT)(-4.0f), d[2], d[4]), odd = fma((VT)(-4.0f), d[1], d[3]); \
    r[1] = even + odd; \
    r[2] = even - odd; \
    even = d[4] - d[2]; \
    odd = 2.0f * (d[3] - d[1]); \
    r[3] = even + odd; \
    r[4] = even - odd; \
  } \
  r[5] = fma((VT)(4.0f), d[1], fma((VT)(-5.0f), d[3], d[5]))

FUNCTION void take_tiles(GLOBAL const float *x, i64 image, i64 top, i64 left, i64 tiles, i64 height, i64 width,
                         i64 total, GLOBAL float *to, i64 point_step) {
  float turned[6][BUFFER];
  for (i64 t = 0; t < tiles; t += VW, left += 4 * VW, to += VW) {
#pragma unroll 1
    for (int j = 0; j < BUFFER; j += VW) {
      VT d[6], r[6];
      if (top >= 0 && top + 6 <= height && left + j >= 0 && left + j + VW <= width) {
        GLOBAL const float *from = x + image + top * width + left + j;
#pragma unroll
        for (int k = 0; k < 6; ++k, from += width) d[k] = VLOAD(0, from);
      } else {
#pragma unroll 1
        for (int k = 0; k < 6; ++k) {
          i64 y = top + k;
          VSTORE(y >= 0 && y < height ? load_pixels(x, image + y * width, left + j, width, total) : (VT)(0.0f), 0, turned[k] + j);
        }
#pragma unroll
        for (int k = 0; k < 6; ++k) d[k] = VLOAD(0, turned[k] + j);
      }
      TRANSFORM_IN(d, r);
#pragma unroll
      for (int k = 0; k < 6; ++k) VSTORE(r[k], 0, turned[k] + j);
    }
#pragma unroll
    for (int k = 0; k < 6; ++k) {
      const float *from = turned[k];
      VT a = VLOAD(0, from), b = VLOAD(1, from), c = VLOAD(2, from), e = VLOAD(3, from);
      VT even0 = (VT)(a.even, b.even), even1 = (VT)(c.even, e.even);
      VT odd0 = (VT)(a.odd, b.odd), odd1 = (VT)(c.odd, e.odd);
      VT d[6], r[6];
      d[0] = (VT)(even0.even, even1.even);
      d[1] = (VT)(odd0.even, odd1.even);
      d[2] = (VT)(even0.odd, even1.odd);
      d[3] = (VT)(odd0.odd, odd1.odd);
      d[4] = next_lanes(d[0], from[4 * VW]);
      d[5] = next_lanes(d[1], from[4 * VW + 1]);
      TRANSFORM_IN(d, r);
#pragma unroll
      for (int j = 0; j < 6; ++j) VSTORE(r[j], 0, to + (k * 6 + j) * point_step);
    }
  }
}
)kernel";

/// x -> v. A work item does a channel.
inline constexpr char kWinogradInput[] = R"kernel(
__attribute__((reqd_work_group_size(1, 1, 1)))
KERNEL run(GLOBAL const float *restrict x, i64 x_at, GLOBAL float *restrict v, i64 v_at,
           WINOGRAD_ARGUMENTS, i64 pad_y, i64 pad_x, i64 total) {
  AT(x);
  AT(v);
  i64 channel = GLOBAL_ID(0);
  for (i64 row = first; row < first + rows; ++row) {
    i64 image = (row / tiles_y * channels + channel) * height * width;
    take_tiles(x, image, row % tiles_y * 4 - pad_y, -pad_x, tiles_x, height, width, total,
               v + channel * channel_step + (row - first) * tiles_x, point_step);
  }
}
)kernel";

/// put_tiles: the products of a row of tiles, with what follows a sum (bias, residual, activation), to `lines` lines of y (and of
/// the residual, by the same places) that begin at y[at] and have `pixels`. Stands after kStoreLine.
inline constexpr char kWinogradPut[] = R"kernel(
#if HAS_BIAS
#define BIAS_ARGUMENT GLOBAL const float *restrict bias, i64 bias_at,
#define AT_BIAS AT(bias)
#define BIAS bias[channel]
#else
#define BIAS_ARGUMENT
#define AT_BIAS
#define BIAS 0.0f
#endif
#if HAS_RESIDUAL
#define RESIDUAL_ARGUMENT GLOBAL const float *residual, i64 residual_at,
#define AT_RESIDUAL AT(residual)
#else
#define RESIDUAL_ARGUMENT
#define AT_RESIDUAL
#endif

/* One dimension of A^T m. */
#define TRANSFORM_OUT(m, o) \
  { \
    VT sum = m[1] + m[2], difference = m[1] - m[2], far_sum = m[3] + m[4], far = m[3] - m[4]; \
    o[0] = m[0] + sum + far_sum; \
    o[1] = fma((VT)(2.0f), far, difference); \
    o[2] = fma((VT)(4.0f), far_sum, sum); \
    o[3] = fma((VT)(8.0f), far, difference) + m[5]; \
  }

FUNCTION void put_tiles(GLOBAL const float *from, i64 point_step, float bias, int lines, i64 pixels, i64 width, i64 at,
                        GLOBAL float *y ADDED_ARGUMENT) {
  for (i64 p = 0; p < pixels; p += 4 * VW, from += VW) {
    VT turned[4][6];
#pragma unroll
    for (int j = 0; j < 6; ++j) {
      VT m[6], o[4];
#pragma unroll
      for (int i = 0; i < 6; ++i) m[i] = VLOAD(0, from + (i * 6 + j) * point_step);
      TRANSFORM_OUT(m, o);
#pragma unroll
      for (int i = 0; i < 4; ++i) turned[i][j] = o[i];
    }
    float sums[4][4 * VW];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      VT o[4], a, b, r;
      TRANSFORM_OUT(turned[i], o);
      for (int j = 0; j < 4; ++j) o[j] += (VT)(bias);
      a.even = o[0].lo;
      a.odd = o[2].lo;
      b.even = o[1].lo;
      b.odd = o[3].lo;
      r.even = a.lo;
      r.odd = b.lo;
      VSTORE(r, 0, sums[i]);
      r.even = a.hi;
      r.odd = b.hi;
      VSTORE(r, 1, sums[i]);
      a.even = o[0].hi;
      a.odd = o[2].hi;
      b.even = o[1].hi;
      b.odd = o[3].hi;
      r.even = a.lo;
      r.odd = b.lo;
      VSTORE(r, 2, sums[i]);
      r.even = a.hi;
      r.odd = b.hi;
      VSTORE(r, 3, sums[i]);
    }
    int count = pixels - p < 4 * VW ? (int)(pixels - p) : 4 * VW;
#pragma unroll 1
    for (int i = 0; i < lines; ++i) {
      i64 to = at + i * width + p;
#if HAS_RESIDUAL
      store_line(sums[i], count, y + to, added + to);
#else
      store_line(sums[i], count, y + to);
#endif
    }
  }
}
#if HAS_RESIDUAL
#define PUT_TILES(from, step, channel, lines, pixels, at) \
  put_tiles(from, step, BIAS, lines, pixels, width, at, y, residual)
#else
#define PUT_TILES(from, step, channel, lines, pixels, at) put_tiles(from, step, BIAS, lines, pixels, width, at, y)
#endif
)kernel";

/// v -> y. A work item does a channel; sizes are those of y.
inline constexpr char kWinogradOutput[] = R"kernel(
__attribute__((reqd_work_group_size(1, 1, 1)))
KERNEL run(GLOBAL const float *restrict v, i64 v_at, BIAS_ARGUMENT RESIDUAL_ARGUMENT
           GLOBAL float *y, i64 y_at, WINOGRAD_ARGUMENTS) {
  AT(v);
  AT(y);
  AT_BIAS;
  AT_RESIDUAL;
  i64 channel = GLOBAL_ID(0);
  for (i64 row = first; row < first + rows; ++row) {
    i64 top = row % tiles_y * 4;
    PUT_TILES(v + channel * channel_step + (row - first) * tiles_x, point_step, channel,
              height - top < 4 ? (int)(height - top) : 4, width,
              (row / tiles_y * channels + channel) * height * width + top * width);
  }
}
)kernel";

/// Everything at once: a work item does blocks of `block_rows` x `block_columns` tiles, every so many-th, in memory of its own of
/// `own` floats at `v`: it takes the tiles of all channels, and for MR output channels after the other multiplies the points
/// and puts their tiles, so that what lies between stays in the cache of the core that made it: first [c][point][tile], then
/// [point][MR][tile]. The products are those of NV * PW tiles, no less than a block has with what the vectors of its last
/// row pass its end by; w is packed as [point][m / MR][c][MR].
inline constexpr char kWinogradWhole[] = R"kernel(
#define PT JOIN(float, PW)
#define PLOAD JOIN(vload, PW)
#define PSTORE JOIN(vstore, PW)

#define TILES (NV * PW)

/* The products of a point: MR rows of m. */
FUNCTION void multiply(GLOBAL const float *restrict a, GLOBAL const float *restrict b, i64 step, i64 channels,
                       GLOBAL float *m) {
  PT acc[MR][NV];
#pragma unroll
  for (int i = 0; i < MR; ++i)
#pragma unroll
    for (int j = 0; j < NV; ++j) acc[i][j] = (PT)(0.0f);
  for (i64 c = 0; c < channels; ++c) {
    PT row[NV];
#pragma unroll
    for (int j = 0; j < NV; ++j) row[j] = PLOAD(j, b);
#pragma unroll
    for (int i = 0; i < MR; ++i) {
      PT factor = (PT)(a[i]);
#pragma unroll
      for (int j = 0; j < NV; ++j) acc[i][j] = fma(factor, row[j], acc[i][j]);
    }
    a += MR;
    b += step;
  }
#pragma unroll
  for (int i = 0; i < MR; ++i)
#pragma unroll
    for (int j = 0; j < NV; ++j) PSTORE(acc[i][j], j, m + i * TILES);
}

__attribute__((reqd_work_group_size(1, 1, 1)))
KERNEL run(GLOBAL const float *restrict x, i64 x_at, GLOBAL const float *restrict w, i64 w_at,
           BIAS_ARGUMENT RESIDUAL_ARGUMENT GLOBAL float *y, i64 y_at, GLOBAL float *v, i64 v_at, i64 in_channels,
           i64 out_channels, i64 in_height, i64 in_width, i64 height, i64 width, i64 tiles_y, i64 tiles_x, i64 block_rows,
           i64 block_columns, i64 blocks, i64 own, i64 pad_y, i64 pad_x, i64 total) {
  AT(x);
  AT(w);
  AT(y);
  AT(v);
  AT_BIAS;
  AT_RESIDUAL;
  i64 item = GLOBAL_ID(0), items = get_global_size(0);
  v += item * own;
  // No multiples of 4 KiB, of which caches hold few.
  const i64 v_step = 36 * TILES + 16, m_step = MR * TILES + 16;
  GLOBAL float *m = v + in_channels * v_step;
  const i64 w_step = (out_channels + MR - 1) / MR * MR * in_channels;
  i64 across = (tiles_x + block_columns - 1) / block_columns, down = (tiles_y + block_rows - 1) / block_rows;
  for (i64 block = item; block < blocks; block += items) {
    i64 first_column = block % across * block_columns, first_row = block / across % down * block_rows;
    i64 image = block / across / down;
    i64 columns = tiles_x - first_column < block_columns ? tiles_x - first_column : block_columns;
    i64 rows = tiles_y - first_row < block_rows ? tiles_y - first_row : block_rows;
    for (i64 c = 0; c < in_channels; ++c) {
      i64 plane = (image * in_channels + c) * in_height * in_width;
      // The next channel's pixels lie elsewhere, in short pieces.
      i64 next = plane + in_height * in_width + first_row * 4 * in_width + first_column * 4;
      for (i64 line = 0; line < 4 * rows + 2; ++line)
        for (i64 at = next + line * in_width; at < next + line * in_width + 4 * columns + 16; at += 16) PREFETCH(x + (at < total ? at : 0));
      for (i64 r = 0; r < rows; ++r)
        take_tiles(x, plane, (first_row + r) * 4 - pad_y, first_column * 4 - pad_x, columns, in_height, in_width, total,
                   v + c * v_step + r * columns, TILES);
    }
    i64 pixels = width - first_column * 4 < columns * 4 ? width - first_column * 4 : columns * 4;
    for (i64 m0 = 0; m0 < out_channels; m0 += MR) {
      for (int point = 0; point < 36; ++point)
        multiply(w + point * w_step + m0 * in_channels, v + point * TILES, v_step, in_channels, m + point * m_step);
      for (i64 channel = m0; channel < m0 + MR && channel < out_channels; ++channel) {
        for (i64 r = 0; r < rows; ++r) {
          i64 top = (first_row + r) * 4;
          PUT_TILES(m + (channel - m0) * TILES + r * columns, m_step, channel,
                    height - top < 4 ? (int)(height - top) : 4, pixels,
                    ((image * out_channels + channel) * height + top) * width + first_column * 4);
        }
      }
    }
  }
}
)kernel";

}  // namespace backplane::common
