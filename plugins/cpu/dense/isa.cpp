#include "plugins/cpu/dense/isa.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace backplane::cpu {
namespace {

#if defined(__x86_64__)
/// Whether the processor has tiles of bytes and of bfloat16, and Linux lets the process use them: it saves their 8 KiB for
/// those alone that ask. https://docs.kernel.org/arch/x86/xstate.html
bool has_tiles() {
#if defined(__linux__)
  constexpr unsigned kLeaf = 7, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  constexpr unsigned kAll = kAmxBf16 | kAmxTile | kAmxInt8;
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(kLeaf, 0, &a, &b, &c, &d) != 0 && (d & kAll) == kAll &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

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
  if (!avx512) return Isa::kAvx2;
  static const bool tiles = has_tiles();
  return tiles ? Isa::kAmx : Isa::kAvx512;
#else
  return Isa::kBaseline;
#endif
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return "amx";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kBaseline:
      break;
  }
  return "baseline";
}

bool has_bfloat_products(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return isa >= Isa::kAvx512 && best_isa() >= Isa::kAvx512 && __builtin_cpu_supports("avx512bf16");
#else
  static_cast<void>(isa);
  return false;
#endif
}

}  // namespace backplane::cpu
