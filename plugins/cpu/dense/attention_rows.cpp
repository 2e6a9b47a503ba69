#include "plugins/cpu/dense/attention_rows.hpp"

#include <cmath>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/attention_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const AttentionRows& find_attention_rows();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using RowTag = hn::ScalableTag<float>;
using RowVector = hn::Vec<RowTag>;

/// Calls body(i, count) for each vector of [0, n): `count` of its elements exist.
template <class Body>
HWY_INLINE HWY_ATTR void each_vector(std::int64_t n, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(RowTag()));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, static_cast<size_t>(lanes));
  if (i < n) body(i, static_cast<size_t>(n - i));
}

HWY_INLINE RowVector load_row(const float* x, size_t count) {
  const RowTag d;
  return count == hn::Lanes(d) ? hn::LoadU(d, x) : load_some(d, x, count);
}

HWY_INLINE void store_row(RowVector v, float* x, size_t count) {
  const RowTag d;
  if (count == hn::Lanes(d)) {
    hn::StoreU(v, d, x);
  } else {
    store_some(d, v, x, count);
  }
}

void cap_row(float* x, std::int64_t n, float cap) {
  const RowTag d;
  const RowVector high = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  each_vector(n, [&](std::int64_t i, size_t count) HWY_ATTR {
    const RowVector v = hn::Mul(load_row(x + i, count), inverse);
    store_row(hn::Mul(high, vector_tanh(d, v)), x + i, count);
  });
}

void add_row(float* x, const float* addend, std::int64_t n) {
  each_vector(n, [&](std::int64_t i, size_t count) HWY_ATTR {
    store_row(hn::Add(load_row(x + i, count), load_row(addend + i, count)), x + i, count);
  });
}

void keep_row(float* x, const bool* mask, std::int64_t n, bool kept, float otherwise) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = mask[i] == kept ? x[i] : otherwise;
}

float max_row(const float* x, std::int64_t n) {
  const RowTag d;
  const RowVector least = hn::Set(d, -HUGE_VALF);
  RowVector max = least;
  each_vector(n, [&](std::int64_t i, size_t count) HWY_ATTR {
    const RowVector v = load_row(x + i, count);
    max = hn::Max(max, count == hn::Lanes(d) ? v : hn::IfThenElse(hn::FirstN(d, count), v, least));
  });
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

float exp_sum_row(float* x, std::int64_t n, float max) {
  const RowTag d;
  const RowVector shift = hn::Set(d, max);
  RowVector sum = hn::Zero(d);
  each_vector(n, [&](std::int64_t i, size_t count) HWY_ATTR {
    const RowVector e = vector_exp_negative(d, hn::Sub(load_row(x + i, count), shift));
    store_row(e, x + i, count);
    sum = hn::Add(sum, count == hn::Lanes(d) ? e : hn::IfThenElseZero(hn::FirstN(d, count), e));
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void scale_row(const float* x, float* y, std::int64_t n, float factor) {
  const RowVector by = hn::Set(RowTag(), factor);
  each_vector(n, [&](std::int64_t i, size_t count)
                     HWY_ATTR { store_row(hn::Mul(load_row(x + i, count), by), y + i, count); });
}

void turn_row(const float* x, const float* cos, const float* sin, float* y, std::int64_t half) {
  each_vector(half, [&](std::int64_t i, size_t count) HWY_ATTR {
    const RowVector first = load_row(x + i, count), second = load_row(x + half + i, count);
    const RowVector to_first =
        hn::NegMulAdd(second, load_row(sin + i, count), hn::Mul(first, load_row(cos + i, count)));
    const RowVector to_second = hn::MulAdd(first, load_row(sin + half + i, count),
                                           hn::Mul(second, load_row(cos + half + i, count)));
    store_row(to_first, y + i, count);
    store_row(to_second, y + half + i, count);
  });
}

}  // namespace

const AttentionRows& find_attention_rows() {
  static constexpr AttentionRows kRows{cap_row,     add_row,   keep_row, max_row,
                                       exp_sum_row, scale_row, turn_row};
  return kRows;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const AttentionRows& attention_rows(Isa isa) { BP_SELECT_TARGET(isa, find_attention_rows()); }

}  // namespace backplane::cpu
#endif
