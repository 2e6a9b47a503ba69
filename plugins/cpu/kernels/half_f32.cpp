#include "plugins/cpu/kernels/half_f32.hpp"

#include "plugins/common/half.hpp"
#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/half_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const HalfConversion& find_half_conversion(sdk::DataType type);

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using common::BFloat16;
using common::Half;

void half_to_float(const void* from, float* to, std::int64_t n) {
  const auto* x = static_cast<const Half*>(from);
  std::int64_t i = 0;
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  const Tag d;
  const hn::Rebind<hwy::float16_t, Tag> half;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
  for (; i + kLanes <= n; i += kLanes) {
    const auto* source = reinterpret_cast<const hwy::float16_t*>(x + i);
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, source)), d, to + i);
  }
#endif
  for (; i < n; ++i) to[i] = common::to_float(x[i]);
}

void float_to_half(const float* from, void* to, std::int64_t n) {
  auto* y = static_cast<Half*>(to);
  std::int64_t i = 0;
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  const Tag d;
  const hn::Rebind<hwy::float16_t, Tag> half;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
  for (; i + kLanes <= n; i += kLanes) {
    auto* target = reinterpret_cast<hwy::float16_t*>(y + i);
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, from + i)), half, target);
  }
#endif
  for (; i < n; ++i) y[i] = common::to_half(from[i]);
}

// Shifts and integer sums, which the compiler turns into vectors of this target itself.
void bfloat16_to_float(const void* from, float* to, std::int64_t n) {
  const auto* x = static_cast<const BFloat16*>(from);
  for (std::int64_t i = 0; i < n; ++i) to[i] = common::to_float(x[i]);
}

void float_to_bfloat16(const float* from, void* to, std::int64_t n) {
  auto* y = static_cast<BFloat16*>(to);
  for (std::int64_t i = 0; i < n; ++i) y[i] = common::to_bfloat16(from[i]);
}

}  // namespace

const HalfConversion& find_half_conversion(sdk::DataType type) {
  static constexpr HalfConversion kHalf{half_to_float, float_to_half};
  static constexpr HalfConversion kBFloat16{bfloat16_to_float, float_to_bfloat16};
  return type == sdk::DataType::Float16 ? kHalf : kBFloat16;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const HalfConversion& half_conversion(Isa isa, sdk::DataType type) {
  BP_SELECT_TARGET(isa, find_half_conversion(type));
}

}  // namespace backplane::cpu
#endif
