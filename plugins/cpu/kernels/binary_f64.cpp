#include "plugins/cpu/kernels/binary_f64.hpp"

#include <cmath>

#include "plugins/cpu/dense/targets.hpp"
#include "plugins/cpu/kernels/binary_scalar.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/binary_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

RowLoop find_double_powers();

#if HWY_HAVE_FLOAT64
namespace {
using Tag = hn::ScalableTag<double>;
using V = hn::Vec<Tag>;

template <class Function>
HWY_INLINE void map(const double* x, double* y, std::int64_t count, const Function& f) {
  map_row(Tag(), x, y, static_cast<size_t>(count), f);
}

/// As std::pow has it: the root of -infinity is infinity, and that of -0 is 0.
HWY_INLINE V square_root(V x) {
  const Tag d;
  const V root = hn::Sqrt(hn::Add(x, hn::Zero(d)));
  return hn::IfThenElse(hn::Eq(x, hn::Neg(hn::Inf(d))), hn::Inf(d), root);
}

HWY_ATTR void power_row(const double* x, double exponent, double* y, std::int64_t n) {
  if (exponent == 2.0) {
    map(x, y, n, [](V v) HWY_ATTR { return hn::Mul(v, v); });
  } else if (exponent == 3.0) {
    map(x, y, n, [](V v) HWY_ATTR { return hn::Mul(hn::Mul(v, v), v); });
  } else if (exponent == 0.5) {
    map(x, y, n, [](V v) HWY_ATTR { return square_root(v); });
  } else if (exponent == -1.0) {
    map(x, y, n, [](V v) HWY_ATTR { return hn::Div(hn::Set(Tag(), 1.0), v); });
  } else if (exponent == 1.0) {
    map(x, y, n, [](V v) HWY_ATTR { return v; });
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = std::pow(x[i], exponent);
  }
}

/// Powers by one exponent, the frequent ones by products and roots.
void powers(const RowArgs& args) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    power_row(reinterpret_cast<const double*>(args.a + row * args.a_stride),
              *reinterpret_cast<const double*>(args.b + row * args.b_stride),
              reinterpret_cast<double*>(args.y + row * args.y_stride), args.n);
  }
}

}  // namespace

RowLoop find_double_powers() { return powers; }
#else
RowLoop find_double_powers() { return nullptr; }
#endif

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {
namespace {

RowLoop double_powers(Isa isa) { BP_SELECT_TARGET(isa, find_double_powers()); }

}  // namespace

RowLoops binary_f64(Isa isa, BinaryOp op) {
  RowLoops loops = scalar_binary<double>(op);
  if (op != BinaryOp::kPow) return loops;
  if (const RowLoop powers = double_powers(isa); powers != nullptr) {
    loops.by_form[static_cast<int>(RowForm::kFirst)] = powers;
  }
  return loops;
}

}  // namespace backplane::cpu
#endif
