// Winograd's convolution of 3x3 taps with stride 1, F(4x4, 3x3), as text for kernels of processors: an image is cut into
// tiles of 4x4 results, each made of 6x6 pixels; both transforms stand here, the 36 products between them are plain ones
// (product.hpp). See "Fast Algorithms for Convolutional Neural Networks", https://arxiv.org/abs/1509.09308.
//
// Both kernels do `rows` rows of tiles, from row `first` on, counted through the images, `tiles_y` in each. Point
// (i, j) of tile t of these rows, of channel c, lies at v[(i * 6 + j) * point_step + c * channel_step + t]. VW tiles of a row
// are done at a time: what is stored for tiles past its end is overwritten by the next row, so that each channel needs VW
// elements more than it has tiles. OpenCL C alone has the vectors.
//
// NEXT(q, last) is q without its first lane, and `last` at the end.
#pragma once

namespace backplane::common {

inline constexpr char kWinogradWords[] = R"kernel(
#define VT JOIN(float, VW)
#define VLOAD JOIN(vload, VW)
#define VSTORE JOIN(vstore, VW)
#define WINOGRAD_ARGUMENTS \
  i64 channels, i64 height, i64 width, i64 tiles_y, i64 tiles_x, i64 first, i64 rows, i64 point_step, \
  i64 channel_step
)kernel";

/// x, of `total` elements, -> v. A work item does a channel. LANES is (0, 1, 2 ...).
inline constexpr char kWinogradInput[] = R"kernel(
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

__attribute__((reqd_work_group_size(1, 1, 1)))
KERNEL run(GLOBAL const float *restrict x, i64 x_at, GLOBAL float *restrict v, i64 v_at,
           WINOGRAD_ARGUMENTS, i64 pad_y, i64 pad_x, i64 total) {
  AT(x);
  AT(v);
  i64 channel = GLOBAL_ID(0);
  float turned[6][BUFFER];
  for (i64 row = first; row < first + rows; ++row) {
    i64 image = (row / tiles_y * channels + channel) * height * width;
    i64 top = row % tiles_y * 4 - pad_y;
    for (i64 t = 0; t < tiles_x; t += VW) {
      i64 left = t * 4 - pad_x;
#pragma unroll 1
      for (int j = 0; j < BUFFER; j += VW) {
        VT d[6], r[6];
#pragma unroll
        for (int k = 0; k < 6; ++k) {
          i64 y = top + k;
          d[k] = (VT)(0.0f);
          if (y >= 0 && y < height) d[k] = load_pixels(x, image + y * width, left + j, width, total);
        }
        TRANSFORM_IN(d, r);
#pragma unroll
        for (int k = 0; k < 6; ++k) VSTORE(r[k], 0, turned[k] + j);
      }
      GLOBAL float *to = v + channel * channel_step + (row - first) * tiles_x + t;
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
        d[4] = NEXT(d[0], from[4 * VW]);
        d[5] = NEXT(d[1], from[4 * VW + 1]);
        TRANSFORM_IN(d, r);
#pragma unroll
        for (int j = 0; j < 6; ++j) VSTORE(r[j], 0, to + (k * 6 + j) * point_step);
      }
    }
  }
}
)kernel";

/// v -> y, with what follows a sum (bias, residual, activation). A work item does a channel; sizes are those of y.
inline constexpr char kWinogradOutput[] = R"kernel(
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

__attribute__((reqd_work_group_size(1, 1, 1)))
KERNEL run(GLOBAL const float *restrict v, i64 v_at, BIAS_ARGUMENT RESIDUAL_ARGUMENT
           GLOBAL float *y, i64 y_at, WINOGRAD_ARGUMENTS) {
  AT(v);
  AT(y);
  AT_BIAS;
  AT_RESIDUAL;
  i64 channel = GLOBAL_ID(0);
  for (i64 row = first; row < first + rows; ++row) {
    i64 plane = (row / tiles_y * channels + channel) * height * width;
    i64 top = row % tiles_y * 4;
    int lines = height - top < 4 ? (int)(height - top) : 4;
    for (i64 t = 0; t < tiles_x; t += VW) {
      GLOBAL const float *from = v + channel * channel_step + (row - first) * tiles_x + t;
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
        for (int j = 0; j < 4; ++j) o[j] += (VT)(BIAS);
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
      int count = width - t * 4 < 4 * VW ? (int)(width - t * 4) : 4 * VW;
#pragma unroll 1
      for (int i = 0; i < lines; ++i) {
        i64 at = plane + (top + i) * width + t * 4;
        int j = 0;
#if defined(ACTIVATE_VECTOR)
#pragma unroll 1
        for (; j + VW <= count; j += VW) {
          VT v = VLOAD(0, sums[i] + j);
#if HAS_RESIDUAL
          v += VLOAD(0, residual + at + j);
#endif
          VSTORE(ACTIVATE_VECTOR(v), 0, y + at + j);
        }
#endif
#pragma unroll 1
        for (; j < count; ++j) {
          float s = sums[i][j];
#if HAS_RESIDUAL
          s += residual[at + j];
#endif
          y[at + j] = ACTIVATE(s);
        }
      }
    }
  }
}
)kernel";

}  // namespace backplane::common
