// Element-wise operators as expressions for kernels: of the operands v0, v1 and the parameters p0, p1, with
// the functions of scalar_functions.hpp. Formulas: https://onnx.ai/onnx/operators/ (one page an operator).
#pragma once

#include <string_view>

namespace backplane::common {

/// An attribute that becomes a parameter.
struct ElementwiseParameter {
  const char* name = nullptr;
  double otherwise = 0;
};

/// An operator's expression for floats and that for integers; nullptr where it has none.
struct ElementwiseRow {
  const char* op_type;
  const char* of_floats;
  const char* of_integers = nullptr;
  ElementwiseParameter parameters[2] = {};
};

/// The output has the type of the operand.
inline constexpr ElementwiseRow kUnaryRows[] = {
    {"Abs", "fabs(v0)", "v0 < 0 ? -v0 : v0"},
    {"Neg", "-v0", "-v0"},
    {"Sign", "sign_of(v0)", "v0 > 0 ? 1 : v0 == 0 ? 0 : -1"},
    {"Floor", "floor(v0)"},
    {"Ceil", "ceil(v0)"},
    {"Round", "rint(v0)"},
    {"Sqrt", "sqrt(v0)"},
    {"Reciprocal", "LIT(1.0) / v0"},
    {"Exp", "exp_of(v0)"},
    {"Log", "log(v0)"},
    {"Erf", "erf_of(v0)"},
    {"Tanh", "tanh_of(v0)"},
    {"Sigmoid", "sigmoid_of(v0)"},
    {"Softplus", "softplus_of(v0)"},
    {"Softsign", "v0 / (LIT(1.0) + fabs(v0))"},
    {"Relu", "relu_of(v0)", "v0 < 0 ? 0 : v0"},
    {"LeakyRelu", "v0 < LIT(0.0) ? p0 * v0 : v0", nullptr, {{"alpha", 0.01f}}},
    {"ThresholdedRelu", "v0 > p0 ? v0 : v0 != v0 ? v0 : LIT(0.0)", nullptr, {{"alpha", 1}}},
    {"Elu", "elu_of(v0, p0)", nullptr, {{"alpha", 1}}},
    {"Celu", "v0 < LIT(0.0) ? p0 * expm1(v0 / p0) : v0", nullptr, {{"alpha", 1}}},
    {"Selu",
     "p1 * elu_of(v0, p0)",
     nullptr,
     {{"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}}},
    {"HardSigmoid", "hard_sigmoid_of(v0, p0, p1)", nullptr, {{"alpha", 0.2f}, {"beta", 0.5}}},
    {"HardSwish", "v0 * hard_sigmoid_of(v0, LIT(1.0) / LIT(6.0), LIT(0.5))"},
    {"Mish", "v0 * tanh_of(softplus_of(v0))"},
    {"Swish", "v0 * sigmoid_of(p0 * v0)", nullptr, {{"alpha", 1}}},
    {"Shrink",
     "v0 < -p1 ? v0 + p0 : v0 > p1 ? v0 - p0 : LIT(0.0)",
     "v0 < -p1 ? v0 + p0 : v0 > p1 ? v0 - p0 : 0",
     {{"bias", 0}, {"lambd", 0.5}}},
    {"Sin", "sin(v0)"},
    {"Cos", "cos(v0)"},
    {"Tan", "tan(v0)"},
    {"Asin", "asin(v0)"},
    {"Acos", "acos(v0)"},
    {"Atan", "atan(v0)"},
    {"Sinh", "sinh(v0)"},
    {"Cosh", "cosh(v0)"},
    {"Asinh", "asinh(v0)"},
    {"Acosh", "acosh(v0)"},
    {"Atanh", "atanh(v0)"},
    {"BitwiseNot", nullptr, "~v0"},
};

/// Both operands and the output have one type.
inline constexpr ElementwiseRow kBinaryRows[] = {
    {"Add", "v0 + v1", "v0 + v1"},
    {"Sub", "v0 - v1", "v0 - v1"},
    {"Mul", "v0 * v1", "v0 * v1"},
    {"Div", "v0 / v1", "quotient_of(v0, v1)"},
    {"PRelu", "v0 < LIT(0.0) ? v0 * v1 : v0", "v0 < 0 ? v0 * v1 : v0"},
    {"BitwiseAnd", nullptr, "v0 & v1"},
    {"BitwiseOr", nullptr, "v0 | v1"},
    {"BitwiseXor", nullptr, "v0 ^ v1"},
};

/// The output is bool.
inline constexpr ElementwiseRow kQuestionRows[] = {
    {"Equal", "v0 == v1", "v0 == v1"},
    {"Less", "v0 < v1", "v0 < v1"},
    {"Greater", "v0 > v1", "v0 > v1"},
    {"LessOrEqual", "v0 <= v1", "v0 <= v1"},
    {"GreaterOrEqual", "v0 >= v1", "v0 >= v1"},
    {"And", nullptr, "v0 && v1"},
    {"Or", nullptr, "v0 || v1"},
    {"Xor", nullptr, "v0 != v1"},
};

/// The row of an operator; nullptr when the table has none.
template <std::size_t kCount>
const ElementwiseRow* find_elementwise(const ElementwiseRow (&rows)[kCount],
                                       std::string_view op_type) {
  for (const ElementwiseRow& row : rows) {
    if (op_type == row.op_type) return &row;
  }
  return nullptr;
}

}  // namespace backplane::common
