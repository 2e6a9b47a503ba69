// Highway's set-up for kernel files: which targets are compiled, and choosing one at run time.
// Include before <hwy/foreach_target.h>. (No include guard by design of Highway's inclusion scheme is
// needed here: this header holds macros alone.)
#pragma once

// Vectors whose size is known at run time alone cannot be elements or members, which is how tiles hold their sums.
#define BP_SIZELESS_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// On x86-64 three levels are enough: AVX-512, AVX2 with FMA, and plain C++ as the last resort. On Arm there is NEON.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | BP_SIZELESS_TARGETS)
#endif

// To be used in an HWY_ONCE part as the body of a function: returns `call` of the target for `isa`.
// HWY_NAMESPACE is there the namespace of the static target, the baseline.
#if defined(__x86_64__)
#define BP_SELECT_TARGET(isa, call)        \
  switch (isa) {                           \
    case ::backplane::cpu::Isa::kAmx:      \
    case ::backplane::cpu::Isa::kAvx512:   \
      return N_AVX3::call;                 \
    case ::backplane::cpu::Isa::kAvx2:     \
      return N_AVX2::call;                 \
    case ::backplane::cpu::Isa::kBaseline: \
      break;                               \
  }                                        \
  return HWY_NAMESPACE::call
#else
#define BP_SELECT_TARGET(isa, call) \
  static_cast<void>(isa);           \
  return HWY_NAMESPACE::call
#endif
