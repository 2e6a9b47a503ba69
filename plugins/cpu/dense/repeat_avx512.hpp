// Loops over vectors of AVX-512 that are kept in registers.
#pragma once

#if defined(__x86_64__)
#include <hwy/base.h>
#include <type_traits>
#include <utility>

// What is inlined here, and what this is inlined into, is compiled for at least as much.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace backplane::cpu::avx512 {

template <int... kIndices, class Body>
HWY_INLINE void repeat(std::integer_sequence<int, kIndices...>, const Body& body) {
  (body(std::integral_constant<int, kIndices>()), ...);
}

/// body(0) to body(kCount - 1), each with its index as a constant: GCC keeps an array in registers only where
/// no index has ever been a variable.
template <int kCount, class Body>
HWY_INLINE void repeat(const Body& body) {
  repeat(std::make_integer_sequence<int, kCount>(), body);
}

}  // namespace backplane::cpu::avx512
HWY_POP_ATTRIBUTES
#endif
