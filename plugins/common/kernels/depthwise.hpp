// Depthwise convolutions over two axes, as text for kernels: each output plane is made of one input plane, and
// `multiplier` output planes of each. What follows a sum (bias, residual, activation) is done before it is stored.
//
// The planes of y are numbered through the batch, `channels` for each image.
#pragma once

namespace backplane::common {

inline constexpr char kDepthwiseArguments[] = R"kernel(
#define DEPTHWISE_ARGUMENTS \
  i64 channels, i64 multiplier, i64 in_h, i64 in_w, i64 out_h, i64 out_w, i64 stride_y, i64 stride_x, \
  i64 pad_y, i64 pad_x, i64 dilation_y, i64 dilation_x
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

/// The words of kWindowLines (lines.hpp), after kStoreLine: each output plane is made of one input plane.
inline constexpr char kDepthwiseLines[] = R"kernel(
#define BORDER 0.0f
#define START (VT)(BIAS)
#define FOLD(acc, value, tap) acc = fma((VT)(w[tap]), value, acc)
#define PLANE_MEMORY \
  GLOBAL const float *restrict x, i64 x_at, GLOBAL const float *restrict w, i64 w_at, BIAS_ARGUMENT \
  RESIDUAL_ARGUMENT
#define PLANE_NUMBERS i64 channels, i64 multiplier,
#define FIND_PLANE \
  AT(x); AT(w); AT_BIAS; AT_RESIDUAL; \
  i64 channel = plane % channels; \
  GLOBAL const float *restrict from = \
      x + (plane / channels * (channels / multiplier) + channel / multiplier) * in_h * in_w; \
  w += channel * TAPS; \
  PLANE_RESIDUAL
#if HAS_RESIDUAL
#define PLANE_RESIDUAL residual += plane * out_h * out_w
#define STORE_SUMS(sums, count, to, row, begin) store_line(sums, count, y + (to), residual + (to))
#else
#define PLANE_RESIDUAL
#define STORE_SUMS(sums, count, to, row, begin) store_line(sums, count, y + (to))
#endif
#define PREPARE_SUMS
)kernel";

}  // namespace backplane::common
