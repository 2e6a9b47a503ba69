#include "plugins/cpu/kernels/rotate_pairs.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/rotate_pairs.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

RotatePairs find_rotation(bool is_interleaved);

namespace {

template <bool is_interleaved>
void rotate(const float* x, float* y, std::int64_t n, const float* cos, const float* sin) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::Vec<decltype(d)> a, b;
    if constexpr (is_interleaved) {
      hn::LoadInterleaved2(d, x + 2 * i, a, b);
    } else {
      a = hn::LoadU(d, x + i);
      b = hn::LoadU(d, x + n + i);
    }
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::LoadU(d, sin + i);
    const auto real = hn::NegMulAdd(b, s, hn::Mul(a, c));
    const auto other = hn::MulAdd(b, c, hn::Mul(a, s));
    if constexpr (is_interleaved) {
      hn::StoreInterleaved2(real, other, d, y + 2 * i);
    } else {
      hn::StoreU(real, d, y + i);
      hn::StoreU(other, d, y + n + i);
    }
  }
  for (; i < n; ++i) {
    const std::int64_t first = is_interleaved ? 2 * i : i;
    const std::int64_t second = is_interleaved ? 2 * i + 1 : n + i;
    const float a = x[first], b = x[second];
    y[first] = a * cos[i] - b * sin[i];
    y[second] = a * sin[i] + b * cos[i];
  }
}

}  // namespace

RotatePairs find_rotation(bool is_interleaved) {
  return is_interleaved ? rotate<true> : rotate<false>;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

RotatePairs rotate_pairs(Isa isa, bool is_interleaved) {
  BP_SELECT_TARGET(isa, find_rotation(is_interleaved));
}

}  // namespace backplane::cpu
#endif
