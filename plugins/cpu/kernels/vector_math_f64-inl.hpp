// Vector functions on double for Highway's targets that multiply and add in one rounding. Included by kernel files like
// vector_math-inl.hpp, whose forms they have. The polynomials are Taylor series, long enough that what they leave out is less
// than a sixth of a unit in the last place.
#if defined(BACKPLANE_CPU_VECTOR_MATH_F64_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_VECTOR_MATH_F64_INL
#undef BACKPLANE_CPU_VECTOR_MATH_F64_INL
#else
#define BACKPLANE_CPU_VECTOR_MATH_F64_INL
#endif

#include <cmath>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

#if HWY_NATIVE_FMA && HWY_HAVE_FLOAT64
using DoubleTag = hn::ScalableTag<double>;
using DoubleV = hn::Vec<DoubleTag>;
using DoubleBits = hn::RebindToSigned<DoubleTag>;

/// A sum with it is rounded to a whole number, which then stands in its low bits.
inline constexpr double kWholeDouble = 6755399441055744.0;  // 1.5 * 2^52

/// 2^n for n that is whole, -1022 <= n <= 1023.
HWY_INLINE DoubleV double_power_of_two(DoubleTag d, DoubleV n) {
  const DoubleV shifted = hn::Add(n, hn::Set(d, kWholeDouble + 1023));
  return hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(DoubleBits(), shifted)));
}

/// x / ln(2), rounded to a whole number.
HWY_INLINE DoubleV whole_binary_logarithm(DoubleTag d, DoubleV x) {
  const DoubleV magic = hn::Set(d, kWholeDouble);
  return hn::Sub(hn::MulAdd(x, hn::Set(d, 1.4426950408889634), magic), magic);
}

/// e^r - 1 for |r| <= ln(2) / 2.
HWY_INLINE DoubleV double_exp_minus_one(DoubleTag d, DoubleV r) {
  const DoubleV q =
      horner(d, r, hn::Set(d, 1.0 / 6227020800), 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
             1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

/// x - n ln(2), with ln(2) in two parts.
HWY_INLINE DoubleV double_minus_multiple_of_ln2(DoubleTag d, DoubleV x, DoubleV n) {
  return hn::NegMulAdd(n, hn::Set(d, 2.3190468138462996e-17),
                       hn::NegMulAdd(n, hn::Set(d, 0.6931471805599453), x));
}

/// e^x for all x, down to the subnormals; at most 1 unit in the last place from it. NaN stays.
HWY_INLINE DoubleV double_exp(DoubleTag d, DoubleV x) {
  const DoubleV clamped = at_most(hn::Set(d, 710.0), at_least(hn::Set(d, -746.0), x));
  const DoubleV n = whole_binary_logarithm(d, clamped);
  const DoubleV p = double_exp_minus_one(d, double_minus_multiple_of_ln2(d, clamped, n));
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, 708.0))))) {
    const DoubleV power = double_power_of_two(d, n);
    return hn::MulAdd(p, power, power);
  }
  // Two factors, since 2^n itself may be too large or too small for a double.
  const DoubleV half = hn::Round(hn::Mul(n, hn::Set(d, 0.5)));
  const DoubleV y = hn::Mul(hn::Add(p, hn::Set(d, 1.0)), double_power_of_two(d, half));
  return hn::Mul(y, double_power_of_two(d, hn::Sub(n, half)));
}

/// e^x for x <= 0; 0 below -708, which is nothing beside 1 (softmax).
HWY_INLINE DoubleV double_exp_negative(DoubleTag d, DoubleV x) {
  const DoubleV bounded = at_least(hn::Set(d, -709.0), x);
  const DoubleV n = whole_binary_logarithm(d, bounded);
  const DoubleV p = double_exp_minus_one(d, double_minus_multiple_of_ln2(d, bounded, n));
  const DoubleV power = double_power_of_two(d, n);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -708.0)), hn::MulAdd(p, power, power));
}

/// 1 / (1 + e^-x), down to the subnormals; at most 2.5 units in the last place from it.
HWY_INLINE DoubleV double_sigmoid(DoubleTag d, DoubleV x) {
  const DoubleV one = hn::Set(d, 1.0);
  const DoubleV e = double_exp(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

/// tanh(x) = (e^2x - 1) / (e^2x + 1), as vector_tanh; at most 2.6 units in the last place from it.
HWY_INLINE DoubleV double_tanh(DoubleTag d, DoubleV x) {
  const DoubleV a = at_most(hn::Set(d, 20.0), hn::Abs(x));
  const DoubleV twice = hn::Add(a, a);
  const DoubleV n = whole_binary_logarithm(d, twice);
  const DoubleV p =
      double_exp_minus_one(d, hn::NegMulAdd(n, hn::Set(d, 0.6931471805599453), twice));
  const DoubleV power = double_power_of_two(d, n);
  const DoubleV e = hn::MulAdd(p, power, hn::Sub(power, hn::Set(d, 1.0)));
  return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, 2.0))), x);
}

/// sin(r) of |r| <= pi / 4 where the quadrant is even, cos(r) where it is odd, less than 0 in the second two of four.
HWY_INLINE DoubleV double_sine_of_quadrant(DoubleTag d, DoubleV r, hn::Vec<DoubleBits> quadrant) {
  const DoubleV z = hn::Mul(r, r);
  const DoubleV s =
      horner(d, z, hn::Set(d, 1.0 / 355687428096000), -1.0 / 1307674368000, 1.0 / 6227020800,
             -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  const DoubleV c =
      horner(d, z, hn::Set(d, 1.0 / 20922789888000), -1.0 / 87178291200, 1.0 / 479001600,
             -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5);
  const DoubleV sine = hn::MulAdd(hn::Mul(r, z), s, r);
  const DoubleV cosine = hn::MulAdd(z, c, hn::Set(d, 1.0));
  const DoubleV takes_cosine = hn::BitCast(d, hn::ShiftLeft<63>(quadrant));
  const DoubleV sign = hn::And(hn::BitCast(d, hn::ShiftLeft<62>(quadrant)), hn::SignBit(d));
  return hn::Xor(hn::IfNegativeThenElse(takes_cosine, cosine, sine), sign);
}

/// As sine_of_large.
HWY_NOINLINE inline DoubleV double_sine_of_large(DoubleTag d, DoubleV x, DoubleV y,
                                                 bool of_cosine) {
  HWY_ALIGN double from[hn::MaxLanes(DoubleTag())];
  HWY_ALIGN double to[hn::MaxLanes(DoubleTag())];
  hn::Store(x, d, from);
  hn::Store(y, d, to);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (std::fabs(from[i]) <= 131072.0) continue;
    to[i] = of_cosine ? std::cos(from[i]) : std::sin(from[i]);
  }
  return hn::Load(d, to);
}

/// sin(x), or cos(x), as vector_sine: at most 1.5 units in the last place from it, near multiples of pi / 2, too.
template <bool of_cosine>
HWY_INLINE DoubleV double_sine(DoubleTag d, DoubleV x) {
  const DoubleBits di;
  const DoubleV a = hn::Abs(x);
  const DoubleV magic = hn::Set(d, kWholeDouble);
  const DoubleV shifted = hn::MulAdd(a, hn::Set(d, 0.6366197723675814), magic);
  const DoubleV n = hn::Sub(shifted, magic);
  DoubleV r = hn::NegMulAdd(n, hn::Set(d, 1.5707963267948966), a);
  r = hn::NegMulAdd(n, hn::Set(d, 6.123233995736766e-17), r);
  r = hn::NegMulAdd(n, hn::Set(d, -1.4973849048591698e-33), r);
  const auto whole = hn::BitCast(di, shifted);
  DoubleV y;
  if constexpr (of_cosine) {
    y = double_sine_of_quadrant(d, r, hn::Add(whole, hn::Set(di, 1)));
  } else {
    y = hn::Xor(double_sine_of_quadrant(d, r, whole), hn::And(x, hn::SignBit(d)));
  }
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(a, hn::Set(d, 131072.0))))) return y;
  return double_sine_of_large(d, x, y, of_cosine);
}
#endif  // HWY_NATIVE_FMA && HWY_HAVE_FLOAT64

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_VECTOR_MATH_F64_INL
