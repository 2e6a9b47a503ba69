// The inner loops of quantisation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// Scales and zero points of a stretch of elements: one for all with step 0, one each with step 1.
struct QuantizeParams {
  const float* scale;
  const float* zero_point;
  std::int64_t step;
  float least;  // the range of the quantised type
  float greatest;
};

/// DynamicQuantizeLinear's scale and zero point for a range that contains 0.
struct ByteRange {
  float scale;
  float zero_point;

  /// All zeros: any scale will do, but not 0.
  ByteRange(float least, float greatest)
      : scale(least == greatest ? 1.0f : (greatest - least) / 255.0f),
        zero_point(std::min(255.0f, std::max(0.0f, std::nearbyint(-least / scale)))) {}
  /// They point into this.
  QuantizeParams params() const { return {&scale, &zero_point, 0, 0, 255}; }
};

struct QuantizeLoops {
  /// y[i] = clamp(round to even(x[i] / scale) + zero_point).
  void (*to_u8)(const QuantizeParams& params, const float* x, std::uint8_t* y, std::int64_t n);
  void (*to_s8)(const QuantizeParams& params, const float* x, std::int8_t* y, std::int64_t n);
  void (*to_u16)(const QuantizeParams& params, const float* x, std::uint16_t* y, std::int64_t n);
  void (*to_s16)(const QuantizeParams& params, const float* x, std::int16_t* y, std::int64_t n);
  /// y[i] = (x[i] - zero_point) * scale.
  void (*from_u8)(const QuantizeParams& params, const std::uint8_t* x, float* y, std::int64_t n);
  void (*from_s8)(const QuantizeParams& params, const std::int8_t* x, float* y, std::int64_t n);
  void (*from_f32)(const QuantizeParams& params, const float* x, float* y, std::int64_t n);
  /// Widens [least, greatest] to hold all of x; NaN is passed over.
  void (*widen)(const float* x, std::int64_t n, float& least, float& greatest);
};

const QuantizeLoops& quantize_loops(Isa isa);

}  // namespace backplane::cpu
