// Highway's set-up for kernel files: which targets are compiled, and choosing one at run time.
// Include before <hwy/foreach_target.h>. (No include guard by design of Highway's inclusion scheme is
// needed here: this header holds macros alone.)
#pragma once

// Three levels are enough: AVX-512, AVX2 with FMA, and plain C++ as the last resort.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
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
