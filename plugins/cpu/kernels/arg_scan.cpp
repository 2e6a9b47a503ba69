#include "plugins/cpu/kernels/arg_scan.hpp"

#include <type_traits>

#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/arg_scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/half_loads-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

ArgScan find_scan(sdk::DataType type, const ArgChoice& choice);

namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <bool kLeast, bool kLast, class W>
HWY_INLINE bool is_better(W value, W so_far) {
  if constexpr (kLeast)
    return kLast ? value <= so_far : value < so_far;
  else
    return kLast ? value >= so_far : value > so_far;
}

// Without branches in the inner loop, whose indices are as wide as its elements: the compiler makes
// vectors of this target of it.
template <class T, bool kLeast, bool kLast>
void scan_columns(const void* from, std::int64_t n, std::int64_t stride, std::int64_t width,
                  std::int64_t* y) {
  using W = common::Wide<T>;
  using Index = std::conditional_t<sizeof(W) == 8, std::int64_t, std::int32_t>;
  const T* x = static_cast<const T*>(from);
  alignas(64) W best[kArgTile];
  alignas(64) Index index[kArgTile];
  for (std::int64_t j = 0; j < width; ++j) {
    best[j] = common::widen(x[j]);
    index[j] = 0;
  }
  for (std::int64_t k = 1; k < n; ++k) {
    const T* row = x + k * stride;
    const auto here = static_cast<Index>(k);
    for (std::int64_t j = 0; j < width; ++j) {
      const W value = common::widen(row[j]);
      const bool better = is_better<kLeast, kLast>(value, best[j]);
      index[j] = better ? here : index[j];
      best[j] = better ? value : best[j];
    }
  }
  for (std::int64_t j = 0; j < width; ++j) y[j] = index[j];
}

/// Types whose long rows vectors go over; those of 16 bits as floats.
#ifdef BP_HAS_HALF_LOADS
constexpr bool kHasHalves = true;
#else
constexpr bool kHasHalves = false;
#endif
template <class T>
constexpr bool kHasVectors = HWY_TARGET != HWY_SCALAR &&
                             (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                              std::is_same_v<T, std::int32_t> ||
                              (kHasHalves && common::kIsHalfType<T>));

template <class T>
HWY_INLINE auto load_wide(const T* from) {
#ifdef BP_HAS_HALF_LOADS
  if constexpr (std::is_same_v<T, common::Half>) {
    return load_floats(reinterpret_cast<const HalfBits*>(from));
  } else if constexpr (std::is_same_v<T, common::BFloat16>) {
    return load_floats(reinterpret_cast<const BFloatBits*>(from));
  } else {
    return hn::LoadU(hn::ScalableTag<T>(), from);
  }
#else
  return hn::LoadU(hn::ScalableTag<T>(), from);
#endif
}

/// First what is the best, then where it is; n is at least a vector.
template <class T, bool kLeast, bool kLast>
std::int64_t scan_long_row(const T* x, std::int64_t n) {
  using W = common::Wide<T>;
  const hn::ScalableTag<W> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const W first = common::widen(x[0]);
  if (first != first) return 0;  // than which nothing is better
  using V = hn::Vec<decltype(d)>;
  const auto better = [](V v, V most) HWY_ATTR {
    return hn::IfThenElse(kLeast ? hn::Lt(v, most) : hn::Gt(v, most), v, most);
  };
  V most = hn::Set(d, first);
  V more = most;
  std::int64_t at = 0;
  for (; at + 2 * lanes <= n; at += 2 * lanes) {
    most = better(load_wide(x + at), most);
    more = better(load_wide(x + at + lanes), more);
  }
  most = better(more, most);
  // The last vector may begin in the one before.
  for (; at < n; at += lanes)
    most = better(load_wide(x + (at + lanes <= n ? at : n - lanes)), most);
  HWY_ALIGN W each[hn::MaxLanes(d)];
  hn::Store(most, d, each);
  W best = each[0];
  for (std::int64_t i = 1; i < lanes; ++i)
    best = is_better<kLeast, false>(each[i], best) ? each[i] : best;
  const auto wanted = hn::Set(d, best);
  if constexpr (kLast) {
    std::int64_t k = n;
    while (k >= lanes && hn::AllFalse(d, hn::Eq(load_wide(x + k - lanes), wanted))) k -= lanes;
    while (common::widen(x[k - 1]) != best) --k;
    return k - 1;
  } else {
    std::int64_t k = 0;
    while (k + lanes <= n && hn::AllFalse(d, hn::Eq(load_wide(x + k), wanted))) k += lanes;
    while (common::widen(x[k]) != best) ++k;
    return k;
  }
}

template <class T, bool kLeast, bool kLast>
std::int64_t scan_row(const void* from, std::int64_t n) {
  const T* x = static_cast<const T*>(from);
  if constexpr (kHasVectors<T>) {
    constexpr std::int64_t kLong = 32;
    if (n >= kLong) return scan_long_row<T, kLeast, kLast>(x, n);
  }
  auto best = common::widen(x[0]);
  std::int64_t index = 0;
  for (std::int64_t k = 1; k < n; ++k) {
    const auto value = common::widen(x[k]);
    if (is_better<kLeast, kLast>(value, best)) {
      best = value;
      index = k;
    }
  }
  return index;
}

template <class T, bool kLeast, bool kLast>
constexpr ArgScan kScan{scan_row<T, kLeast, kLast>, scan_columns<T, kLeast, kLast>};

}  // namespace

ArgScan find_scan(sdk::DataType type, const ArgChoice& choice) {
  return common::with_number(type, [&choice](auto tag) -> ArgScan {
    using T = typename decltype(tag)::type;
    if (choice.least) return choice.last ? kScan<T, true, true> : kScan<T, true, false>;
    return choice.last ? kScan<T, false, true> : kScan<T, false, false>;
  });
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

ArgScan arg_scan(Isa isa, sdk::DataType type, const ArgChoice& choice) {
  BP_SELECT_TARGET(isa, find_scan(type, choice));
}

}  // namespace backplane::cpu
#endif
