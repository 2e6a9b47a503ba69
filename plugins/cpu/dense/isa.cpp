#include "plugins/cpu/dense/isa.hpp"

#include <hwy/targets.h>

namespace backplane::cpu {

Isa best_isa() {
#if defined(__x86_64__)
  const auto targets = hwy::SupportedTargets();
  if ((targets & HWY_AVX3) != 0) return Isa::kAvx512;
  if ((targets & HWY_AVX2) != 0) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

}  // namespace backplane::cpu
