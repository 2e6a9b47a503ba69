#include "plugins/cpu/dense/channel_kernels.hpp"

#include <cmath>
#include <cstddef>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/channel_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h:
#include <hwy/contrib/math/math-inl.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const ChannelKernels& channel_table();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

/// The first channels of a pixel, as far as whole vectors go; returns how many of each group are done.
HWY_INLINE int64_t interleave(const float* x, float* y, int64_t each, int64_t groups) {
  const Tag d;
  int64_t j = 0;
  for (; j + kLanes <= each; j += kLanes) {
    const Vector a = hn::LoadU(d, x + j);
    const Vector b = hn::LoadU(d, x + each + j);
    if (groups == 2) {
      hn::StoreInterleaved2(a, b, d, y + j * 2);
      continue;
    }
    const Vector c = hn::LoadU(d, x + 2 * each + j);
    if (groups == 3) {
      hn::StoreInterleaved3(a, b, c, d, y + j * 3);
    } else {
      hn::StoreInterleaved4(a, b, c, hn::LoadU(d, x + 3 * each + j), d, y + j * 4);
    }
  }
  return j;
}

void shuffle(const float* x, float* y, int64_t pixels, int64_t channels, int64_t groups) {
  const int64_t each = channels / groups;
  for (int64_t p = 0; p < pixels; ++p, x += channels, y += channels) {
    int64_t j = groups >= 2 && groups <= 4 ? interleave(x, y, each, groups) : 0;
    for (; j < each; ++j) {
      for (int64_t i = 0; i < groups; ++i) y[j * groups + i] = x[i * each + j];
    }
  }
}

void deinterleave(const float* x, float* even, float* odd, int64_t pixels, int64_t half) {
  const Tag d;
  for (int64_t p = 0; p < pixels; ++p, x += 2 * half, even += half, odd += half) {
    int64_t j = 0;
    for (; j + kLanes <= half; j += kLanes) {
      Vector a;
      Vector b;
      hn::LoadInterleaved2(d, x + 2 * j, a, b);
      hn::StoreU(a, d, even + j);
      hn::StoreU(b, d, odd + j);
    }
    for (; j < half; ++j) {
      even[j] = x[2 * j];
      odd[j] = x[2 * j + 1];
    }
  }
}

/// Two passes: the mean, then the squared distances from it, which does not cancel.
HWY_INLINE void normalize_row(const NormalizeRows& rows, const float* x, float* y) {
  const Tag d;
  const int64_t n = rows.columns;
  Vector sum0 = hn::Zero(d);
  Vector sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, x + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, x + i + kLanes));
  }
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) total += x[i];
  const float mean = total / static_cast<float>(n);
  const Vector m = hn::Set(d, mean);
  sum0 = sum1 = hn::Zero(d);
  for (i = 0; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vector a = hn::Sub(hn::LoadU(d, x + i), m);
    const Vector b = hn::Sub(hn::LoadU(d, x + i + kLanes), m);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
  const float factor = 1.0f / std::sqrt(total / static_cast<float>(n) + rows.epsilon);
  const Vector f = hn::Set(d, factor);
  for (i = 0; i + kLanes <= n; i += kLanes) {
    const Vector v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), m), f);
    const Vector b = rows.beta != nullptr ? hn::LoadU(d, rows.beta + i) : hn::Zero(d);
    hn::StoreU(hn::MulAdd(v, hn::LoadU(d, rows.gamma + i), b), d, y + i);
  }
  for (; i < n; ++i) {
    y[i] = (x[i] - mean) * factor * rows.gamma[i] + (rows.beta != nullptr ? rows.beta[i] : 0.0f);
  }
}

void normalize(const NormalizeRows& rows) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    normalize_row(rows, rows.x + r * rows.columns, rows.y + r * rows.columns);
  }
}

/// x^-beta. The exponent of nearly all models has a form with square roots alone.
HWY_INLINE Vector negative_power(Tag d, Vector x, float beta) {
  if (beta == 0.75f) {
    const Vector root = hn::Sqrt(x);
    return hn::Div(hn::Set(d, 1.0f), hn::Mul(root, hn::Sqrt(root)));
  }
  if (beta == 0.5f) return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));
  return hn::Exp(d, hn::Mul(hn::Set(d, -beta), hn::Log(d, x)));
}

void local_response(const LocalResponse& response, const float* x, float* y, float* squares) {
  const Tag d;
  const int64_t before = (response.size - 1) / 2;
  const int64_t padded = response.channels + response.size;
  for (int64_t i = 0; i < before; ++i) squares[i] = 0.0f;
  for (int64_t c = 0; c < response.channels; ++c) squares[before + c] = x[c] * x[c];
  for (int64_t i = before + response.channels; i < padded; ++i) squares[i] = 0.0f;
  const Vector scale = hn::Set(d, response.alpha / static_cast<float>(response.size));
  const Vector bias = hn::Set(d, response.bias);
  int64_t c = 0;
  for (; c + kLanes <= response.channels; c += kLanes) {
    Vector sum = hn::Zero(d);
    for (int64_t i = 0; i < response.size; ++i) sum = hn::Add(sum, hn::LoadU(d, squares + c + i));
    const Vector factor = negative_power(d, hn::MulAdd(scale, sum, bias), response.beta);
    hn::StoreU(hn::Mul(hn::LoadU(d, x + c), factor), d, y + c);
  }
  for (; c < response.channels; ++c) {
    float sum = 0.0f;
    for (int64_t i = 0; i < response.size; ++i) sum += squares[c + i];
    const float base = response.bias + response.alpha / static_cast<float>(response.size) * sum;
    y[c] = x[c] * std::pow(base, -response.beta);
  }
}

/// exp(x - max) over a row into y; returns the sum.
HWY_INLINE float exponentials(const float* x, float* y, int64_t columns, float max) {
  const Tag d;
  const Vector m = hn::Set(d, max);
  Vector sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    const Vector e = hn::Exp(d, hn::Sub(hn::LoadU(d, x + i), m));
    hn::StoreU(e, d, y + i);
    sum = hn::Add(sum, e);
  }
  if (i < columns) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(columns - i));
    const Vector e = hn::Exp(d, hn::Sub(load_first(mask, d, x + i), m));
    store_first(mask, d, e, y + i);
    sum = hn::Add(sum, hn::IfThenElseZero(mask, e));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// z = x + addend into y; returns the largest.
HWY_INLINE float add_and_max(const float* x, const float* addend, float* y, int64_t columns) {
  const Tag d;
  float max = x[0] + addend[0];
  Vector best = hn::Set(d, max);
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    const Vector z = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, addend + i));
    hn::StoreU(z, d, y + i);
    best = hn::Max(best, z);
  }
  max = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < columns; ++i) {
    y[i] = x[i] + addend[i];
    max = y[i] > max ? y[i] : max;
  }
  return max;
}

HWY_INLINE float max_of(const float* x, int64_t columns) {
  const Tag d;
  Vector best = hn::Set(d, x[0]);
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) best = hn::Max(best, hn::LoadU(d, x + i));
  float max = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < columns; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

void softmax(const float* x, const float* addend, float* y, int64_t rows, int64_t columns) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    const float max = addend != nullptr ? add_and_max(x, addend, y, columns) : max_of(x, columns);
    const float factor = 1.0f / exponentials(addend != nullptr ? y : x, y, columns, max);
    const Vector scale = hn::Set(d, factor);
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, y + i), scale), d, y + i);
    for (; i < columns; ++i) y[i] *= factor;
  }
}

/// Distances from the mean do not cancel, as the mean of squares would.
template <class Load, class Store>
HWY_INLINE void channel_moments(const Load& load, const Store& store, const float* x,
                                int64_t pixels, int64_t channels, float* mean, float* squares) {
  const Tag d;
  Vector sum = hn::Zero(d);
  for (int64_t p = 0; p < pixels; ++p) sum = hn::Add(sum, load(x + p * channels));
  const Vector m = hn::Mul(sum, hn::Set(d, 1.0f / static_cast<float>(pixels)));
  Vector square = hn::Zero(d);
  for (int64_t p = 0; p < pixels; ++p) {
    const Vector distance = hn::Sub(load(x + p * channels), m);
    square = hn::MulAdd(distance, distance, square);
  }
  store(m, mean);
  store(square, squares);
}

void moments(const float* x, int64_t pixels, int64_t channels, float* mean, float* squares) {
  const Tag d;
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    channel_moments([&](const float* from) HWY_ATTR { return hn::LoadU(d, from); },
                    [&](Vector v, float* to) HWY_ATTR { hn::StoreU(v, d, to); }, x + c, pixels,
                    channels, mean + c, squares + c);
  }
  if (c == channels) return;
  const auto mask = hn::FirstN(d, static_cast<size_t>(channels - c));
  channel_moments([&](const float* from) HWY_ATTR { return load_first(mask, d, from); },
                  [&](Vector v, float* to) HWY_ATTR { store_first(mask, d, v, to); }, x + c, pixels,
                  channels, mean + c, squares + c);
}

}  // namespace

const ChannelKernels& channel_table() {
  static constexpr ChannelKernels kKernels = {shuffle,        deinterleave, normalize,
                                              local_response, softmax,      moments};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const ChannelKernels& channel_kernels(Isa isa) { BP_SELECT_TARGET(isa, channel_table()); }

}  // namespace backplane::cpu
#endif
