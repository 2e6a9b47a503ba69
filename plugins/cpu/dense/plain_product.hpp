// Matrix products of any number type by plain loops, for the types that have no packed kernels.
#pragma once

#include <type_traits>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"

namespace backplane::cpu {

/// The type that sums are kept in.
template <class T>
using SumOf = std::conditional_t<common::kIsHalfType<T>, float, T>;

template <class T>
SumOf<T> to_sum(T value) {
  if constexpr (common::kIsHalfType<T>) {
    return common::to_float(value);
  } else {
    return value;
  }
}

template <class T>
T from_sum(SumOf<T> value) {
  if constexpr (std::is_same_v<T, sdk::Half>) {
    return common::to_half(value);
  } else if constexpr (std::is_same_v<T, sdk::BFloat16>) {
    return common::to_bfloat16(value);
  } else {
    return value;
  }
}

/// Integers wrap around, as ONNX's do; signed overflow is avoided by unsigned arithmetic.
template <class S>
S multiply_add(S sum, S a, S b) {
  if constexpr (std::is_integral_v<S>) {
    using U = std::make_unsigned_t<std::common_type_t<S, int>>;
    return static_cast<S>(static_cast<U>(sum) + static_cast<U>(a) * static_cast<U>(b));
  } else {
    return sum + a * b;
  }
}

/// sum over k of a[k * a_step] * b[k * b_step].
template <class T>
SumOf<T> plain_dot(const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t depth) {
  SumOf<T> sum{};
  for (int64_t k = 0; k < depth; ++k) {
    sum = multiply_add<SumOf<T>>(sum, to_sum(a[k * a_step]), to_sum(b[k * b_step]));
  }
  return sum;
}

}  // namespace backplane::cpu
