// Depthwise convolutions over two axes, as text for kernels: each output plane is made of one input plane, and
// `multiplier` output planes of each. What follows a sum (bias, residual, activation) is done before it is stored.
//
// Both texts take the same arguments. `total` is the number of elements of x; the planes of y are numbered
// through the batch, `channels` for each image.
#pragma once

namespace backplane::common {

inline constexpr char kDepthwiseArguments[] = R"kernel(
#define DEPTHWISE_ARGUMENTS \
  i64 total, i64 channels, i64 multiplier, i64 in_h, i64 in_w, i64 out_h, i64 out_w, i64 stride_y, \
  i64 stride_x, i64 pad_y, i64 pad_x, i64 dilation_y, i64 dilation_x, i64 band
#if HAS_BIAS
#define BIAS_ARGUMENT IN(T, bias),
#define AT_BIAS AT(bias)
#define BIAS LOAD(T, bias, channel)
#else
#define BIAS_ARGUMENT
#define AT_BIAS
#define BIAS 0
#endif
#if HAS_RESIDUAL
#define RESIDUAL_ARGUMENT IN(T, residual),
#define AT_RESIDUAL AT(residual)
#define RESIDUAL(at) + LOAD(T, residual, at)
#else
#define RESIDUAL_ARGUMENT
#define AT_RESIDUAL
#define RESIDUAL(at)
#endif
#define TAPS (KERNEL_H * KERNEL_W)
#define AT_ALL \
  AT(x); AT(w); AT(y); AT_BIAS; AT_RESIDUAL; \
  i64 channel = plane % channels; \
  i64 base = (plane / channels * (channels / multiplier) + channel / multiplier) * in_h * in_w; \
  w += channel * TAPS
)kernel";

/// A work item computes one element. Sizes: out_w, out_h, planes.
inline constexpr char kDepthwisePoint[] = R"kernel(
KERNEL run(IN(T, x), IN(T, w), BIAS_ARGUMENT RESIDUAL_ARGUMENT OUT(T, y), DEPTHWISE_ARGUMENTS) {
  i64 column = GLOBAL_ID(0), row = GLOBAL_ID(1), plane = GLOBAL_ID(2);
  if (column >= out_w || row >= out_h) return;
  AT_ALL;
  ACC s = BIAS;
  for (int ky = 0; ky < KERNEL_H; ++ky) {
    i64 v = row * stride_y + ky * dilation_y - pad_y;
    if (v < 0 || v >= in_h) continue;
    for (int kx = 0; kx < KERNEL_W; ++kx) {
      i64 u = column * stride_x + kx * dilation_x - pad_x;
      if (u < 0 || u >= in_w) continue;
      s += (ACC)LOAD(T, w, ky * KERNEL_W + kx) * (ACC)LOAD(T, x, base + v * in_w + u);
    }
  }
  i64 at = (plane * out_h + row) * out_w + column;
  s = s RESIDUAL(at);
  STORE(T, y, at, ACTIVATE(s));
}
)kernel";

/// For processors: a work item computes `band` lines in vectors of VW floats. STRIDE, of columns, is 1 or 2;
/// LANES is (0, 1, 2 ...). The image has no border in memory: lanes outside of a line are masked, and
/// loads that would leave x altogether are done element by element. Sizes: bands, planes. OpenCL C alone has
/// the vectors.
inline constexpr char kDepthwiseVector[] = R"kernel(
#define VT JOIN(float, VW)
#define IT JOIN(int, VW)
#define VLOAD JOIN(vload, VW)
#define VSTORE JOIN(vstore, VW)

FUNCTION VT load_lanes(GLOBAL const float *x) {
  VT low = VLOAD(0, x);
#if STRIDE == 2
  VT high = VLOAD(1, x);
  return (VT)(low.even, high.even);
#else
  return low;
#endif
}

/* Elements u, u + STRIDE ... of the line that begins at x[line]; 0 outside of it. */
FUNCTION VT load_line(GLOBAL const float *x, i64 line, i64 u, i64 width, i64 total) {
  if (u >= 0 && u + VW * STRIDE <= width) return load_lanes(x + line + u);
  IT lane = (IT)(LANES) * STRIDE + (IT)((int)u);
  if (line + u >= 0 && line + u + VW * STRIDE <= total)
    return select((VT)(0.0f), load_lanes(x + line + u), (lane >= 0) & (lane < (IT)((int)width)));
  float part[VW];
  for (int j = 0; j < VW; ++j) {
    i64 at = u + j * STRIDE;
    part[j] = at >= 0 && at < width ? x[line + at] : 0.0f;
  }
  return VLOAD(0, part);
}

__attribute__((reqd_work_group_size(1, 1, 1)))
KERNEL run(GLOBAL const float *restrict x, i64 x_at, GLOBAL const float *restrict w, i64 w_at,
           BIAS_ARGUMENT RESIDUAL_ARGUMENT GLOBAL float *y, i64 y_at, DEPTHWISE_ARGUMENTS) {
  i64 first = GLOBAL_ID(0) * band, plane = GLOBAL_ID(1);
  i64 last = first + band < out_h ? first + band : out_h;
  AT_ALL;
  for (i64 row = first; row < last; ++row) {
    for (i64 p = 0; p < out_w; p += VW) {
      VT v = (VT)(BIAS);
#pragma unroll
      for (int ky = 0; ky < KERNEL_H; ++ky) {
        i64 from = row * stride_y + ky * dilation_y - pad_y;
        if (from < 0 || from >= in_h) continue;
        i64 line = base + from * in_w;
#pragma unroll
        for (int kx = 0; kx < KERNEL_W; ++kx)
          v = fma((VT)(w[ky * KERNEL_W + kx]),
                  load_line(x, line, p * STRIDE + kx * dilation_x - pad_x, in_w, total), v);
      }
      i64 at = (plane * out_h + row) * out_w + p;
      int count = out_w - p < VW ? (int)(out_w - p) : VW;
#if defined(ACTIVATE_VECTOR)
      if (count == VW) {
#if HAS_RESIDUAL
        v += VLOAD(0, residual + at);
#endif
        VSTORE(ACTIVATE_VECTOR(v), 0, y + at);
        continue;
      }
#endif
      float sums[VW];
      VSTORE(v, 0, sums);
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        float s = sums[j] RESIDUAL(at + j);
        y[at + j] = ACTIVATE(s);
      }
    }
  }
}
)kernel";

}  // namespace backplane::common
