#include "plugins/cpu/kernels/compare.hpp"

#include <type_traits>

#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/compare.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

RowLoops find_compare(Compare compare, sdk::DataType type);

namespace {

// Plain loops: the compiler makes vectors of this target of them.
template <class T, Compare compare>
HWY_INLINE std::uint8_t test(T a, T b) {
  if constexpr (compare == Compare::kEqual) return a == b;
  if constexpr (compare == Compare::kLess) return a < b;
  if constexpr (compare == Compare::kLessOrEqual) return a <= b;
  if constexpr (compare == Compare::kGreater) return a > b;
  if constexpr (compare == Compare::kGreaterOrEqual) return a >= b;
}

template <RowForm form, class T, Compare compare>
void rows(const RowArgs& args) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const auto* HWY_RESTRICT a = reinterpret_cast<const T*>(args.a + row * args.a_stride);
    const auto* HWY_RESTRICT b = reinterpret_cast<const T*>(args.b + row * args.b_stride);
    auto* HWY_RESTRICT y = reinterpret_cast<std::uint8_t*>(args.y + row * args.y_stride);
    const T first = *a;
    const T second = *b;
    const std::int64_t n = args.n;  // the compiler must see that y does not change it
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = test<T, compare>(form == RowForm::kSecond ? first : a[i],
                              form == RowForm::kFirst ? second : b[i]);
    }
  }
}

template <class T, Compare compare>
constexpr RowLoops kLoops{{rows<RowForm::kBoth, T, compare>, rows<RowForm::kFirst, T, compare>,
                           rows<RowForm::kSecond, T, compare>}};

template <class T>
RowLoops choose(Compare compare) {
  switch (compare) {
    case Compare::kEqual:
      return kLoops<T, Compare::kEqual>;
    case Compare::kLess:
      return kLoops<T, Compare::kLess>;
    case Compare::kLessOrEqual:
      return kLoops<T, Compare::kLessOrEqual>;
    case Compare::kGreater:
      return kLoops<T, Compare::kGreater>;
    case Compare::kGreaterOrEqual:
      return kLoops<T, Compare::kGreaterOrEqual>;
  }
  return {{nullptr, nullptr, nullptr}};
}

}  // namespace

RowLoops find_compare(Compare compare, sdk::DataType type) {
  if (type == sdk::DataType::Bool) return choose<std::uint8_t>(compare);
  return common::with_type<float, double, std::int8_t, std::int16_t, std::int32_t, std::int64_t,
                           std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>(
      type, [compare](auto tag) { return choose<typename decltype(tag)::type>(compare); });
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

RowLoops compare_loops(Isa isa, Compare compare, sdk::DataType type) {
  BP_SELECT_TARGET(isa, find_compare(compare, type));
}

}  // namespace backplane::cpu
#endif
