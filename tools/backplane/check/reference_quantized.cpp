// Operators on quantized integers. Scales are floats, and so are quotients by them: at halves the last digit decides.
// https://onnx.ai/onnx/operators/
#include <algorithm>
#include <cmath>

#include "tools/backplane/check/reference.hpp"
#include "tools/backplane/check/reference_book.hpp"

namespace backplane::cli::check {
namespace {

/// To the nearest whole number, halves to the even one, within the type.
double saturated(double number, bp_dtype dtype) {
  const double low = dtype == BP_INT8 ? -128 : 0, high = dtype == BP_INT8 ? 127 : 255;
  return std::clamp(std::nearbyint(number), low, high);
}

bool is_byte(bp_dtype dtype) { return dtype == BP_INT8 || dtype == BP_UINT8; }

/// The scale or zero point for an element: one for all, or one for each entry of an axis.
double parameter(const NodeCase& node, std::size_t input, std::int64_t index) {
  if (!has_input(node, input)) return 0;
  const Tensor &x = input_of(node, 0), &all = input_of(node, input);
  if (all.size() == 1) return all.at(0);
  const auto axis = static_cast<std::size_t>(from_start(attribute_or(node, "axis", std::int64_t{1}),
                                                        static_cast<std::int64_t>(x.dims.size())));
  return all.at(place_of(index, x.dims)[axis]);
}

std::optional<Tensor> quantized(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  if (!is_byte(node.outputs[0]) || x.dtype != BP_FLOAT) return std::nullopt;
  Tensor result = make_tensor(node.outputs[0], x.dims);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const float quotient = static_cast<float>(x.at(i)) / static_cast<float>(parameter(node, 1, i));
    result.set(i, saturated(std::nearbyint(static_cast<double>(quotient)) + parameter(node, 2, i),
                            result.dtype));
  }
  return result;
}

std::optional<Tensor> dequantized(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  Tensor result = make_tensor(node.outputs[0], x.dims);
  for (std::int64_t i = 0; i < x.size(); ++i)
    result.set(i, (x.at(i) - parameter(node, 2, i)) * parameter(node, 1, i));
  return result;
}

/// The range of the elements and 0 onto 0 to 255.
std::optional<std::vector<Tensor>> dynamically_quantized(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  float low = 0, high = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    low = std::min(low, static_cast<float>(x.at(i)));
    high = std::max(high, static_cast<float>(x.at(i)));
  }
  const float step = (high - low) / 255.0f;
  const double zero = saturated(static_cast<double>(-low / step), BP_UINT8);
  Tensor y = make_tensor(BP_UINT8, x.dims), scale = make_tensor(BP_FLOAT, {}),
         zero_point = make_tensor(BP_UINT8, {});
  scale.set(0, static_cast<double>(step));
  zero_point.set(0, zero);
  for (std::int64_t i = 0; i < x.size(); ++i)
    y.set(i,
          saturated(std::nearbyint(static_cast<double>(static_cast<float>(x.at(i)) / step)) + zero,
                    BP_UINT8));
  return std::vector<Tensor>{y, scale, zero_point};
}

/// The operand less its zero point.
Tensor centred(const NodeCase& node, std::size_t input, std::size_t zero_input) {
  const Tensor& from = input_of(node, input);
  const double zero = has_input(node, zero_input) ? input_of(node, zero_input).at(0) : 0;
  Tensor result = make_tensor(BP_DOUBLE, from.dims);
  for (std::int64_t i = 0; i < from.size(); ++i) result.set(i, from.at(i) - zero);
  return result;
}

/// The same operator on numbers that are not quantized.
std::optional<Tensor> plainly(const NodeCase& node, const char* op_type, Tensor a, Tensor b) {
  NodeCase plain = node;
  plain.op_type = op_type;
  plain.inputs = {{std::move(a), false, false}, {std::move(b), false, false}};
  plain.outputs = {BP_DOUBLE};
  const auto made = compute_in_double(plain);
  return made ? std::optional(made->front()) : std::nullopt;
}

Reference of_integers(const char* op_type) {
  return one_output([=](const NodeCase& node) -> std::optional<Tensor> {
    const auto sums = plainly(node, op_type, centred(node, 0, 2), centred(node, 1, 3));
    if (!sums) return std::nullopt;
    Tensor result = make_tensor(BP_INT32, sums->dims);
    for (std::int64_t i = 0; i < result.size(); ++i) result.set(i, sums->at(i));
    return result;
  });
}

/// a, its scale and zero point, b, its scale and zero point, the result's. Where a sum comes so near to a half that
/// digits decide, it is nobody's to say.
Reference requantized(const char* op_type) {
  return one_output([=](const NodeCase& node) -> std::optional<Tensor> {
    if (node.inputs.size() > 8 || input_of(node, 4).size() != 1) return std::nullopt;
    const auto sums = plainly(node, op_type, centred(node, 0, 2), centred(node, 3, 5));
    if (!sums) return std::nullopt;
    const double scale =
        input_of(node, 1).at(0) * input_of(node, 4).at(0) / input_of(node, 6).at(0);
    Tensor result = make_tensor(node.outputs[0], sums->dims);
    for (std::int64_t i = 0; i < result.size(); ++i) {
      const double number = sums->at(i) * scale;
      if (std::abs(std::abs(number - std::floor(number)) - 0.5) < 1e-4) return std::nullopt;
      result.set(i, saturated(std::nearbyint(number) + input_of(node, 7).at(0), result.dtype));
    }
    return result;
  });
}

}  // namespace

void add_quantized_references(ReferenceBook& book) {
  book["QuantizeLinear"] = one_output(quantized);
  book["DequantizeLinear"] = one_output(dequantized);
  book["DynamicQuantizeLinear"] = dynamically_quantized;
  book["MatMulInteger"] = of_integers("MatMul");
  book["ConvInteger"] = of_integers("Conv");
  book["QLinearMatMul"] = requantized("MatMul");
  book["QLinearConv"] = requantized("Conv");
}

}  // namespace backplane::cli::check
