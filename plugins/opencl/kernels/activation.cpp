#include "plugins/opencl/kernels/activation.hpp"

#include <cmath>
#include <ios>
#include <limits>

namespace backplane::opencl {
namespace {

/// A float literal that gives the very number.
std::string literal(float value) {
  if (std::isinf(value)) return value < 0 ? "(-INFINITY)" : "INFINITY";
  return sdk::message("(", std::hexfloat, value, "f)");
}

/// Of vectors. Sums below 0 and above 1 are cut; NaN stays.
std::string hard_sigmoid(const std::string& alpha, const std::string& beta) {
  const std::string sum = sdk::message("(", alpha, " * v + (VT)(", beta, "))");
  return sdk::message("(", sum, " < (VT)(0.0f) ? (VT)(0.0f) : ", sum,
                      " > (VT)(1.0f) ? (VT)(1.0f) : ", sum, ")");
}

}  // namespace

Activation Activation::from(const sdk::Node& node) {
  return make(node.get_string("activation", ""), node.get_floats("activation_parameters"));
}

Activation Activation::make(const std::string& op_type, const std::vector<float>& parameters) {
  const auto at = [&](std::size_t i) { return literal(parameters.at(i)); };
  if (op_type.empty()) return {"s", "v"};
  if (op_type == "Relu") return {"relu_of(s)", "(v < (VT)(0.0f) ? (VT)(0.0f) : v)"};
  if (op_type == "Clip")
    return {sdk::message("clip_of(s, ", at(0), ", ", at(1), ")"),
            sdk::message("(v < (VT)(", at(0), ") ? (VT)(", at(0), ") : v > (VT)(", at(1),
                         ") ? (VT)(", at(1), ") : v)")};
  if (op_type == "LeakyRelu")
    return {sdk::message("(s < 0 ? ", at(0), " * s : s)"),
            sdk::message("(v < (VT)(0.0f) ? ", at(0), " * v : v)")};
  if (op_type == "Sigmoid") return {"sigmoid_of(s)", ""};
  if (op_type == "Tanh") return {"tanh_of(s)", ""};
  if (op_type == "Swish") return {"(s * sigmoid_of(s))", ""};
  if (op_type == "HardSwish")
    return {"(s * hard_sigmoid_of(s, LIT(1.0) / LIT(6.0), LIT(0.5)))",
            "(v * " + hard_sigmoid("(1.0f / 6.0f)", "0.5f") + ")"};
  if (op_type == "HardSigmoid")
    return {sdk::message("hard_sigmoid_of(s, ", at(0), ", ", at(1), ")"),
            hard_sigmoid(at(0), at(1))};
  if (op_type == "Gelu") return {"gelu_of(s)", ""};
  sdk::unsupported("the activation ", op_type, " does not fuse");
}

bool read_activation(const sdk::Node& node, std::string& name, std::vector<float>& parameters) {
  if (!node.domain().empty()) return false;
  name = node.op_type();
  parameters.clear();
  if (name == "Relu" || name == "Sigmoid" || name == "Tanh" || name == "HardSwish") return true;
  if (name == "Gelu") return node.get_string("approximate", "none") == "none";
  if (name == "Swish") return node.get_float("alpha", 1) == 1;
  if (name == "LeakyRelu") return parameters = {node.get_float("alpha", 0.01f)}, true;
  if (name == "HardSigmoid")
    return parameters = {node.get_float("alpha", 0.2f), node.get_float("beta", 0.5f)}, true;
  if (name != "Clip") return false;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  parameters = {node.get_float("min", -kInfinity), node.get_float("max", kInfinity)};
  for (std::size_t i = 1; i < 3; ++i) {
    const sdk::ValueInfo bound = node.input(i);
    if (!bound) continue;
    if (!bound.is_constant() || bound.type() != sdk::DataType::Float ||
        bound.constant().size() != 1 || bound.constant().data<float>() == nullptr)
      return false;
    parameters[i - 1] = *bound.constant().data<float>();
  }
  return true;
}

}  // namespace backplane::opencl
