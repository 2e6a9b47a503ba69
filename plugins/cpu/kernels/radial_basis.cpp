#include "plugins/cpu/kernels/radial_basis.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/radial_basis.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const RadialBasis& find_radial_basis();

namespace {
using RadialTag = hn::ScalableTag<float>;
using RadialV = hn::Vec<RadialTag>;

// Two vectors of a panel and four rows: eight sums, as many as hide the latency of an addition.
constexpr std::int64_t kRowsAtOnce = 4;

HWY_INLINE void add_square(RadialTag d, float x, RadialV a, RadialV b, RadialV& sum_a,
                           RadialV& sum_b) {
  const RadialV value = hn::Set(d, x);
  const RadialV da = hn::Sub(value, a), db = hn::Sub(value, b);
  sum_a = hn::MulAdd(da, da, sum_a);
  sum_b = hn::MulAdd(db, db, sum_b);
}

HWY_INLINE void finish(RadialTag d, float gamma, RadialV sum_a, RadialV sum_b, float* y) {
  const RadialV factor = hn::Set(d, -gamma);
  hn::StoreU(vector_exp(d, hn::Mul(factor, sum_a)), d, y);
  hn::StoreU(vector_exp(d, hn::Mul(factor, sum_b)), d, y + hn::Lanes(d));
}

void one_row(const float* panel, std::int64_t features, float gamma, const float* x, float* y) {
  const RadialTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  RadialV a = hn::Zero(d), b = hn::Zero(d), a2 = hn::Zero(d), b2 = hn::Zero(d);
  std::int64_t f = 0;
  for (; f + 2 <= features; f += 2, panel += 4 * lanes) {
    add_square(d, x[f], hn::LoadU(d, panel), hn::LoadU(d, panel + lanes), a, b);
    add_square(d, x[f + 1], hn::LoadU(d, panel + 2 * lanes), hn::LoadU(d, panel + 3 * lanes), a2,
               b2);
  }
  if (f < features) add_square(d, x[f], hn::LoadU(d, panel), hn::LoadU(d, panel + lanes), a, b);
  finish(d, gamma, hn::Add(a, a2), hn::Add(b, b2), y);
}

void four_rows(const float* panel, std::int64_t features, float gamma, const float* x, float* y,
               std::int64_t y_pitch) {
  const RadialTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float *x1 = x + features, *x2 = x1 + features, *x3 = x2 + features;
  RadialV a0 = hn::Zero(d), b0 = a0, a1 = a0, b1 = a0, a2 = a0, b2 = a0, a3 = a0, b3 = a0;
  for (std::int64_t f = 0; f < features; ++f, panel += 2 * lanes) {
    const RadialV a = hn::LoadU(d, panel), b = hn::LoadU(d, panel + lanes);
    add_square(d, x[f], a, b, a0, b0);
    add_square(d, x1[f], a, b, a1, b1);
    add_square(d, x2[f], a, b, a2, b2);
    add_square(d, x3[f], a, b, a3, b3);
  }
  finish(d, gamma, a0, b0, y);
  finish(d, gamma, a1, b1, y + y_pitch);
  finish(d, gamma, a2, b2, y + 2 * y_pitch);
  finish(d, gamma, a3, b3, y + 3 * y_pitch);
}

void radial_rows(const RadialVectors& vectors, float gamma, const float* x, std::int64_t rows,
                 std::int64_t first, std::int64_t end, float* y, std::int64_t y_pitch) {
  const std::int64_t features = vectors.features;
  for (std::int64_t p = first; p < end; ++p) {
    const float* panel = vectors.panels.data() + p * features * vectors.width;
    float* to = y + p * vectors.width;
    std::int64_t row = 0;
    for (; row + kRowsAtOnce <= rows; row += kRowsAtOnce)
      four_rows(panel, features, gamma, x + row * features, to + row * y_pitch, y_pitch);
    for (; row < rows; ++row)
      one_row(panel, features, gamma, x + row * features, to + row * y_pitch);
  }
}

}  // namespace

const RadialBasis& find_radial_basis() {
  static const RadialBasis kLoops{2 * static_cast<std::int64_t>(hn::Lanes(RadialTag())),
                                  radial_rows};
  return kLoops;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const RadialBasis& radial_basis(Isa isa) { BP_SELECT_TARGET(isa, find_radial_basis()); }

RadialVectors pack_radial(Isa isa, const float* vectors, std::int64_t count,
                          std::int64_t features) {
  RadialVectors packed;
  packed.count = count;
  packed.features = features;
  packed.width = radial_basis(isa).width;
  packed.panels.resize(static_cast<std::size_t>(packed.padded() * features));
  for (std::int64_t v = 0; v < count; ++v) {
    float* panel = packed.panels.data() + v / packed.width * features * packed.width;
    for (std::int64_t f = 0; f < features; ++f)
      panel[f * packed.width + v % packed.width] = vectors[v * features + f];
  }
  return packed;
}

}  // namespace backplane::cpu
#endif  // HWY_ONCE
