#include "plugins/cpu/kernels/softmax_f64.hpp"

#include <cmath>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/softmax_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"
#include "plugins/cpu/kernels/vector_math_f64-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

SoftmaxF64 find_softmax_f64();

#if HWY_NATIVE_FMA && HWY_HAVE_FLOAT64
namespace {

double max_of(const double* x, size_t n) {
  const DoubleTag d;
  const size_t lanes = hn::Lanes(d);
  DoubleV max0 = hn::Set(d, -HUGE_VAL);
  DoubleV max1 = max0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    max0 = hn::Max(max0, hn::LoadU(d, x + i));
    max1 = hn::Max(max1, hn::LoadU(d, x + i + lanes));
  }
  for (; i < n; i += lanes) {
    const size_t some = HWY_MIN(lanes, n - i);
    const DoubleV tail = hn::Max(max0, load_some(d, x + i, some));
    max0 = hn::IfThenElse(hn::FirstN(d, some), tail, max0);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
}

/// Sums e^(x[i] - max); writes the terms to y unless it is null.
template <bool kStore>
double sum_of_exp(const double* x, double* y, size_t n, double max) {
  const DoubleTag d;
  const size_t lanes = hn::Lanes(d);
  const DoubleV shift = hn::Set(d, max);
  DoubleV sum0 = hn::Zero(d);
  DoubleV sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const DoubleV e0 = double_exp_negative(d, hn::Sub(hn::LoadU(d, x + i), shift));
    const DoubleV e1 = double_exp_negative(d, hn::Sub(hn::LoadU(d, x + i + lanes), shift));
    if constexpr (kStore) {
      hn::StoreU(e0, d, y + i);
      hn::StoreU(e1, d, y + i + lanes);
    }
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  for (; i < n; i += lanes) {
    const size_t some = HWY_MIN(lanes, n - i);
    const DoubleV e = double_exp_negative(d, hn::Sub(load_some(d, x + i, some), shift));
    if constexpr (kStore) store_some(d, e, y + i, some);
    sum0 = hn::Add(sum0, hn::IfThenElseZero(hn::FirstN(d, some), e));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

void rows_of(const double* x, double* y, std::int64_t n, std::int64_t count) {
  for (std::int64_t row = 0; row < count; ++row, x += n, y += n) {
    const auto length = static_cast<size_t>(n);
    const double scale = 1.0 / sum_of_exp<true>(x, y, length, max_of(x, length));
    for (size_t i = 0; i < length; ++i) y[i] *= scale;
  }
}

void log_rows_of(const double* x, double* y, std::int64_t n, std::int64_t count) {
  for (std::int64_t row = 0; row < count; ++row, x += n, y += n) {
    const auto length = static_cast<size_t>(n);
    const double max = max_of(x, length);
    const double log_sum = std::log(sum_of_exp<false>(x, nullptr, length, max));
    // Two subtractions: max + ln(sum) as one number would lose bits when max is large.
    for (size_t i = 0; i < length; ++i) y[i] = x[i] - max - log_sum;
  }
}

}  // namespace

SoftmaxF64 find_softmax_f64() { return {rows_of, log_rows_of}; }
#else
SoftmaxF64 find_softmax_f64() { return {nullptr, nullptr}; }
#endif

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

SoftmaxF64 softmax_f64(Isa isa) { BP_SELECT_TARGET(isa, find_softmax_f64()); }

}  // namespace backplane::cpu
#endif
