#include "plugins/cpu/kernels/reduce_f32.hpp"

#include <cmath>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/reduce_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

FoldF32 find_fold(Fold fold);

namespace {
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

// `add` folds an element into an accumulator, `join` two accumulators into one.
struct Sum {
  static constexpr float kStart = 0;
  static HWY_INLINE V add(V acc, V x) { return hn::Add(acc, x); }
  static HWY_INLINE V join(V a, V b) { return hn::Add(a, b); }
  template <class R>
  static R join_one(R a, R b) {
    return a + b;
  }
};
struct SumAbs : Sum {
  static HWY_INLINE V add(V acc, V x) { return hn::Add(acc, hn::Abs(x)); }
};
struct SumSquare : Sum {
  static HWY_INLINE V add(V acc, V x) { return hn::MulAdd(x, x, acc); }
};
struct Prod {
  static constexpr float kStart = 1;
  static HWY_INLINE V add(V acc, V x) { return hn::Mul(acc, x); }
  static HWY_INLINE V join(V a, V b) { return hn::Mul(a, b); }
  template <class R>
  static R join_one(R a, R b) {
    return a * b;
  }
};
struct Max {
  static constexpr float kStart = -HUGE_VALF;
  static HWY_INLINE V add(V acc, V x) {
    return hn::IfThenElse(hn::IsNaN(acc), acc, at_least(acc, x));
  }
  static HWY_INLINE V join(V a, V b) { return add(a, b); }
  template <class R>
  static R join_one(R a, R b) {
    return a != a || a > b ? a : b;
  }
};
struct Min {
  static constexpr float kStart = HUGE_VALF;
  static HWY_INLINE V add(V acc, V x) {
    return hn::IfThenElse(hn::IsNaN(acc), acc, at_most(acc, x));
  }
  static HWY_INLINE V join(V a, V b) { return add(a, b); }
  template <class R>
  static R join_one(R a, R b) {
    return a != a || a < b ? a : b;
  }
};

/// The fold of a vector's lanes.
template <class Op>
float across(V v) {
  const Tag d;
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  float result = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) result = Op::join_one(result, lanes[i]);
  return result;
}

template <class Op>
float block(const float* x, size_t count) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  // Four accumulators hide the latency of the addition and make for smaller partial sums.
  V acc0 = hn::Set(d, Op::kStart);
  V acc1 = acc0;
  V acc2 = acc0;
  V acc3 = acc0;
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    acc0 = Op::add(acc0, hn::LoadU(d, x + i));
    acc1 = Op::add(acc1, hn::LoadU(d, x + i + lanes));
    acc2 = Op::add(acc2, hn::LoadU(d, x + i + 2 * lanes));
    acc3 = Op::add(acc3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) acc0 = Op::add(acc0, hn::LoadU(d, x + i));
  if (i < count) {
    const auto tail = hn::FirstN(d, count - i);
    acc1 = hn::IfThenElse(tail, Op::add(acc1, load_some(d, x + i, count - i)), acc1);
  }
  return across<Op>(Op::join(Op::join(acc0, acc1), Op::join(acc2, acc3)));
}

/// Long rows are folded block by block, and the blocks in double: one running float would lose the bits
/// of millions of small terms.
template <class Op>
float row(const float* x, std::int64_t n) {
  constexpr size_t kBlock = 16384;
  const auto count = static_cast<size_t>(n);
  if (count <= kBlock) return block<Op>(x, count);
  double total = Op::kStart;
  for (size_t i = 0; i < count; i += kBlock) {
    const size_t some = count - i < kBlock ? count - i : kBlock;
    total = Op::join_one(total, static_cast<double>(block<Op>(x + i, some)));
  }
  return static_cast<float>(total);
}

template <class Op>
void columns(const float* x, std::int64_t stride, std::int64_t rows, float* acc, std::int64_t n) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const auto count = static_cast<size_t>(n);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    V acc0 = hn::LoadU(d, acc + i);
    V acc1 = hn::LoadU(d, acc + i + lanes);
    const float* from = x + i;
    for (std::int64_t r = 0; r < rows; ++r, from += stride) {
      acc0 = Op::add(acc0, hn::LoadU(d, from));
      acc1 = Op::add(acc1, hn::LoadU(d, from + lanes));
    }
    hn::StoreU(acc0, d, acc + i);
    hn::StoreU(acc1, d, acc + i + lanes);
  }
  for (; i < count; i += lanes) {
    const size_t some = count - i < lanes ? count - i : lanes;
    V sum = load_some(d, acc + i, some);
    const float* from = x + i;
    for (std::int64_t r = 0; r < rows; ++r, from += stride) {
      sum = Op::add(sum, some == lanes ? hn::LoadU(d, from) : load_some(d, from, some));
    }
    store_some(d, sum, acc + i, some);
  }
}

template <class Op>
FoldF32 folds() {
  return {row<Op>, columns<Op>};
}

}  // namespace

FoldF32 find_fold(Fold fold) {
  switch (fold) {
    case Fold::kSum:
      return folds<Sum>();
    case Fold::kSumAbs:
      return folds<SumAbs>();
    case Fold::kSumSquare:
      return folds<SumSquare>();
    case Fold::kProd:
      return folds<Prod>();
    case Fold::kMax:
      return folds<Max>();
    case Fold::kMin:
      return folds<Min>();
  }
  return {nullptr, nullptr};
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

float fold_start(Fold fold) {
  switch (fold) {
    case Fold::kProd:
      return 1;
    case Fold::kMax:
      return -HUGE_VALF;
    case Fold::kMin:
      return HUGE_VALF;
    default:
      return 0;
  }
}

FoldF32 fold_f32(Isa isa, Fold fold) { BP_SELECT_TARGET(isa, find_fold(fold)); }

}  // namespace backplane::cpu
#endif
