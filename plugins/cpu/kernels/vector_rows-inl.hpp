// Loops over rows of floats or doubles whose length is no multiple of a vector's. Included by kernel files like vector_math-inl.hpp.
#if defined(BACKPLANE_CPU_VECTOR_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_VECTOR_ROWS_INL
#undef BACKPLANE_CPU_VECTOR_ROWS_INL
#else
#define BACKPLANE_CPU_VECTOR_ROWS_INL
#endif

#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

/// y[i] = f(x[i]), i < n.
template <class D, class Function>
HWY_INLINE void map_row(D d, const hn::TFromD<D>* x, hn::TFromD<D>* y, size_t n,
                        const Function& f) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
  if (i < n) store_some(d, f(load_some(d, x + i, n - i)), y + i, n - i);
}

/// The largest of x[i], i < n; -infinity of none.
template <class D>
HWY_INLINE hn::TFromD<D> max_of_row(D d, const hn::TFromD<D>* x, size_t n) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V max0 = hn::Neg(hn::Inf(d));
  V max1 = max0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    max0 = hn::Max(max0, hn::LoadU(d, x + i));
    max1 = hn::Max(max1, hn::LoadU(d, x + i + lanes));
  }
  for (; i + lanes <= n; i += lanes) max0 = hn::Max(max0, hn::LoadU(d, x + i));
  if (i < n) {
    const V tail = load_some(d, x + i, n - i);
    max1 = hn::IfThenElse(hn::FirstN(d, n - i), hn::Max(max1, tail), max1);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
}

/// Sums f(x[i] - shift), i < n; writes the terms to y where kStore is set.
template <bool kStore, class D, class Function>
HWY_INLINE hn::TFromD<D> sum_of_row(D d, const hn::TFromD<D>* x, hn::TFromD<D>* y, size_t n,
                                    hn::TFromD<D> shift, const Function& f) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  const V less = hn::Set(d, shift);
  V sum0 = hn::Zero(d);
  V sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V e0 = f(hn::Sub(hn::LoadU(d, x + i), less));
    const V e1 = f(hn::Sub(hn::LoadU(d, x + i + lanes), less));
    if constexpr (kStore) {
      hn::StoreU(e0, d, y + i);
      hn::StoreU(e1, d, y + i + lanes);
    }
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  for (; i < n; i += lanes) {
    const size_t some = HWY_MIN(lanes, n - i);
    const V e = f(hn::Sub(load_some(d, x + i, some), less));
    if constexpr (kStore) store_some(d, e, y + i, some);
    sum0 = hn::Add(sum0, hn::IfThenElseZero(hn::FirstN(d, some), e));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_VECTOR_ROWS_INL
