#include "plugins/cpu/kernels/unary_f32.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/unary_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"
#include "plugins/cpu/kernels/vector_rows-inl.hpp"
#include "plugins/cpu/kernels/vector_trigonometry-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

UnaryF32 find_unary(UnaryOp op);

namespace {
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

HWY_INLINE V constant(float value) { return hn::Set(Tag(), value); }

/// Base of the functors below: keeps the parameters as vectors.
struct Function {
  explicit Function(const UnaryParams& params) : a(constant(params.a)), b(constant(params.b)) {}
  V a;
  V b;
};

#define BP_UNARY(Name, expression)                                                    \
  struct Name : Function {                                                            \
    using Function::Function;                                                         \
    HWY_INLINE V operator()([[maybe_unused]] Tag d, V x) const { return expression; } \
  }

BP_UNARY(Abs, hn::Abs(x));
BP_UNARY(Neg, hn::Neg(x));
BP_UNARY(Floor, hn::Floor(x));
BP_UNARY(Ceil, hn::Ceil(x));
BP_UNARY(Round, hn::Round(x));
BP_UNARY(Sqrt, hn::Sqrt(x));
BP_UNARY(Reciprocal, hn::Div(constant(1.0f), x));
BP_UNARY(Exp, vector_exp(d, x));
BP_UNARY(Erf, vector_erf(d, x));
BP_UNARY(Tanh, vector_tanh(d, x));
BP_UNARY(Sigmoid, vector_sigmoid(d, x));
BP_UNARY(Softplus, vector_softplus(d, x));
BP_UNARY(Softsign, hn::Div(x, hn::Add(constant(1.0f), hn::Abs(x))));
BP_UNARY(Relu, at_least(hn::Zero(d), x));
BP_UNARY(LeakyRelu, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, x), x));
BP_UNARY(ThresholdedRelu, hn::IfThenElse(hn::Le(x, a), hn::Zero(d), x));
BP_UNARY(HardSigmoid, at_least(hn::Zero(d), at_most(constant(1.0f), hn::MulAdd(a, x, b))));
BP_UNARY(HardSwish,
         hn::Mul(x, at_least(hn::Zero(d), at_most(constant(1.0f), hn::MulAdd(x, constant(1.0f / 6),
                                                                             constant(0.5f))))));
BP_UNARY(Mish, hn::Mul(x, vector_tanh(d, vector_softplus(d, x))));
BP_UNARY(Swish, hn::Mul(x, vector_sigmoid(d, hn::Mul(a, x))));
BP_UNARY(Gelu, hn::Mul(hn::Mul(constant(0.5f), x),
                       hn::Add(constant(1.0f), vector_erf(d, hn::Mul(x, constant(0.707106781f))))));
BP_UNARY(Clip, at_most(b, at_least(a, x)));
#if HWY_NATIVE_FMA
BP_UNARY(Sin, vector_sine<false>(d, x));
BP_UNARY(Cos, vector_sine<true>(d, x));
#endif
BP_UNARY(Asin, vector_asin(d, x));
BP_UNARY(Acos, vector_acos(d, x));
BP_UNARY(Atan, vector_atan(d, x));
#undef BP_UNARY

/// -1, 0 or 1; NaN stays.
struct Sign : Function {
  using Function::Function;
  HWY_INLINE V operator()(Tag d, V x) const {
    const V one = hn::CopySign(hn::Set(d, 1.0f), x);
    return hn::IfThenElse(hn::Or(hn::Eq(x, hn::Zero(d)), hn::IsNaN(x)), x, one);
  }
};

/// e^x - 1 for x <= 0, without cancellation near 0.
HWY_INLINE V exp_minus_one(Tag d, V x) {
  const V near_zero = hn::Add(x, exp_tail(d, x));
  const V far = hn::Sub(vector_exp_negative(d, at_most(hn::Zero(d), x)), hn::Set(d, 1.0f));
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, -0.34f)), near_zero, far);
}

struct Elu : Function {
  using Function::Function;
  HWY_INLINE V operator()(Tag d, V x) const {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, exp_minus_one(d, x)), x);
  }
};

struct Celu : Function {
  using Function::Function;
  HWY_INLINE V operator()(Tag d, V x) const {
    const V below = hn::Mul(a, exp_minus_one(d, hn::Div(x, a)));
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, x);
  }
};

struct Selu : Function {
  using Function::Function;
  HWY_INLINE V operator()(Tag d, V x) const {
    const V below = hn::Mul(a, exp_minus_one(d, x));
    return hn::Mul(b, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, x));
  }
};

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
struct GeluTanh : Function {
  using Function::Function;
  HWY_INLINE V operator()(Tag d, V x) const {
    const V cubic = hn::Mul(hn::Mul(x, x), hn::Set(d, 0.044715f));
    const V inner = hn::Mul(hn::Set(d, 0.797884561f), hn::MulAdd(cubic, x, x));
    return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x), hn::Add(hn::Set(d, 1.0f), vector_tanh(d, inner)));
  }
};

/// Towards 0 by the bias where |x| > lambd, 0 elsewhere.
struct Shrink : Function {
  using Function::Function;
  HWY_INLINE V operator()(Tag d, V x) const {
    const V above = hn::IfThenElseZero(hn::Gt(x, b), hn::Sub(x, a));
    return hn::IfThenElse(hn::Lt(x, hn::Sub(hn::Zero(d), b)), hn::Add(x, a), above);
  }
};

/// Highway's logarithm is right for positive, finite numbers.
struct Log : Function {
  using Function::Function;
  HWY_INLINE V operator()(Tag d, V x) const {
    const V y = hn::Log(d, x);
    const V infinity = hn::Inf(d);
    const V special = hn::IfThenElse(
        hn::Eq(x, hn::Zero(d)), hn::Neg(infinity),
        hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::NaN(d), x));  // x: infinity or NaN
    const auto ordinary = hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, infinity));
    return hn::IfThenElse(ordinary, y, special);
  }
};

template <class Op>
struct OfVector {
  Op op;
  HWY_INLINE V operator()(V x) const { return op(Tag(), x); }
};

template <class Op>
void map(const float* x, float* y, std::int64_t n, const UnaryParams& params) {
  map_row(Tag(), x, y, static_cast<size_t>(n), OfVector<Op>{Op(params)});
}

/// Exp of several vectors at a time, whose range is looked at together.
void map_exp(const float* x, float* y, std::int64_t n, const UnaryParams& params) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const auto count = static_cast<size_t>(n);
  const V bound = constant(87.0f);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const V a = hn::LoadU(d, x + i);
    const V b = hn::LoadU(d, x + i + lanes);
    const V c = hn::LoadU(d, x + i + 2 * lanes);
    const V e = hn::LoadU(d, x + i + 3 * lanes);
    const V far = at_least(at_least(hn::Abs(a), hn::Abs(b)), at_least(hn::Abs(c), hn::Abs(e)));
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Lt(far, bound)))) {
      map<Exp>(x + i, y + i, static_cast<std::int64_t>(4 * lanes), params);
      continue;
    }
    hn::StoreU(exp_in_range(d, a), d, y + i);
    hn::StoreU(exp_in_range(d, b), d, y + i + lanes);
    hn::StoreU(exp_in_range(d, c), d, y + i + 2 * lanes);
    hn::StoreU(exp_in_range(d, e), d, y + i + 3 * lanes);
  }
  map<Exp>(x + i, y + i, n - static_cast<std::int64_t>(i), params);
}

}  // namespace

UnaryF32 find_unary(UnaryOp op) {
  switch (op) {
    case UnaryOp::kAbs:
      return map<Abs>;
    case UnaryOp::kNeg:
      return map<Neg>;
    case UnaryOp::kSign:
      return map<Sign>;
    case UnaryOp::kFloor:
      return map<Floor>;
    case UnaryOp::kCeil:
      return map<Ceil>;
    case UnaryOp::kRound:
      return map<Round>;
    case UnaryOp::kSqrt:
      return map<Sqrt>;
    case UnaryOp::kReciprocal:
      return map<Reciprocal>;
    case UnaryOp::kExp:
      return map_exp;
    case UnaryOp::kLog:
      return map<Log>;
    case UnaryOp::kErf:
      return map<Erf>;
    case UnaryOp::kTanh:
      return map<Tanh>;
    case UnaryOp::kSigmoid:
      return map<Sigmoid>;
    case UnaryOp::kSoftplus:
      return map<Softplus>;
    case UnaryOp::kSoftsign:
      return map<Softsign>;
    case UnaryOp::kRelu:
      return map<Relu>;
    case UnaryOp::kLeakyRelu:
      return map<LeakyRelu>;
    case UnaryOp::kThresholdedRelu:
      return map<ThresholdedRelu>;
    case UnaryOp::kElu:
      return map<Elu>;
    case UnaryOp::kCelu:
      return map<Celu>;
    case UnaryOp::kSelu:
      return map<Selu>;
    case UnaryOp::kHardSigmoid:
      return map<HardSigmoid>;
    case UnaryOp::kHardSwish:
      return map<HardSwish>;
    case UnaryOp::kMish:
      return map<Mish>;
    case UnaryOp::kSwish:
      return map<Swish>;
    case UnaryOp::kShrink:
      return map<Shrink>;
    case UnaryOp::kGelu:
      return map<Gelu>;
    case UnaryOp::kGeluTanh:
      return map<GeluTanh>;
    case UnaryOp::kClip:
      return map<Clip>;
#if HWY_NATIVE_FMA
    case UnaryOp::kSin:
      return map<Sin>;
    case UnaryOp::kCos:
      return map<Cos>;
#endif
    case UnaryOp::kAsin:
      return map<Asin>;
    case UnaryOp::kAcos:
      return map<Acos>;
    case UnaryOp::kAtan:
      return map<Atan>;
    default:
      return nullptr;  // a loop over the C library's function serves
  }
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

UnaryF32 unary_f32(Isa isa, UnaryOp op) { BP_SELECT_TARGET(isa, find_unary(op)); }

}  // namespace backplane::cpu
#endif
