#include "plugins/cpu/kernels/softmax_f64.hpp"

#include <cmath>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/softmax_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"
#include "plugins/cpu/kernels/vector_math_f64-inl.hpp"
#include "plugins/cpu/kernels/vector_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

SoftmaxF64 find_softmax_f64();

#if HWY_NATIVE_FMA && HWY_HAVE_FLOAT64
namespace {

struct ExpNegative {
  HWY_INLINE DoubleV operator()(DoubleV x) const { return double_exp_negative(DoubleTag(), x); }
};

double max_of(const double* x, size_t n) { return max_of_row(DoubleTag(), x, n); }

/// Sums e^(x[i] - max); writes the terms to y where kStore is set.
template <bool kStore>
double sum_of_exp(const double* x, double* y, size_t n, double max) {
  return sum_of_row<kStore>(DoubleTag(), x, y, n, max, ExpNegative());
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
