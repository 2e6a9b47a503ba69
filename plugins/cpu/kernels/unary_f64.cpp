#include "plugins/cpu/kernels/unary_f64.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/unary_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"
#include "plugins/cpu/kernels/vector_math_f64-inl.hpp"
#include "plugins/cpu/kernels/vector_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

UnaryF64 find_unary_f64(UnaryOp op);

#if HWY_NATIVE_FMA && HWY_HAVE_FLOAT64
namespace {

#define BP_UNARY(Name, expression)                   \
  struct Name {                                      \
    DoubleV a;                                       \
    HWY_INLINE DoubleV operator()(DoubleV x) const { \
      [[maybe_unused]] const DoubleTag d;            \
      return expression;                             \
    }                                                \
  }

BP_UNARY(Abs, hn::Abs(x));
BP_UNARY(Neg, hn::Neg(x));
BP_UNARY(Floor, hn::Floor(x));
BP_UNARY(Ceil, hn::Ceil(x));
BP_UNARY(Round, hn::Round(x));
BP_UNARY(Sqrt, hn::Sqrt(x));
BP_UNARY(Reciprocal, hn::Div(hn::Set(d, 1.0), x));
BP_UNARY(Exp, double_exp(d, x));
BP_UNARY(Tanh, double_tanh(d, x));
BP_UNARY(Sigmoid, double_sigmoid(d, x));
BP_UNARY(Softsign, hn::Div(x, hn::Add(hn::Set(d, 1.0), hn::Abs(x))));
BP_UNARY(Relu, at_least(hn::Zero(d), x));
BP_UNARY(LeakyRelu, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, x), x));
BP_UNARY(Swish, hn::Mul(x, double_sigmoid(d, hn::Mul(a, x))));
BP_UNARY(Sin, double_sine<false>(d, x));
BP_UNARY(Cos, double_sine<true>(d, x));
#undef BP_UNARY

template <class Op>
void map(const void* from, void* to, std::int64_t n, const UnaryParams& params) {
  const DoubleTag d;
  map_row(d, static_cast<const double*>(from), static_cast<double*>(to), static_cast<size_t>(n),
          Op{hn::Set(d, static_cast<double>(params.a))});
}

}  // namespace

UnaryF64 find_unary_f64(UnaryOp op) {
  switch (op) {
    case UnaryOp::kAbs:
      return map<Abs>;
    case UnaryOp::kNeg:
      return map<Neg>;
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
      return map<Exp>;
    case UnaryOp::kTanh:
      return map<Tanh>;
    case UnaryOp::kSigmoid:
      return map<Sigmoid>;
    case UnaryOp::kSoftsign:
      return map<Softsign>;
    case UnaryOp::kRelu:
      return map<Relu>;
    case UnaryOp::kLeakyRelu:
      return map<LeakyRelu>;
    case UnaryOp::kSwish:
      return map<Swish>;
    case UnaryOp::kSin:
      return map<Sin>;
    case UnaryOp::kCos:
      return map<Cos>;
    default:
      return nullptr;
  }
}
#else
UnaryF64 find_unary_f64(UnaryOp) { return nullptr; }
#endif

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

UnaryF64 unary_f64(Isa isa, UnaryOp op) { BP_SELECT_TARGET(isa, find_unary_f64(op)); }

}  // namespace backplane::cpu
#endif
