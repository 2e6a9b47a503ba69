#include "plugins/cpu/kernels/quantize.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/quantize.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const QuantizeLoops& find_quantize();

namespace {
using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

/// Whole numbers in the range of Y; the clamp comes first, since what is out of int32's range has no
/// conversion.
template <class Y>
HWY_INLINE void store_narrow([[maybe_unused]] Tag d, V v, Y* y, size_t n) {
  const hn::RebindToSigned<Tag> di;
  const auto whole = hn::ConvertTo(di, v);
  [[maybe_unused]] const hn::Rebind<Y, Tag> narrow;
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  if (n == hn::Lanes(d)) {
    hn::StoreU(hn::DemoteTo(narrow, whole), narrow, y);
    return;
  }
#endif
  HWY_ALIGN std::int32_t lanes[hn::MaxLanes(di)];
  hn::Store(whole, di, lanes);
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<Y>(lanes[i]);
}

template <class Y>
void quantize(const QuantizeParams& params, const float* x, Y* y, std::int64_t count) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const auto n = static_cast<size_t>(count);
  const V least = hn::Set(d, params.least);
  const V greatest = hn::Set(d, params.greatest);
  const bool each = params.step != 0;
  V scale = hn::Set(d, *params.scale);
  V zero = hn::Set(d, *params.zero_point);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t some = n - i < lanes ? n - i : lanes;
    const bool whole = some == lanes;
    const V v = whole ? hn::LoadU(d, x + i) : load_some(d, x + i, some);
    if (each) {
      scale = whole ? hn::LoadU(d, params.scale + i) : load_some(d, params.scale + i, some);
      zero =
          whole ? hn::LoadU(d, params.zero_point + i) : load_some(d, params.zero_point + i, some);
    }
    const V shifted = hn::Add(hn::Round(hn::Div(v, scale)), zero);
    // NaN, which is greater than nothing, becomes the least, as ONNX Runtime has it.
    const V clamped = hn::IfThenElse(hn::Gt(shifted, least), hn::Min(greatest, shifted), least);
    store_narrow(d, clamped, y + i, some);
  }
}

// Plain loops: the compiler makes vectors of this target of them.
template <class X>
void dequantize(const QuantizeParams& params, const X* x, float* y, std::int64_t n) {
  if (params.step == 0) {
    const float scale = *params.scale;
    const float zero = *params.zero_point;
    for (std::int64_t i = 0; i < n; ++i) y[i] = (static_cast<float>(x[i]) - zero) * scale;
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = (static_cast<float>(x[i]) - params.zero_point[i]) * params.scale[i];
  }
}

void widen(const float* x, std::int64_t count, float& least, float& greatest) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Several vectors, so that comparisons do not wait for each other.
  constexpr std::int64_t kVectors = 4;
  V low[kVectors];
  V high[kVectors];
  for (std::int64_t v = 0; v < kVectors; ++v) {
    low[v] = hn::Set(d, least);
    high[v] = hn::Set(d, greatest);
  }
  std::int64_t i = 0;
  for (; i + kVectors * lanes <= count; i += kVectors * lanes) {
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const V value = hn::LoadU(d, x + i + v * lanes);
      low[v] = hn::IfThenElse(hn::Lt(value, low[v]), value, low[v]);
      high[v] = hn::IfThenElse(hn::Gt(value, high[v]), value, high[v]);
    }
  }
  for (std::int64_t v = 1; v < kVectors; ++v) {
    low[0] = hn::Min(low[0], low[v]);
    high[0] = hn::Max(high[0], high[v]);
  }
  least = hn::GetLane(hn::MinOfLanes(d, low[0]));
  greatest = hn::GetLane(hn::MaxOfLanes(d, high[0]));
  for (; i < count; ++i) {
    if (x[i] < least) least = x[i];
    if (x[i] > greatest) greatest = x[i];
  }
}

}  // namespace

const QuantizeLoops& find_quantize() {
  static constexpr QuantizeLoops kLoops{quantize<std::uint8_t>,   quantize<std::int8_t>,
                                        quantize<std::uint16_t>,  quantize<std::int16_t>,
                                        dequantize<std::uint8_t>, dequantize<std::int8_t>,
                                        dequantize<float>,        widen};
  return kLoops;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const QuantizeLoops& quantize_loops(Isa isa) { BP_SELECT_TARGET(isa, find_quantize()); }

}  // namespace backplane::cpu
#endif
