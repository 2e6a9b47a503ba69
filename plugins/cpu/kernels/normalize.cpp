#include "plugins/cpu/kernels/normalize.hpp"

#include <hwy/base.h>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/normalize.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const NormalizeLoops<float>& find_float_loops();
const NormalizeLoops<double>& find_double_loops();

namespace {
/// The sum of (x[i] - mean)^2, or with kPlain of x[i].
template <class T, bool kPlain>
T block_sum(const T* x, size_t n, T mean) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  const V center = hn::Set(d, mean);
  V acc0 = hn::Zero(d);
  V acc1 = hn::Zero(d);
  const auto add = [&](V acc, V v) HWY_ATTR {
    if constexpr (kPlain) {
      return hn::Add(acc, v);
    } else {
      const V distance = hn::Sub(v, center);
      return hn::MulAdd(distance, distance, acc);
    }
  };
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    acc0 = add(acc0, hn::LoadU(d, x + i));
    acc1 = add(acc1, hn::LoadU(d, x + i + lanes));
  }
  for (; i + lanes <= n; i += lanes) acc0 = add(acc0, hn::LoadU(d, x + i));
  if (i < n) {
    const V all = add(acc1, load_some(d, x + i, n - i));
    acc1 = hn::IfThenElse(hn::FirstN(d, n - i), all, acc1);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(acc0, acc1)));
}

/// The same over long arrays, block by block in double, so that no bits of the small terms are lost.
template <class T, bool kPlain>
T sum(const T* x, size_t n, T mean) {
  constexpr size_t kBlock = 16384;
  if (n <= kBlock) return block_sum<T, kPlain>(x, n, mean);
  double total = 0;
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t some = n - i < kBlock ? n - i : kBlock;
    total += static_cast<double>(block_sum<T, kPlain>(x + i, some, mean));
  }
  return static_cast<T>(total);
}

template <class T>
Moments<T> moments(const T* x, std::int64_t n) {
  const auto count = static_cast<T>(n);
  const T mean = sum<T, true>(x, static_cast<size_t>(n), T(0)) / count;
  return {mean, sum<T, false>(x, static_cast<size_t>(n), mean) / count};
}

template <class T>
T mean_square(const T* x, std::int64_t n) {
  return sum<T, false>(x, static_cast<size_t>(n), T(0)) / static_cast<T>(n);
}

template <class T>
void affine(const T* x, T* y, std::int64_t count, T scale, T shift) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto n = static_cast<size_t>(count);
  const auto a = hn::Set(d, scale);
  const auto b = hn::Set(d, shift);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), a, b), d, y + i);
  if (i < n) store_some(d, hn::MulAdd(load_some(d, x + i, n - i), a, b), y + i, n - i);
}

template <class T>
void affine_each(const T* x, T* y, std::int64_t count, const T* scale, const T* shift) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto n = static_cast<size_t>(count);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto b = hn::LoadU(d, shift + i);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, scale + i), b), d, y + i);
  }
  if (i < n) {
    const auto a = load_some(d, scale + i, n - i);
    const auto b = load_some(d, shift + i, n - i);
    store_some(d, hn::MulAdd(load_some(d, x + i, n - i), a, b), y + i, n - i);
  }
}

template <class T>
void standardize(const T* x, T* y, std::int64_t count, T mean, T factor, const T* scale,
                 const T* shift) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  const auto n = static_cast<size_t>(count);
  const V center = hn::Set(d, mean);
  const V ratio = hn::Set(d, factor);
  const auto one = [&](V v, V a, V b)
                       HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(v, center), ratio), a, b); };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V b = shift != nullptr ? hn::LoadU(d, shift + i) : hn::Zero(d);
    hn::StoreU(one(hn::LoadU(d, x + i), hn::LoadU(d, scale + i), b), d, y + i);
  }
  if (i < n) {
    const V b = shift != nullptr ? load_some(d, shift + i, n - i) : hn::Zero(d);
    const V a = load_some(d, scale + i, n - i);
    store_some(d, one(load_some(d, x + i, n - i), a, b), y + i, n - i);
  }
}

template <class T>
constexpr NormalizeLoops<T> kLoops{moments<T>, mean_square<T>, affine<T>, affine_each<T>,
                                   standardize<T>};

}  // namespace

const NormalizeLoops<float>& find_float_loops() { return kLoops<float>; }
const NormalizeLoops<double>& find_double_loops() { return kLoops<double>; }

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

template <>
const NormalizeLoops<float>& normalize_loops<float>(Isa isa) {
  BP_SELECT_TARGET(isa, find_float_loops());
}

template <>
const NormalizeLoops<double>& normalize_loops<double>(Isa isa) {
  BP_SELECT_TARGET(isa, find_double_loops());
}

}  // namespace backplane::cpu
#endif
