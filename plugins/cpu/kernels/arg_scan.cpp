#include "plugins/cpu/kernels/arg_scan.hpp"

#include <type_traits>

#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/arg_scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

ArgScan find_scan(sdk::DataType type, const ArgChoice& choice);

namespace {

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

template <class T, bool kLeast, bool kLast>
std::int64_t scan_row(const void* from, std::int64_t n) {
  const T* x = static_cast<const T*>(from);
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
