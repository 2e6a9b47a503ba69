// Loads of floats, and of numbers of 16 bits as the floats that they are, where the target has loads of these. Included by
// kernel files, once per target, after <hwy/highway.h>; hence the guard that toggles instead of #pragma once.
#if defined(BACKPLANE_CPU_HALF_LOADS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_HALF_LOADS_INL
#undef BACKPLANE_CPU_HALF_LOADS_INL
#else
#define BACKPLANE_CPU_HALF_LOADS_INL
#endif

#include <cstdint>
#include <hwy/highway.h>

#undef BP_HAS_HALF_LOADS
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define BP_HAS_HALF_LOADS
#endif

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A vector of floats, at any alignment.
HWY_INLINE hn::Vec<hn::ScalableTag<float>> load_floats(const float* from) {
  return hn::LoadU(hn::ScalableTag<float>(), from);
}

#ifdef BP_HAS_HALF_LOADS
struct HalfBits {
  std::uint16_t bits;
};
struct BFloatBits {
  std::uint16_t bits;
};

HWY_INLINE hn::Vec<hn::ScalableTag<float>> load_floats(const HalfBits* from) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
}

HWY_INLINE hn::Vec<hn::ScalableTag<float>> load_floats(const BFloatBits* from) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const hn::RebindToUnsigned<decltype(d)> word;
  const auto bits = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(word, bits)));
}
#endif

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_HALF_LOADS_INL
