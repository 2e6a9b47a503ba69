#include "plugins/cpu/kernels/softmax_f32.hpp"

#include <algorithm>
#include <cmath>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/softmax_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"
#include "plugins/cpu/kernels/vector_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const SoftmaxF32& find_softmax();

namespace {
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

struct ExpNegative {
  HWY_INLINE V operator()(V x) const { return vector_exp_negative(Tag(), x); }
};

float max_of(const float* x, size_t n) { return max_of_row(Tag(), x, n); }

/// Sums e^(x[i] - max); writes the terms to y where kStore is set.
template <bool kStore>
float sum_of_exp(const float* x, float* y, size_t n, float max) {
  return sum_of_row<kStore>(Tag(), x, y, n, max, ExpNegative());
}

struct Scale {
  V factor;
  HWY_INLINE V operator()(V x) const { return hn::Mul(x, factor); }
};

void scale_row(float* y, size_t n, float factor) {
  map_row(Tag(), y, y, n, Scale{hn::Set(Tag(), factor)});
}

/// A maximum of a row, and a sum, are there only some time after its last element was read. Several rows at a time have their maxima
/// found, then their terms, while a cache holds them.
constexpr std::int64_t kMostRows = 16;
constexpr std::int64_t kFloatsOfRows = 2048;

void softmax_rows(const float* x, float* y, std::int64_t length, std::int64_t count) {
  const auto n = static_cast<size_t>(length);
  const std::int64_t most =
      std::clamp(kFloatsOfRows / std::max<std::int64_t>(1, length), std::int64_t{1}, kMostRows);
  float numbers[kMostRows];
  for (std::int64_t from = 0; from < count; from += most) {
    const std::int64_t rows = std::min(most, count - from);
    const float* const source = x + from * length;
    float* const target = y + from * length;
    for (std::int64_t i = 0; i < rows; ++i) numbers[i] = max_of(source + i * length, n);
    for (std::int64_t i = 0; i < rows; ++i) {
      const float sum = sum_of_exp<true>(source + i * length, target + i * length, n, numbers[i]);
      numbers[i] = 1.0f / sum;
    }
    for (std::int64_t i = 0; i < rows; ++i) scale_row(target + i * length, n, numbers[i]);
  }
}

struct Distance {
  V max, log_sum;
  // Two subtractions: max + ln(sum) as one number would lose bits when max is large.
  HWY_INLINE V operator()(V x) const { return hn::Sub(hn::Sub(x, max), log_sum); }
};

void log_row(const float* x, float* y, std::int64_t count) {
  const Tag d;
  const auto n = static_cast<size_t>(count);
  const float max = max_of(x, n);
  const float log_sum = std::log(sum_of_exp<false>(x, nullptr, n, max));
  map_row(d, x, y, n, Distance{hn::Set(d, max), hn::Set(d, log_sum)});
}

/// Softmax down `n` rows of `some` neighbouring columns; kWhole: as many as a vector has lanes.
template <bool kLog, bool kWhole>
HWY_ATTR void vector_of_columns(const float* x, float* y, std::int64_t n, std::int64_t stride,
                                size_t some) {
  const Tag d;
  const auto load = [&](const float* from) HWY_ATTR {
    if constexpr (kWhole)
      return hn::LoadU(d, from);
    else
      return load_some(d, from, some);
  };
  const auto store = [&](V v, float* to) HWY_ATTR {
    if constexpr (kWhole)
      hn::StoreU(v, d, to);
    else
      store_some(d, v, to, some);
  };
  V max = load(x);
  for (std::int64_t k = 1; k < n; ++k) max = hn::Max(max, load(x + k * stride));
  V sum = hn::Zero(d);
  for (std::int64_t k = 0; k < n; ++k) {
    const V e = vector_exp_negative(d, hn::Sub(load(x + k * stride), max));
    if constexpr (!kLog) store(e, y + k * stride);
    sum = hn::Add(sum, e);
  }
  if constexpr (kLog) {
    // Of what is no number, Log makes one.
    const V log_sum = hn::IfThenElse(hn::IsNaN(sum), sum, hn::Log(d, sum));
    for (std::int64_t k = 0; k < n; ++k)
      store(hn::Sub(hn::Sub(load(x + k * stride), max), log_sum), y + k * stride);
  } else {
    const V scale = hn::Div(hn::Set(d, 1.0f), sum);
    for (std::int64_t k = 0; k < n; ++k)
      store(hn::Mul(load(y + k * stride), scale), y + k * stride);
  }
}

template <bool kLog>
void columns_of(const float* x, float* y, std::int64_t n, std::int64_t stride, std::int64_t width) {
  const size_t lanes = hn::Lanes(Tag());
  const auto count = static_cast<size_t>(width);
  size_t j = 0;
  for (; j + lanes <= count; j += lanes)
    vector_of_columns<kLog, true>(x + j, y + j, n, stride, lanes);
  if (j < count) vector_of_columns<kLog, false>(x + j, y + j, n, stride, count - j);
}

/// Rows so short leave most of a vector idle, or one more; as columns, some rows at a time, they fill it.
constexpr std::int64_t kShortRow = 15;

template <bool kLog>
void short_rows(const float* x, float* y, std::int64_t n, std::int64_t count) {
  HWY_ALIGN float columns[kShortRow * kSoftmaxTile];
  for (std::int64_t from = 0; from < count; from += kSoftmaxTile) {
    const std::int64_t width = std::min(kSoftmaxTile, count - from);
    const float* const tile = x + from * n;
    float* const out = y + from * n;
    for (std::int64_t k = 0; k < n; ++k) {
      for (std::int64_t i = 0; i < width; ++i) columns[k * kSoftmaxTile + i] = tile[i * n + k];
    }
    columns_of<kLog>(columns, columns, n, kSoftmaxTile, width);
    for (std::int64_t k = 0; k < n; ++k) {
      for (std::int64_t i = 0; i < width; ++i) out[i * n + k] = columns[k * kSoftmaxTile + i];
    }
  }
}

/// sums[i] = the sum of e^(x - max[i]) over row i; i < width.
void short_sums(const float* x, const float* max, float* sums, std::int64_t n, std::int64_t width) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN float columns[kShortRow * kSoftmaxTile];
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t i = 0; i < width; ++i) columns[k * kSoftmaxTile + i] = x[i * n + k];
  }
  for (std::int64_t i = 0; i < width; i += lanes) {
    const auto some = static_cast<size_t>(std::min(lanes, width - i));
    const V shift = load_some(d, max + i, some);
    V sum = hn::Zero(d);
    for (std::int64_t k = 0; k < n; ++k) {
      const V v = load_some(d, columns + k * kSoftmaxTile + i, some);
      sum = hn::Add(sum, vector_exp_negative(d, hn::Sub(v, shift)));
    }
    store_some(d, sum, sums + i, some);
  }
}

/// Many terms are added in double, block by block.
float long_sum(const float* x, size_t n, float max) {
  constexpr size_t kBlock = 16384;
  if (n <= kBlock) return sum_of_exp<false>(x, nullptr, n, max);
  double sum = 0;
  for (size_t i = 0; i < n; i += kBlock)
    sum += static_cast<double>(sum_of_exp<false>(x + i, nullptr, std::min(kBlock, n - i), max));
  return static_cast<float>(sum);
}

void log_sums(const float* x, const float* max, float* y, std::int64_t n, std::int64_t count) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN float sums[kSoftmaxTile];
  for (std::int64_t from = 0; from < count; from += kSoftmaxTile) {
    const std::int64_t width = std::min(kSoftmaxTile, count - from);
    if (n <= kShortRow) {
      short_sums(x + from * n, max + from, sums, n, width);
    } else {
      for (std::int64_t i = 0; i < width; ++i)
        sums[i] = long_sum(x + (from + i) * n, static_cast<size_t>(n), max[from + i]);
    }
    for (std::int64_t i = 0; i < width; i += lanes) {
      const auto some = static_cast<size_t>(std::min(lanes, width - i));
      const V greatest = load_some(d, max + from + i, some);
      // Of infinity and NaN there is no distance: they are the result.
      const auto finite = hn::Lt(hn::Abs(greatest), hn::Set(d, HUGE_VALF));
      const V sum = hn::IfThenElse(finite, load_some(d, sums + i, some), hn::Set(d, 1.0f));
      store_some(d, hn::Add(greatest, hn::Log(d, sum)), y + from + i, some);
    }
  }
}

template <bool kLog>
void rows_of(const float* x, float* y, std::int64_t n, std::int64_t count) {
  if (n <= kShortRow && count > 1) return short_rows<kLog>(x, y, n, count);
  if constexpr (kLog) {
    for (std::int64_t i = 0; i < count; ++i) log_row(x + i * n, y + i * n, n);
  } else {
    softmax_rows(x, y, n, count);
  }
}

}  // namespace

const SoftmaxF32& find_softmax() {
  static constexpr SoftmaxF32 kSoftmax{rows_of<false>, rows_of<true>, columns_of<false>,
                                       columns_of<true>, log_sums};
  return kSoftmax;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const SoftmaxF32& softmax_f32(Isa isa) { BP_SELECT_TARGET(isa, find_softmax()); }

}  // namespace backplane::cpu
#endif
