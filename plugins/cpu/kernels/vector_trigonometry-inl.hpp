// Sine, cosine and the inverse functions of trigonometry on float for every Highway target. Included like
// vector_math-inl.hpp, which says how polynomials were made and what the errors given mean.
#if defined(BACKPLANE_CPU_VECTOR_TRIGONOMETRY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_VECTOR_TRIGONOMETRY_INL
#undef BACKPLANE_CPU_VECTOR_TRIGONOMETRY_INL
#else
#define BACKPLANE_CPU_VECTOR_TRIGONOMETRY_INL
#endif

#include <cmath>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_NATIVE_FMA
/// The sine of |r| <= pi / 4, and a little more, where the last bit of `quadrant` is 0, otherwise the cosine; errors 4.0e-9
/// and 1.1e-10. The bit before it changes the sign.
template <class D, class V, class VI>
HWY_INLINE V sine_of_quadrant(D d, V r, VI quadrant) {
  const V z = hn::Mul(r, r);
  const V s = horner(d, z, hn::Set(d, -1.950954029e-04f), 8.332122117e-03f, -1.666665375e-01f);
  const V c = horner(d, z, hn::Set(d, 2.442974801e-05f), -1.388729317e-03f, 4.166664556e-02f);
  const V sine = hn::MulAdd(hn::Mul(r, z), s, r);
  const V cosine =
      hn::MulAdd(hn::Mul(z, z), c, hn::NegMulAdd(hn::Set(d, 0.5f), z, hn::Set(d, 1.0f)));
  const V takes_cosine = hn::BitCast(d, hn::ShiftLeft<31>(quadrant));
  const V sign = hn::And(hn::BitCast(d, hn::ShiftLeft<30>(quadrant)), hn::SignBit(d));
  return hn::Xor(hn::IfNegativeThenElse(takes_cosine, cosine, sine), sign);
}

/// Lanes within the bound of vector_sine keep y, the others are the C library's, which reduces numbers of any size.
template <class D, class V>
HWY_NOINLINE V sine_of_large(D d, V x, V y, bool of_cosine) {
  HWY_ALIGN float from[hn::MaxLanes(d)];
  HWY_ALIGN float to[hn::MaxLanes(d)];
  hn::Store(x, d, from);
  hn::Store(y, d, to);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (std::fabs(from[i]) <= 131072.0f) continue;
    to[i] = of_cosine ? std::cos(from[i]) : std::sin(from[i]);
  }
  return hn::Load(d, to);
}

/// sin(x), or cos(x): at most 2 units in the last place from it, near multiples of pi / 2, too. Multiples of pi / 2 are taken
/// off in three parts of 24 bits. The first product less x has no error where the multiplication does not round, so this is
/// for targets that have such an instruction.
template <bool of_cosine, class D, class V>
HWY_INLINE V vector_sine(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V a = hn::Abs(x);
  const V magic = hn::Set(d, 12582912.0f);  // as in exp_in_range
  const V shifted = hn::MulAdd(a, hn::Set(d, 0.636619772f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 1.57079637e+00f), a);
  r = hn::NegMulAdd(n, hn::Set(d, -4.37113883e-08f), r);
  r = hn::NegMulAdd(n, hn::Set(d, -1.71512489e-15f), r);
  const auto whole = hn::BitCast(di, shifted);
  V y;
  if constexpr (of_cosine) {
    y = sine_of_quadrant(d, r, hn::Add(whole, hn::Set(di, 1)));
  } else {
    y = hn::Xor(sine_of_quadrant(d, r, whole), hn::And(x, hn::SignBit(d)));
  }
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(a, hn::Set(d, 131072.0f))))) return y;
  return sine_of_large(d, x, y, of_cosine);
}
#endif  // HWY_NATIVE_FMA

/// hi + (lo - x), where hi + lo is a number that one float does not hold.
template <class D, class V>
HWY_INLINE V two_floats_minus(D d, float hi, float lo, V x) {
  return hn::Add(hn::Set(d, hi), hn::Sub(hn::Set(d, lo), x));
}

/// atan(x): t + t^3 P(t^2) of t = |x| (error 2.6e-9), or of 1 / |x| where that is smaller, which is taken off pi / 2.
template <class D, class V>
HWY_INLINE V vector_atan(D d, V x) {
  const V a = hn::Abs(x);
  const V one = hn::Set(d, 1.0f);
  const auto is_large = hn::Gt(a, one);
  const V t = hn::Div(hn::IfThenElse(is_large, one, a), hn::IfThenElse(is_large, a, one));
  const V z = hn::Mul(t, t);
  const V p = horner(d, z, hn::Set(d, -1.793620293e-03f), 1.091459952e-02f, -3.117783368e-02f,
                     5.795758218e-02f, -8.403449506e-02f, 1.095218584e-01f, -1.426424235e-01f,
                     1.999854892e-01f, -3.333329856e-01f);
  const V y = hn::MulAdd(hn::Mul(t, z), p, t);
  const V rest = two_floats_minus(d, 1.57079637e+00f, -4.37113883e-08f, y);
  return hn::CopySign(hn::IfThenElse(is_large, rest, y), x);
}

/// asin(s) of 0 <= s <= 0.5, where s is |x|, or above 0.5 sqrt((1 - |x|) / 2): asin(|x|) is pi / 2 - 2 asin(s) then.
template <class V, class M>
struct AsinPart {
  V y;
  M is_large;
};

/// s + s^3 P(s^2), error 5.0e-9.
template <class D, class V>
HWY_INLINE auto asin_part(D d, V x) {
  const V a = hn::Abs(x);
  const V half = hn::Set(d, 0.5f);
  const auto is_large = hn::Gt(a, half);
  const V z = hn::IfThenElse(is_large, hn::NegMulAdd(half, a, half), hn::Mul(a, a));
  const V s = hn::IfThenElse(is_large, hn::Sqrt(z), a);
  const V p = horner(d, z, hn::Set(d, 4.221856594e-02f), 2.414760180e-02f, 4.547709972e-02f,
                     7.495241612e-02f, 1.666675359e-01f);
  return AsinPart<V, hn::Mask<D>>{hn::MulAdd(hn::Mul(s, z), p, s), is_large};
}

/// asin(x); NaN beyond 1.
template <class D, class V>
HWY_INLINE V vector_asin(D d, V x) {
  const auto part = asin_part(d, x);
  const V twice = hn::Add(part.y, part.y);
  const V rest = two_floats_minus(d, 1.57079637e+00f, -4.37113883e-08f, twice);
  return hn::CopySign(hn::IfThenElse(part.is_large, rest, part.y), x);
}

/// acos(x), likewise.
template <class D, class V>
HWY_INLINE V vector_acos(D d, V x) {
  const auto part = asin_part(d, x);
  const V twice = hn::Add(part.y, part.y);
  const V below = two_floats_minus(d, 3.14159274e+00f, -8.74227766e-08f, twice);
  const V large = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, twice);
  const V small = two_floats_minus(d, 1.57079637e+00f, -4.37113883e-08f, hn::CopySign(part.y, x));
  return hn::IfThenElse(part.is_large, large, small);
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_VECTOR_TRIGONOMETRY_INL
