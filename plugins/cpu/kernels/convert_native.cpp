#include "plugins/cpu/kernels/convert_native.hpp"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/convert_native.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

NativeConversion find_conversion(sdk::DataType from, sdk::DataType to);

namespace {

// Plain loops: the compiler makes vectors of this target of them.

/// A floating-point number as an integer of 32 or 64 bits: truncated. What does not fit, which ONNX
/// leaves undefined, becomes the end of the range (of the floating-point numbers in it), and NaN 0.
/// Without branches, so that the compiler can use vectors.
template <class Integer, class Real>
HWY_INLINE Integer to_integer(Real value) {
  using Limits = std::numeric_limits<Integer>;
  constexpr int kLost = Limits::digits > std::numeric_limits<Real>::digits
                            ? Limits::digits - std::numeric_limits<Real>::digits
                            : 0;
  constexpr auto kLeast = static_cast<Real>(Limits::min());
  constexpr auto kGreatest = static_cast<Real>(Limits::max() >> kLost << kLost);
  const Real number = value == value ? value : Real(0);
  const Real raised = number < kLeast ? kLeast : number;
  return static_cast<Integer>(raised > kGreatest ? kGreatest : raised);
}

/// One element, by the rules of Cast.
template <class To, class From>
HWY_INLINE To convert_one(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if constexpr (std::is_same_v<To, std::uint64_t>) {
      constexpr From kHalf = 9223372036854775808.0f;
      if (value >= kHalf) {
        return static_cast<To>(to_integer<std::int64_t>(value - kHalf)) + (To(1) << 63);
      }
      return static_cast<To>(to_integer<std::int64_t>(value));
    } else if constexpr (sizeof(To) < 4 || std::is_same_v<To, std::int32_t>) {
      return static_cast<To>(to_integer<std::int32_t>(value));
    } else {
      return static_cast<To>(to_integer<std::int64_t>(value));
    }
  } else {
    return static_cast<To>(value);
  }
}

/// Where all numbers of a block are those of int32, there is nothing to be careful with, and vectors have an instruction:
/// before AVX-512, they have none for integers of 64 bits.
template <class From, class To>
constexpr bool kThrough32 = (std::is_floating_point_v<From> && std::is_integral_v<To> &&
                             !std::is_same_v<To, bool>) ||
                            (HWY_TARGET != HWY_AVX3 && std::is_same_v<From, std::int64_t> &&
                             std::is_same_v<To, float>);

/// Not 0 for what int32 cannot hold; as wide as the number, for vectors.
template <class From>
HWY_INLINE auto beyond_32(From value) {
  using Word = std::conditional_t<sizeof(From) == 8, std::uint64_t, std::uint32_t>;
  if constexpr (std::is_floating_point_v<From>) {
    const auto low = static_cast<Word>(value > From(-2147483648.0) ? 0 : 1);
    return low | static_cast<Word>(value < From(2147483648.0) ? 0 : 1);
  } else {
    return (static_cast<Word>(value) + 0x80000000u) >> 32;
  }
}

template <class From, class To>
void convert_through_32(const From* HWY_RESTRICT x, To* HWY_RESTRICT y, std::int64_t n) {
  constexpr std::int64_t kBlock = 256;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = n - begin < kBlock ? n : begin + kBlock;
    auto beyond = beyond_32(x[begin]);
    for (std::int64_t i = begin; i < end; ++i) beyond |= beyond_32(x[i]);
    if (beyond == 0) {
      for (std::int64_t i = begin; i < end; ++i)
        y[i] = static_cast<To>(static_cast<std::int32_t>(x[i]));
    } else {
      for (std::int64_t i = begin; i < end; ++i) y[i] = convert_one<To>(x[i]);
    }
  }
}

/// Bools are bytes of 0 or 1, of which the compiler makes vectors.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <class From, class To>
void convert_loop(const void* from, void* to, std::int64_t n) {
  const Stored<From>* HWY_RESTRICT x = static_cast<const Stored<From>*>(from);
  To* HWY_RESTRICT y = static_cast<To*>(to);
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(To));
  } else if constexpr (kThrough32<From, To>) {
    convert_through_32(x, y, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = convert_one<To>(x[i]);
  }
}

template <class Body>
auto with_native(sdk::DataType type, Body&& body) {
  return common::with_type<float, double, bool, std::int8_t, std::int16_t, std::int32_t,
                           std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>(
      type, std::forward<Body>(body));
}

}  // namespace

NativeConversion find_conversion(sdk::DataType from, sdk::DataType to) {
  return with_native(from, [to](auto from_tag) {
    return with_native(to, [](auto to_tag) -> NativeConversion {
      return convert_loop<typename decltype(from_tag)::type, typename decltype(to_tag)::type>;
    });
  });
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

NativeConversion native_conversion(Isa isa, sdk::DataType from, sdk::DataType to) {
  BP_SELECT_TARGET(isa, find_conversion(from, to));
}

}  // namespace backplane::cpu
#endif
