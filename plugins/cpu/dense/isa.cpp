#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

// Highway's own answer comes with a library that measures its timer for milliseconds whenever it is loaded.
Isa best_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (!avx2) return Isa::kBaseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd");
  return avx512 ? Isa::kAvx512 : Isa::kAvx2;
#else
  return Isa::kBaseline;
#endif
}

bool has_bfloat_products(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return isa == Isa::kAvx512 && best_isa() == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16");
#else
  static_cast<void>(isa);
  return false;
#endif
}

}  // namespace backplane::cpu
