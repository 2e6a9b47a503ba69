#include "plugins/cpu/kernels/binary_f32.hpp"

#include <cmath>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/binary_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

RowLoops find_binary(BinaryOp op);

namespace {
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

#define BP_BINARY(Name, expression)                                     \
  struct Name {                                                         \
    HWY_INLINE V operator()(Tag, V a, V b) const { return expression; } \
  }

BP_BINARY(Add, hn::Add(a, b));
BP_BINARY(Sub, hn::Sub(a, b));
BP_BINARY(Mul, hn::Mul(a, b));
BP_BINARY(Div, hn::Div(a, b));
BP_BINARY(Max, hn::IfThenElse(hn::IsNaN(a), a, at_least(a, b)));
BP_BINARY(Min, hn::IfThenElse(hn::IsNaN(a), a, at_most(a, b)));
BP_BINARY(PRelu, hn::IfThenElse(hn::Lt(a, hn::Zero(Tag())), hn::Mul(a, b), a));
#undef BP_BINARY

template <RowForm form, class Op>
void loop(const RowArgs& args) {
  const Tag d;
  const Op op;
  const size_t lanes = hn::Lanes(d);
  const auto n = static_cast<size_t>(args.n);
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const auto* a = reinterpret_cast<const float*>(args.a + row * args.a_stride);
    const auto* b = reinterpret_cast<const float*>(args.b + row * args.b_stride);
    auto* y = reinterpret_cast<float*>(args.y + row * args.y_stride);
    const V first = hn::Set(d, form == RowForm::kSecond ? *a : 0.0f);
    const V second = hn::Set(d, form == RowForm::kFirst ? *b : 0.0f);
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const V va = form == RowForm::kSecond ? first : hn::LoadU(d, a + i);
      const V vb = form == RowForm::kFirst ? second : hn::LoadU(d, b + i);
      hn::StoreU(op(d, va, vb), d, y + i);
    }
    if (i < n) {
      const V va = form == RowForm::kSecond ? first : load_some(d, a + i, n - i);
      const V vb = form == RowForm::kFirst ? second : load_some(d, b + i, n - i);
      store_some(d, op(d, va, vb), y + i, n - i);
    }
  }
}

template <class Op>
RowLoops loops() {
  return {{loop<RowForm::kBoth, Op>, loop<RowForm::kFirst, Op>, loop<RowForm::kSecond, Op>}};
}

#if HWY_NATIVE_FMA
/// The C library's remainder of some lanes.
HWY_NOINLINE V remainder_of_large(V a, V b, V y, hn::Mask<Tag> is_ready) {
  const Tag d;
  HWY_ALIGN float dividends[hn::MaxLanes(Tag())];
  HWY_ALIGN float divisors[hn::MaxLanes(Tag())];
  HWY_ALIGN float rests[hn::MaxLanes(Tag())];
  hn::Store(a, d, dividends);
  hn::Store(b, d, divisors);
  for (size_t i = 0; i < hn::Lanes(d); ++i) rests[i] = std::fmod(dividends[i], divisors[i]);
  return hn::IfThenElse(is_ready, y, hn::Load(d, rests));
}

/// a less the multiple of b by the whole part of their quotient, which has no error where the multiplication does not round.
/// A quotient that was rounded up to a whole number is one too large.
struct Remainder {
  HWY_INLINE V operator()(Tag d, V a, V b) const {
    const V dividend = hn::Abs(a);
    const V divisor = hn::Abs(b);
    const V quotient = hn::Div(dividend, divisor);
    const V rest = hn::NegMulAdd(hn::Trunc(quotient), divisor, dividend);
    const V positive = hn::IfThenElse(hn::Lt(rest, hn::Zero(d)), hn::Add(rest, divisor), rest);
    const V y = hn::CopySign(positive, a);
    const auto is_ready =
        hn::And(hn::Lt(quotient, hn::Set(d, 8388608.0f)), hn::Lt(divisor, hn::Inf(d)));
    if (HWY_LIKELY(hn::AllTrue(d, is_ready))) return y;
    return remainder_of_large(a, b, y, is_ready);
  }
};

/// With the divisor's sign.
struct FloorRemainder {
  HWY_INLINE V operator()(Tag d, V a, V b) const {
    const V rest = Remainder()(d, a, b);
    const auto differ = hn::Lt(hn::CopySign(hn::Set(d, 1.0f), hn::Xor(a, b)), hn::Zero(d));
    return hn::IfThenElse(hn::And(hn::Ne(rest, hn::Zero(d)), differ), hn::Add(rest, b), rest);
  }
};
#endif

struct Square {
  HWY_INLINE V operator()(Tag, V x, V) const { return hn::Mul(x, x); }
};
struct Cube {
  HWY_INLINE V operator()(Tag, V x, V) const { return hn::Mul(hn::Mul(x, x), x); }
};

/// As std::pow has it: the root of -infinity is infinity, and that of -0 is 0.
struct SquareRoot {
  HWY_INLINE V operator()(Tag d, V x, V) const {
    const V root = hn::Sqrt(hn::Add(x, hn::Zero(d)));
    return hn::IfThenElse(hn::Eq(x, hn::Neg(hn::Inf(d))), hn::Inf(d), root);
  }
};
struct Inverse {
  HWY_INLINE V operator()(Tag d, V x, V) const { return hn::Div(hn::Set(d, 1.0f), x); }
};

template <RowForm form>
void pow_rows(const RowArgs& args) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const auto* a = reinterpret_cast<const float*>(args.a + row * args.a_stride);
    const auto* b = reinterpret_cast<const float*>(args.b + row * args.b_stride);
    auto* y = reinterpret_cast<float*>(args.y + row * args.y_stride);
    for (std::int64_t i = 0; i < args.n; ++i) {
      y[i] = std::pow(form == RowForm::kSecond ? *a : a[i], form == RowForm::kFirst ? *b : b[i]);
    }
  }
}

/// Powers by one exponent, the frequent ones by products and roots.
void pow_by_scalar(const RowArgs& args) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    RowArgs one = args;
    one.a += row * args.a_stride;
    one.b += row * args.b_stride;
    one.y += row * args.y_stride;
    one.rows = 1;
    const float exponent = *reinterpret_cast<const float*>(one.b);
    if (exponent == 2.0f) {
      loop<RowForm::kFirst, Square>(one);
    } else if (exponent == 3.0f) {
      loop<RowForm::kFirst, Cube>(one);
    } else if (exponent == 0.5f) {
      loop<RowForm::kFirst, SquareRoot>(one);
    } else if (exponent == -1.0f) {
      loop<RowForm::kFirst, Inverse>(one);
    } else {
      pow_rows<RowForm::kFirst>(one);
    }
  }
}

}  // namespace

RowLoops find_binary(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return loops<Add>();
    case BinaryOp::kSub:
      return loops<Sub>();
    case BinaryOp::kMul:
      return loops<Mul>();
    case BinaryOp::kDiv:
      return loops<Div>();
    case BinaryOp::kMax:
      return loops<Max>();
    case BinaryOp::kMin:
      return loops<Min>();
    case BinaryOp::kPRelu:
      return loops<PRelu>();
    case BinaryOp::kPow:
      return {{pow_rows<RowForm::kBoth>, pow_by_scalar, pow_rows<RowForm::kSecond>}};
#if HWY_NATIVE_FMA
    case BinaryOp::kMod:
      return loops<FloorRemainder>();
    case BinaryOp::kFMod:
      return loops<Remainder>();
#endif
    default:
      return {{nullptr, nullptr, nullptr}};
  }
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

RowLoops binary_f32(Isa isa, BinaryOp op) { BP_SELECT_TARGET(isa, find_binary(op)); }

}  // namespace backplane::cpu
#endif
