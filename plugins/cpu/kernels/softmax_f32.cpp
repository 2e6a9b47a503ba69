#include "plugins/cpu/kernels/softmax_f32.hpp"

#include <algorithm>
#include <cmath>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/softmax_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const SoftmaxF32& find_softmax();

namespace {
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

float max_of(const float* x, size_t n) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  V acc0 = hn::Set(d, -HUGE_VALF);
  V acc1 = acc0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    acc0 = hn::Max(acc0, hn::LoadU(d, x + i));
    acc1 = hn::Max(acc1, hn::LoadU(d, x + i + lanes));
  }
  for (; i + lanes <= n; i += lanes) acc0 = hn::Max(acc0, hn::LoadU(d, x + i));
  if (i < n) {
    const V tail = load_some(d, x + i, n - i);
    acc1 = hn::IfThenElse(hn::FirstN(d, n - i), hn::Max(acc1, tail), acc1);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(acc0, acc1)));
}

/// Sums e^(x[i] - max); writes the terms to y unless it is null.
template <bool kStore>
float sum_of_exp(const float* x, float* y, size_t n, float max) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const V shift = hn::Set(d, max);
  V sum0 = hn::Zero(d);
  V sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V e0 = vector_exp_negative(d, hn::Sub(hn::LoadU(d, x + i), shift));
    const V e1 = vector_exp_negative(d, hn::Sub(hn::LoadU(d, x + i + lanes), shift));
    if constexpr (kStore) {
      hn::StoreU(e0, d, y + i);
      hn::StoreU(e1, d, y + i + lanes);
    }
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  for (; i < n; i += lanes) {
    const size_t some = n - i < lanes ? n - i : lanes;
    const V e = vector_exp_negative(d, hn::Sub(load_some(d, x + i, some), shift));
    if constexpr (kStore) store_some(d, e, y + i, some);
    sum0 = hn::Add(sum0, hn::IfThenElseZero(hn::FirstN(d, some), e));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

void scale_row(float* y, size_t n, float factor) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const V scale = hn::Set(d, factor);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), scale), d, y + i);
  if (i < n) store_some(d, hn::Mul(load_some(d, y + i, n - i), scale), y + i, n - i);
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

void log_row(const float* x, float* y, std::int64_t count) {
  const Tag d;
  const auto n = static_cast<size_t>(count);
  const size_t lanes = hn::Lanes(d);
  const float max = max_of(x, n);
  // Two subtractions: max + ln(sum) as one number would lose bits when max is large.
  const V shift = hn::Set(d, max);
  const V log_sum = hn::Set(d, std::log(sum_of_exp<false>(x, nullptr, n, max)));
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), shift), log_sum), d, y + i);
  }
  if (i < n) {
    const V tail = load_some(d, x + i, n - i);
    store_some(d, hn::Sub(hn::Sub(tail, shift), log_sum), y + i, n - i);
  }
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
