// QuantizeLinear, DequantizeLinear (per tensor, per axis, per block), DynamicQuantizeLinear.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

/// The element of a scale or zero point that belongs to an index of x: one for all, one along an
/// axis, or, where block_size is set, one for every block of that axis.
double parameter_at(const Call& call, const Array& parameter, const Array& x, const Dims& index) {
  if (parameter.size() == 1 && call.integer("block_size", 0) == 0) return parameter.values[0];
  const std::int64_t axis = positive_axis(call.integer("axis", 1), x.rank());
  const std::int64_t block = call.integer("block_size", 0);
  if (block == 0) return parameter.values[index[axis]];
  Dims at = index;
  at[axis] /= block;
  return parameter.values[offset_of(parameter.dims, at)];
}

ElementType quantized_type(const Call& call) {
  if (const Array* zero = call.optional(2)) return zero->type;
  return static_cast<ElementType>(
      call.integer("output_dtype", static_cast<std::int64_t>(ElementType::UInt8)));
}

/// x / scale is computed in the scale's own precision by everybody, and rounding follows: a
/// quotient that lies on a half in single precision must do so here.
double quotient(double x, double scale, ElementType scale_type) {
  if (scale_type == ElementType::Double) return x / scale;
  return static_cast<double>(static_cast<float>(x) / static_cast<float>(scale));
}

Arrays quantize(const Call& call) {
  const Array& x = call.input(0);
  const Array& scale = call.input(1);
  const Array* zero = call.optional(2);
  Array y = filled(quantized_type(call), x.dims);
  std::size_t position = 0;
  for_each_index(x.dims, [&](const Dims& index) {
    const double ratio =
        quotient(x.values[position], parameter_at(call, scale, x, index), scale.type);
    const double offset = zero == nullptr ? 0 : parameter_at(call, *zero, x, index);
    double& out = y.values[position++];
    if (is_integer(y.type)) {
      out = saturate_to(y.type, std::nearbyint(ratio) + offset);
    } else {
      const double rounded = round_to(y.type, ratio + offset);
      const bool overflows = !std::isfinite(rounded) && !std::isnan(ratio);
      out = overflows ? std::copysign(highest(y.type), ratio) : rounded;
    }
  });
  return {y};
}

Arrays dequantize(const Call& call) {
  const Array& x = call.input(0);
  const Array& scale = call.input(1);
  const Array* zero = call.optional(2);
  Array y = filled(scale.type, x.dims);
  std::size_t position = 0;
  for_each_index(x.dims, [&](const Dims& index) {
    const double offset = zero == nullptr ? 0 : parameter_at(call, *zero, x, index);
    y.values[position] = (x.values[position] - offset) * parameter_at(call, scale, x, index);
    ++position;
  });
  return {y};
}

/// In single precision, as the specification writes it: the scale is rounded before it is used.
Arrays dynamic_quantize(const Call& call) {
  const Array& x = call.input(0);
  double most = 0;
  double least = 0;
  for (const double v : x.values) {
    most = std::fmax(most, v);
    least = std::fmin(least, v);
  }
  const double scale = static_cast<double>(static_cast<float>(most - least) / 255.0f);
  const double zero =
      scale == 0 ? 0 : saturate_to(ElementType::UInt8, quotient(-least, scale, ElementType::Float));
  Array y = filled(ElementType::UInt8, x.dims);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double ratio = scale == 0 ? 0 : quotient(x.values[i], scale, ElementType::Float);
    y.values[i] = saturate_to(y.type, std::nearbyint(ratio) + zero);
  }
  return {y, filled(ElementType::Float, {}, scale), filled(ElementType::UInt8, {}, zero)};
}

const Registration kQuantize({"QuantizeLinear"}, quantize);
const Registration kDequantize({"DequantizeLinear"}, dequantize);
const Registration kDynamic({"DynamicQuantizeLinear"}, dynamic_quantize);

}  // namespace
}  // namespace backplane::reference
