// Functions of one element, as text for kernels: each name is a macro or a function of REAL, the type in
// which the program computes floats (LIT(0.5) is a literal of that type). Formulas: ONNX's operator pages.
#pragma once

namespace backplane::common {

inline constexpr char kScalarFunctions[] = R"kernel(
/* In float without a branch or a call, so that compilers make vectors of it: 2^n, with n = rint(x / ln 2), times the
   exponential of the rest by its series (error below 2 units in the last place). CUDA's own is as fast. */
#ifdef __CUDACC__
#define exp_of(x) exp(x)
#else
FUNCTION REAL exp_of(REAL x) {
  if (sizeof(REAL) == 8) return exp(x);
  float v = (float)x;
  v = v < -104.0f ? -104.0f : v > 89.0f ? 89.0f : v;
  /* Adding 1.5 * 2^23 rounds, and leaves the integer in the last bits. */
  float shifted = FMA(v, 1.44269504f, 12582912.0f);
  float n = shifted - 12582912.0f;
  float r = FMA(n, 2.12194440e-4f, FMA(n, -0.693359375f, v));
  float p = 1.0f / 5040.0f;
  p = FMA(p, r, 1.0f / 720.0f);
  p = FMA(p, r, 1.0f / 120.0f);
  p = FMA(p, r, 1.0f / 24.0f);
  p = FMA(p, r, 1.0f / 6.0f);
  p = FMA(p, r, 0.5f);
  p = FMA(p, r, 1.0f);
  p = FMA(p, r, 1.0f);
  i32 whole = (i32)(FLOAT_BITS(shifted) & 0x3FFu);
  whole = whole >= 512 ? whole - 1024 : whole;
  /* In two factors: 2^n alone may be larger or smaller than a normal number. */
  i32 part = whole >> 1;
  float low = BITS_FLOAT((u32)(part + 127) << 23), high = BITS_FLOAT((u32)(whole - part + 127) << 23);
  return (REAL)(p * low * high);
}
#endif
/* Within 1 unit in the last place, and 0 where that is no normal number: without a branch, where a division in full has one and
   ten times the instructions. */
#ifdef __CUDACC__
FUNCTION float near_reciprocal(float x) {
  float made;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(made) : "f"(x));
  return made;
}
#define near_quotient(a, b) ((a) * near_reciprocal(b))
#else
#define near_quotient(a, b) ((a) / (b))
#endif
FUNCTION REAL sigmoid_of(REAL x) { return LIT(1.0) / (LIT(1.0) + exp_of(-x)); }
FUNCTION REAL softplus_of(REAL x) {
  return log1p(exp(-fabs(x))) + (x < LIT(0.0) ? LIT(0.0) : x);
}
FUNCTION REAL tanh_of(REAL x) { return tanh(x); }
FUNCTION REAL relu_of(REAL x) { return x < LIT(0.0) ? LIT(0.0) : x; }
FUNCTION REAL elu_of(REAL x, REAL a) { return x < LIT(0.0) ? a * expm1(x) : x; }
FUNCTION REAL clip_of(REAL x, REAL low, REAL high) {
  return x < low ? low : x > high ? high : x;
}
FUNCTION REAL hard_sigmoid_of(REAL x, REAL a, REAL b) {
  return clip_of(a * x + b, LIT(0.0), LIT(1.0));
}
/* In float a rational function, fitted by iterated least squares over [-4, 4] (error below 4e-7): without a
   branch, so that compilers make vectors of it. */
FUNCTION REAL erf_of(REAL x) {
  if (sizeof(REAL) == 8) return erf(x);
  float v = x < LIT(-4.0) ? -4.0f : x > LIT(4.0) ? 4.0f : (float)x;
  float s = v * v;
  float p = -1.3202046567073467e-08f;
  p = FMA(p, s, 4.68473899672972e-06f);
  p = FMA(p, s, 0.0003796076634898782f);
  p = FMA(p, s, 0.00384961673989892f);
  p = FMA(p, s, 0.05431690812110901f);
  p = FMA(p, s, 0.1852034479379654f);
  p = FMA(p, s, 1.128379225730896f);
  float q = 6.311021570581943e-05f;
  q = FMA(q, s, 0.001307569327764213f);
  q = FMA(q, s, 0.015462095849215984f);
  q = FMA(q, s, 0.11395847797393799f);
  q = FMA(q, s, 0.49746569991111755f);
  q = FMA(q, s, 1.0f);
  float y = near_quotient(v * p, q);
  return y > 1.0f ? 1.0f : y < -1.0f ? -1.0f : y;
}
#if defined(__CUDACC__) && TO_16_BITS
#ifdef __CUDACC__
FUNCTION float near_power_of_2(float x) {
  float made;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(made) : "f"(x));
  return made;
}
#else
#define near_power_of_2(x) exp2(x)
#endif
/* relu(x) - |x| Phi(-|x|), in half the instructions: the logarithm of Phi(-t) to base 2 is a polynomial, fitted by iterated least
   squares over [0, 6], and below it beyond, where the product is less than 16 bits show. Relative error 6e-6 from -6 on. */
FUNCTION REAL gelu_of(REAL x) {
  if (sizeof(REAL) == 8) return LIT(0.5) * x * (LIT(1.0) + erf(x * LIT(0.70710678118654752440)));
  float t = fabs((float)x);
  t = t > 16.0f ? 16.0f : t;
  float p = -1.834844965742377e-06f;
  p = FMA(p, t, 6.159894837765023e-05f);
  p = FMA(p, t, -0.000930529844481498f);
  p = FMA(p, t, 0.008507909253239632f);
  p = FMA(p, t, -0.053960103541612625f);
  p = FMA(p, t, -0.4584643542766571f);
  p = FMA(p, t, -1.1512510776519775f);
  p = FMA(p, t, -0.9999952912330627f);
  return FMA(-t, near_power_of_2(p), (float)x < 0.0f ? 0.0f : (float)x);
}
#else
FUNCTION REAL gelu_of(REAL x) {
  return LIT(0.5) * x * (LIT(1.0) + erf_of(x * LIT(0.70710678118654752440)));
}
#endif
FUNCTION REAL gelu_tanh_of(REAL x) {
  return LIT(0.5) * x * (LIT(1.0) + tanh(LIT(0.79788456080286535588) *
                                         (x + LIT(0.044715) * x * x * x)));
}
FUNCTION REAL sign_of(REAL x) {
  return x > LIT(0.0) ? LIT(1.0) : x < LIT(0.0) ? LIT(-1.0) : x != x ? x : LIT(0.0);
}
FUNCTION REAL greater_of(REAL a, REAL b) { return a > b || a != a ? a : b; }
FUNCTION REAL less_of(REAL a, REAL b) { return a < b || a != a ? a : b; }
FUNCTION REAL floor_mod(REAL a, REAL b) {
  REAL r = fmod(a, b);
  return r != LIT(0.0) && (r < LIT(0.0)) != (b < LIT(0.0)) ? r + b : r;
}
)kernel";

/// Division and powers of integers of type I, without a trap: what has no result gives 0.
inline constexpr char kIntegerFunctions[] = R"kernel(
FUNCTION I quotient_of(I a, I b) {
  if (b == 0) return 0;
  return (I)(b + 1) == 0 && (I)-1 < (I)1 ? (I)(0 - (u64)a) : (I)(a / b);
}
FUNCTION I remainder_of(I a, I b) {
  if (b == 0 || ((I)(b + 1) == 0 && (I)-1 < (I)1)) return 0;
  return (I)(a % b);
}
FUNCTION I floor_remainder_of(I a, I b) {
  I r = remainder_of(a, b);
  return r != 0 && (r < 0) != (b < 0) ? (I)(r + b) : r;
}
FUNCTION I power_of(I base, i64 exponent) {
  if (exponent < 0) return base == 1 ? (I)1 : base + 1 == 0 && (exponent & 1) == 0 ? (I)1 : base + 1 == 0 ? base : (I)0;
  u64 result = 1, factor = (u64)base;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= factor;
    factor *= factor;
  }
  return (I)result;
}
FUNCTION I shift_left(I a, I n) { return (u64)n >= 8 * sizeof(I) ? (I)0 : (I)(a << n); }
FUNCTION I shift_right(I a, I n) {
  if ((u64)n >= 8 * sizeof(I)) return a < 0 ? (I)-1 : (I)0;
  return (I)(a >> n);
}
)kernel";

/// Rounding of a double on its way to 16 bits, so that it is rounded once: see half.hpp.
inline constexpr char kRoundToOdd[] = R"kernel(
FUNCTION float round_to_odd(double value) {
  float nearest = (float)value;
  double back = (double)nearest;
  if (back == value || value != value) return nearest;
  u32 bits = FLOAT_BITS(nearest);
  if (fabs(back) > fabs(value)) --bits;
  return BITS_FLOAT(bits | 1u);
}
)kernel";

/// Products that are rounded before anything is added to them, in functions that begin with EACH_ROUNDED.
inline constexpr char kRoundedProducts[] = R"kernel(
#ifdef __CUDACC__
#define EACH_ROUNDED
FUNCTION float product_of(float a, float b) { return __fmul_rn(a, b); }
FUNCTION double product_of(double a, double b) { return __dmul_rn(a, b); }
#else
#define EACH_ROUNDED _Pragma("OPENCL FP_CONTRACT OFF")
#define product_of(a, b) ((a) * (b))
#endif
)kernel";

}  // namespace backplane::common
