#include "plugins/cpu/kernels/lrn_f32.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/lrn_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

LrnF32 find_lrn();

namespace {
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

/// v^beta for positive v; 3/4, which every network uses, by square roots.
HWY_INLINE V power(Tag d, V v, float beta) {
  if (beta == 0.75f) {
    const V root = hn::Sqrt(v);
    return hn::Mul(root, hn::Sqrt(root));
  }
  return vector_exp(d, hn::Mul(hn::Set(d, beta), hn::Log(d, v)));
}

void lrn(const LrnArgs& args, const float* x, float* y, std::int64_t n) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V ratio = hn::Set(d, args.alpha / static_cast<float>(args.size));
  const V bias = hn::Set(d, args.bias);
  const std::int64_t before = (args.size - 1) / 2;
  const std::int64_t after = args.size / 2;
  for (std::int64_t i = 0; i < n; i += lanes) {
    const bool whole = n - i >= lanes;
    const auto some = static_cast<size_t>(whole ? lanes : n - i);
    const auto load = [&](std::int64_t channel) HWY_ATTR {
      const float* from = x + channel * args.stride + i;
      return whole ? hn::LoadU(d, from) : load_some(d, from, some);
    };
    for (std::int64_t c = 0; c < args.channels; ++c) {
      V sum = hn::Zero(d);
      const std::int64_t first = c < before ? 0 : c - before;
      const std::int64_t last = c + after < args.channels ? c + after : args.channels - 1;
      for (std::int64_t k = first; k <= last; ++k) {
        const V v = load(k);
        sum = hn::MulAdd(v, v, sum);
      }
      const V result = hn::Div(load(c), power(d, hn::MulAdd(sum, ratio, bias), args.beta));
      float* to = y + c * args.stride + i;
      if (whole)
        hn::StoreU(result, d, to);
      else
        store_some(d, result, to, some);
    }
  }
}

}  // namespace

LrnF32 find_lrn() { return lrn; }

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

LrnF32 lrn_f32(Isa isa) { BP_SELECT_TARGET(isa, find_lrn()); }

}  // namespace backplane::cpu
#endif
