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
constexpr size_t kLanes = hn::MaxLanes(Tag());

// `add` folds an element into an accumulator, `join` two accumulators into one.
struct Sum {
  static constexpr float kStart = 0;
  static HWY_INLINE V add(V acc, V x) { return hn::Add(acc, x); }
  static HWY_INLINE V join(V a, V b) { return hn::Add(a, b); }
  static double join_one(double a, double b) { return a + b; }
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
  static double join_one(double a, double b) { return a * b; }
};
struct Max {
  static constexpr float kStart = -HUGE_VALF;
  static HWY_INLINE V add(V acc, V x) {
    return hn::IfThenElse(hn::IsNaN(acc), acc, at_least(acc, x));
  }
  static HWY_INLINE V join(V a, V b) { return add(a, b); }
  static double join_one(double a, double b) { return a != a || a > b ? a : b; }
};
struct Min {
  static constexpr float kStart = HUGE_VALF;
  static HWY_INLINE V add(V acc, V x) {
    return hn::IfThenElse(hn::IsNaN(acc), acc, at_most(acc, x));
  }
  static HWY_INLINE V join(V a, V b) { return add(a, b); }
  static double join_one(double a, double b) { return a != a || a < b ? a : b; }
};

#if HWY_TARGET != HWY_SCALAR
/// Vectors of some rows, `kRows` of them in both together, become one: first those of `a`.
template <class Op, size_t kRows>
HWY_INLINE V join_rows(V a, V b) {
  const Tag d;
  if constexpr (kRows == 2) {
    return Op::join(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  } else if constexpr (kRows == 4) {
    const hn::Repartition<std::uint64_t, Tag> pairs;
    const auto p = hn::BitCast(pairs, a);
    const auto q = hn::BitCast(pairs, b);
    return Op::join(hn::BitCast(d, hn::InterleaveLower(pairs, p, q)),
                    hn::BitCast(d, hn::InterleaveUpper(pairs, p, q)));
  } else if constexpr (kRows == kLanes) {
    return Op::join(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  } else {
    return Op::join(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
  }
}

#endif

/// Vectors of kRows rows become one, with the fold of the lanes of the r-th in lane r: log2 steps for all of them.
template <class Op, size_t kRows = kLanes>
HWY_INLINE V fold_lanes(const V* acc) {
  if constexpr (kRows == 1) {
    return *acc;
  } else {
    return join_rows<Op, kRows>(fold_lanes<Op, kRows / 2>(acc),
                                fold_lanes<Op, kRows / 2>(acc + kRows / 2));
  }
}

/// The same where time matters less than the size of code.
template <class Op>
HWY_NOINLINE V fold_stored(const V* acc) {
  return fold_lanes<Op>(acc);
}

/// A vector whose lanes make up the fold of x[0, count).
template <class Op>
HWY_NOINLINE V block(const float* x, size_t count) {
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
  return Op::join(Op::join(acc0, acc1), Op::join(acc2, acc3));
}

/// Long rows are folded block by block, and the blocks in double: one running float would lose the bits
/// of millions of small terms.
constexpr size_t kBlock = 16384;

template <class Op>
float long_row(const float* x, size_t n) {
  V acc[kLanes];
  for (size_t r = 1; r < kLanes; ++r) acc[r] = hn::Set(Tag(), Op::kStart);
  double total = Op::kStart;
  for (size_t i = 0; i < n; i += kBlock) {
    acc[0] = block<Op>(x + i, HWY_MIN(kBlock, n - i));
    total = Op::join_one(total, static_cast<double>(hn::GetLane(fold_stored<Op>(acc))));
  }
  return static_cast<float>(total);
}

/// Up to here rows are folded a vector of them at a time.
constexpr size_t kShortRow = 8 * kLanes;

/// The folds of kLanes rows one behind the other. Of rows shorter than a vector it reads a vector, too.
template <class Op>
HWY_INLINE V short_group(const float* x, size_t n) {
  const Tag d;
  const V start = hn::Set(d, Op::kStart);
  V acc[kLanes];
  if (n < kLanes) {
    const auto inside = hn::FirstN(d, n);
#pragma GCC unroll 16
    for (size_t r = 0; r < kLanes; ++r)
      acc[r] = hn::IfThenElse(inside, Op::add(start, hn::LoadU(d, x + r * n)), start);
  } else {
#pragma GCC unroll 16
    for (size_t r = 0; r < kLanes; ++r) acc[r] = start;
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 16
      for (size_t r = 0; r < kLanes; ++r) acc[r] = Op::add(acc[r], hn::LoadU(d, x + r * n + i));
    }
    if (i < n) {
      const auto had = hn::FirstN(d, kLanes - (n - i));
#pragma GCC unroll 16
      for (size_t r = 0; r < kLanes; ++r) {
        const V v = hn::LoadU(d, x + r * n + n - kLanes);
        acc[r] = hn::IfThenElse(had, acc[r], Op::add(acc[r], v));
      }
    }
  }
  return fold_lanes<Op>(acc);
}

/// The vector that short_group has of a row, without reading behind it.
template <class Op>
V short_row(const float* x, size_t n) {
  const Tag d;
  V acc = hn::Set(d, Op::kStart);
  if (n < kLanes) return hn::IfThenElse(hn::FirstN(d, n), Op::add(acc, load_some(d, x, n)), acc);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) acc = Op::add(acc, hn::LoadU(d, x + i));
  if (i == n) return acc;
  const V v = hn::LoadU(d, x + n - kLanes);
  return hn::IfThenElse(hn::FirstN(d, kLanes - (n - i)), acc, Op::add(acc, v));
}

/// How a row is folded depends on its length alone, not on how many there are.
template <class Op>
void rows(const float* x, std::int64_t row_count, std::int64_t length, float* y) {
  const Tag d;
  const auto count = static_cast<size_t>(row_count);
  const auto n = static_cast<size_t>(length);
  size_t r = 0;
  if (n <= kShortRow) {
    const size_t behind = n < kLanes ? kLanes - n : 0;
    for (; (r + kLanes) * n + behind <= count * n; r += kLanes)
      hn::StoreU(short_group<Op>(x + r * n, n), d, y + r);
  } else if (n > kBlock) {
    for (; r < count; ++r) y[r] = long_row<Op>(x + r * n, n);
  }
  for (; r < count; r += kLanes) {
    const size_t some = HWY_MIN(kLanes, count - r);
    V acc[kLanes];
    for (size_t k = 0; k < kLanes; ++k) {
      const float* row = x + (r + k) * n;
      acc[k] = k >= some        ? hn::Set(d, Op::kStart)
               : n <= kShortRow ? short_row<Op>(row, n)
                                : block<Op>(row, n);
    }
    store_some(d, fold_stored<Op>(acc), y + r, some);
  }
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
  return {rows<Op>, columns<Op>};
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
