// Vector functions on float for every Highway target. Included by kernel files, once per target, after
// <hwy/highway.h>; hence the guard that toggles instead of #pragma once.
//
// The polynomials are minimax fits made for this file (weighted least squares on Chebyshev nodes, in
// double); the errors given are of the approximation, rounding comes on top (2 to 4 units in the last
// place altogether).
#if defined(BACKPLANE_CPU_VECTOR_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_VECTOR_MATH_INL
#undef BACKPLANE_CPU_VECTOR_MATH_INL
#else
#define BACKPLANE_CPU_VECTOR_MATH_INL
#endif

#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// max(lo, x) and min(hi, x) that keep a NaN in x: x86 returns the second operand then, NEON and the emulation in
/// plain C++ the other one.
template <class V>
HWY_INLINE V at_least(V lo, V x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Max(lo, x);
#else
  return hn::IfThenElse(hn::Lt(x, lo), lo, x);
#endif
}

template <class V>
HWY_INLINE V at_most(V hi, V x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Min(hi, x);
#else
  return hn::IfThenElse(hn::Gt(x, hi), hi, x);
#endif
}

template <class D, class V>
HWY_INLINE V horner(D, V, V sum) {
  return sum;
}

/// c0 + x * (c1 + x * (...)), times nothing: coefficients from the highest down.
template <class D, class V, class... Rest>
HWY_INLINE V horner(D d, V x, V sum, hn::TFromD<D> next, Rest... rest) {
  return horner(d, x, hn::MulAdd(sum, x, hn::Set(d, next)), rest...);
}

/// 2^n for n that is whole, -126 <= n <= 127.
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

/// x - n ln(2), with ln(2) in two parts, the first with zeros at its end, so that n times it is exact.
template <class D, class V>
HWY_INLINE V minus_multiple_of_ln2(D d, V x, V n) {
  return hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f),
                       hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
}

/// e^r for |r| <= ln(2) / 2; error 3.4e-9.
template <class D, class V>
HWY_INLINE V exp_near_zero(D d, V r) {
  return horner(d, r, hn::Set(d, 1.395171725e-03f), 8.369598410e-03f, 4.166618728e-02f,
                1.666651289e-01f, 5.000000101e-01f, 1.0f, 1.0f);
}

/// e^r - 1 - r for |r| <= ln(2) / 2.
template <class D, class V>
HWY_INLINE V exp_tail(D d, V r) {
  const V p = horner(d, r, hn::Set(d, 1.395171725e-03f), 8.369598410e-03f, 4.166618728e-02f,
                     1.666651289e-01f, 5.000000101e-01f);
  return hn::Mul(hn::Mul(r, r), p);
}

/// A float rounded to a whole number n, and 2^n.
template <class V>
struct Rounded {
  V n;
  V power;
};

/// n is x * factor rounded, for -127 <= n <= 128: 2^-127 becomes 0 and 2^128 infinity; n and 2^n of a NaN may be anything.
template <class D, class V>
HWY_INLINE Rounded<V> rounded_product(D d, V x, float factor) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the low bits of the sum; with the exponent's 127
  // added, too, they are the bits of a power of two when shifted to the exponent's place.
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, factor), magic);
  return {hn::Sub(shifted, magic), hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)))};
}

/// e^x for -88 <= x <= 89, 0 below -87.69 and infinity above 88.37; NaN stays.
template <class D, class V>
HWY_INLINE V exp_in_range(D d, V x) {
  const Rounded<V> whole = rounded_product(d, x, 1.44269504f);
  return hn::Mul(exp_near_zero(d, minus_multiple_of_ln2(d, x, whole.n)), whole.power);
}

/// e^x for all x: exact at 0, down to the subnormals, infinity above 88.72; NaN stays.
template <class D, class V>
HWY_INLINE V vector_exp(D d, V x) {
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, 87.0f))))) return exp_in_range(d, x);
  const hn::RebindToSigned<D> di;
  const V clamped = at_most(hn::Set(d, 89.0f), at_least(hn::Set(d, -104.0f), x));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  const V y = exp_near_zero(d, minus_multiple_of_ln2(d, clamped, n));
  // Two factors, since 2^n itself may be too large or too small for a float.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  return hn::Mul(hn::Mul(y, power_of_two(d, half)), power_of_two(d, hn::Sub(whole, half)));
}

/// e^x for x <= 0; 0 below -87.69, which is nothing beside 1 (softmax).
template <class D, class V>
HWY_INLINE V vector_exp_negative(D d, V x) {
  return exp_in_range(d, at_least(hn::Set(d, -88.0f), x));
}

/// 1 / (1 + e^-x); 0 below -88.37, so that it stays so when a large x is a factor, and 1 above 87.
template <class D, class V>
HWY_INLINE V vector_sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V bounded = at_most(hn::Set(d, 87.0f), at_least(hn::Set(d, -89.0f), x));
  const Rounded<V> whole = rounded_product(d, bounded, -1.44269504f);
  // What exp_in_range leaves of -x, with the other sign, and its polynomial with every other sign changed.
  const V r = hn::MulAdd(whole.n, hn::Set(d, -2.12194440e-4f),
                         hn::MulAdd(whole.n, hn::Set(d, 0.693359375f), bounded));
  const V p = horner(d, r, hn::Set(d, 1.395171725e-03f), -8.369598410e-03f, 4.166618728e-02f,
                     -1.666651289e-01f, 5.000000101e-01f, -1.0f, 1.0f);
  return hn::Div(one, hn::MulAdd(p, whole.power, one));
}

/// e^x = 2^n (1 + p), so that e^x - 1 = 2^n p + (2^n - 1), which loses nothing near 0. One float of ln(2) is enough: where n is
/// large, the functions below hardly depend on the rest of it.
template <class V>
struct ExpMinusOne {
  V p;
  V power;
};

template <class D, class V>
HWY_INLINE ExpMinusOne<V> exp_minus_one_parts(D d, V x) {
  const Rounded<V> whole = rounded_product(d, x, 1.44269504f);
  const V r = hn::NegMulAdd(whole.n, hn::Set(d, 0.693147181f), x);
  const V q = horner(d, r, hn::Set(d, 1.395171725e-03f), 8.369598410e-03f, 4.166618728e-02f,
                     1.666651289e-01f, 5.000000101e-01f);
  return {hn::MulAdd(hn::Mul(r, r), q, r), whole.power};
}

/// tanh(x) = (e^2x - 1) / (e^2x + 1); at most 2.5 units in the last place from it.
template <class D, class V>
HWY_INLINE V vector_tanh(D d, V x) {
  const V a = at_most(hn::Set(d, 10.0f), hn::Abs(x));
  const ExpMinusOne<V> parts = exp_minus_one_parts(d, hn::Add(a, a));
  const V e = hn::MulAdd(parts.p, parts.power, hn::Sub(parts.power, hn::Set(d, 1.0f)));
  return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, 2.0f))), x);
}

/// erf(x) = 1 - e^(x Q(x)) for x >= 0, error 4.0e-9; at most 3 units in the last place from it.
template <class D, class V>
HWY_INLINE V vector_erf(D d, V x) {
  const V a = at_most(hn::Set(d, 3.93f), hn::Abs(x));
  const V q = horner(d, a, hn::Set(d, 9.256271369e-06f), -1.176413207e-04f, 6.328370073e-04f,
                     -1.667027827e-03f, 1.603963610e-04f, 1.915306412e-02f, -1.027778313e-01f,
                     -6.366193891e-01f, -1.128379226e+00f);
  const ExpMinusOne<V> parts = exp_minus_one_parts(d, hn::Mul(a, q));
  const V y = hn::NegMulAdd(parts.p, parts.power, hn::Sub(hn::Set(d, 1.0f), parts.power));
  return hn::CopySign(y, x);
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|).
template <class D, class V>
HWY_INLINE V vector_softplus(D d, V x) {
  const V e = vector_exp_negative(d, hn::Neg(hn::Abs(x)));
  return hn::Add(at_least(hn::Zero(d), x), hn::Log1p(d, e));
}

/// Loads the lanes of a mask by FirstN, others zero. Highway's own load reads all of them on targets that have no
/// masked one: past the end of an array.
template <class D>
HWY_INLINE hn::Vec<D> load_first(hn::Mask<D> mask, D d, const hn::TFromD<D>* from) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::MaskedLoad(mask, d, from);
#else
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)] = {};
  const size_t count = hn::CountTrue(d, mask);
  for (size_t i = 0; i < count; ++i) buffer[i] = from[i];
  return hn::Load(d, buffer);
#endif
}

/// Loads and stores the `n` <= Lanes(d) elements at the end of an array, other lanes zero.
template <class D>
HWY_INLINE hn::Vec<D> load_some(D d, const hn::TFromD<D>* from, size_t n) {
  return load_first<D>(hn::FirstN(d, n), d, from);
}

template <class D, class V>
HWY_INLINE void store_some(D d, V v, hn::TFromD<D>* to, size_t n) {
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(d, n), d, to);
#else  // masked stores are slow on some processors with AVX2
#if HWY_TARGET == HWY_AVX2
  if constexpr (sizeof(hn::TFromD<D>) == 4 && hn::MaxLanes(D()) == 8) {
    if (n == 8) return hn::StoreU(v, d, to);
    const hn::Half<D> four;
    const hn::Half<hn::Half<D>> two;
    auto rest = hn::LowerHalf(four, v);
    if ((n & 4) != 0) {
      hn::StoreU(rest, four, to);
      rest = hn::UpperHalf(four, v);
      to += 4;
    }
    auto last = hn::LowerHalf(two, rest);
    if ((n & 2) != 0) {
      hn::StoreU(last, two, to);
      last = hn::UpperHalf(two, rest);
      to += 2;
    }
    if ((n & 1) != 0) *to = hn::GetLane(last);
    return;
  }
#endif
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  for (size_t i = 0; i < n; ++i) to[i] = buffer[i];
#endif
}

/// Stores the lanes of a mask by FirstN. Highway's own store reads and writes all of them on targets that have no masked one:
/// what another thread writes beside them meanwhile is lost.
template <class D, class V>
HWY_INLINE void store_first(hn::Mask<D> mask, D d, V v, hn::TFromD<D>* to) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  hn::BlendedStore(v, mask, d, to);
#else
  store_some(d, v, to, hn::CountTrue(d, mask));
#endif
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_VECTOR_MATH_INL
