// What a kernel does before those before it have ended, as words for kernels of CUDA's devices: it has what only it reads brought near.
#pragma once

namespace backplane::common {

/// A kernel that has these words begins with NEXT_MAY_BEGIN and comes to OWN_TURN on every way, and only then touches memory (IN_TURN of
/// prelude.hpp is both, where it begins). Before, what WILL_BE_READ comes from memory to the cache that all of the device shares, so that
/// it does no harm where it is still being written: the small kernels before a product with weights leave the memory idle. Elsewhere
/// the words mean nothing.
inline constexpr char kEarlyReadingWords[] = R"kernel(
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
#define READS_EARLY 1
#define NEXT_MAY_BEGIN asm volatile("griddepcontrol.launch_dependents;" : : : "memory")
#define OWN_TURN asm volatile("griddepcontrol.wait;" : : : "memory")
#define WILL_BE_READ(p) asm volatile("prefetch.global.L2 [%0];" : : "l"(p))
#else
#define READS_EARLY 0
#define NEXT_MAY_BEGIN
#define OWN_TURN
#endif
)kernel";

}  // namespace backplane::common
