// Vector loops along the channels of channels-last pixels: moving channels about, local response
// normalization, layer and group normalization.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// y[i] = (x[i] - mean) / sqrt(variance + epsilon) * gamma[i] + beta[i] over rows of `columns`; beta may
/// be null.
struct NormalizeRows {
  const float* x;
  float* y;
  const float* gamma;
  const float* beta;
  int64_t rows;
  int64_t columns;
  float epsilon;
};

/// Local response normalization of a pixel's channels: y[c] = x[c] / (bias + alpha / size * sum over the
/// window of x^2)^beta.
struct LocalResponse {
  int64_t channels;
  int64_t size;
  float alpha, beta, bias;
};

struct ChannelKernels {
  /// y[j * groups + i] = x[i * (channels / groups) + j] for each pixel.
  void (*shuffle)(const float* x, float* y, int64_t pixels, int64_t channels, int64_t groups);
  /// even[j] = x[2 j], odd[j] = x[2 j + 1]; `half` channels each.
  void (*deinterleave)(const float* x, float* even, float* odd, int64_t pixels, int64_t half);
  void (*normalize)(const NormalizeRows& rows);
  /// One pixel; `squares` holds channels + size floats of scratch memory.
  void (*local_response)(const LocalResponse& response, const float* x, float* y, float* squares);
  /// y[i] = exp(z[i] - max z) / sum with z = x + addend over rows of `columns`; one row of `addend` serves
  /// all, null: none. x may equal y.
  void (*softmax)(const float* x, const float* addend, float* y, int64_t rows, int64_t columns);
  /// Over a few pixels, at least one: each channel's mean, and the sum of its squared distances from that.
  void (*moments)(const float* x, int64_t pixels, int64_t channels, float* mean, float* squares);
};

const ChannelKernels& channel_kernels(Isa isa);

}  // namespace backplane::cpu
