// Functions of one tensor, element by element: https://onnx.ai/onnx/operators/
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

/// x and the operator's attributes, by the names that most of them use.
struct Point {
  double x;
  double alpha;
  double beta;
  double gamma;
};

using UnaryCurve = double (*)(const Point& p);

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 30 ? x + std::exp(-x) : std::log1p(std::exp(x)); }
double sign_of(double x) { return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0)); }

struct UnaryRow {
  const char* op_type;
  UnaryCurve curve;
  double alpha = 0;  // defaults of the attributes
  double beta = 0;
  double gamma = 0;
};

const UnaryRow kUnaryRows[] = {
    {"Abs", [](const Point& p) { return std::abs(p.x); }},
    {"Neg", [](const Point& p) { return -p.x; }},
    {"Sign", [](const Point& p) { return sign_of(p.x); }},
    {"Floor", [](const Point& p) { return std::floor(p.x); }},
    {"Ceil", [](const Point& p) { return std::ceil(p.x); }},
    {"Round", [](const Point& p) { return std::nearbyint(p.x); }},
    {"Sqrt", [](const Point& p) { return std::sqrt(p.x); }},
    {"Reciprocal", [](const Point& p) { return 1 / p.x; }},
    {"Exp", [](const Point& p) { return std::exp(p.x); }},
    {"Log", [](const Point& p) { return std::log(p.x); }},
    {"Erf", [](const Point& p) { return std::erf(p.x); }},
    {"Tanh", [](const Point& p) { return std::tanh(p.x); }},
    {"Sigmoid", [](const Point& p) { return sigmoid(p.x); }},
    {"Softplus", [](const Point& p) { return softplus(p.x); }},
    {"Softsign", [](const Point& p) { return p.x / (1 + std::abs(p.x)); }},
    {"Relu", [](const Point& p) { return p.x < 0 ? 0 : p.x; }},
    {"LeakyRelu", [](const Point& p) { return p.x < 0 ? p.alpha * p.x : p.x; },
     static_cast<double>(0.01f)},
    {"ThresholdedRelu", [](const Point& p) { return p.x > p.alpha ? p.x : 0; }, 1},
    {"Elu", [](const Point& p) { return p.x < 0 ? p.alpha * std::expm1(p.x) : p.x; }, 1},
    {"Celu",
     [](const Point& p) {
       return std::fmax(0, p.x) + std::fmin(0, p.alpha * std::expm1(p.x / p.alpha));
     },
     1},
    {"Selu", [](const Point& p) { return p.gamma * (p.x > 0 ? p.x : p.alpha * std::expm1(p.x)); },
     1.67326319217681884765625, 0, 1.05070102214813232421875},
    {"HardSigmoid",
     [](const Point& p) { return std::fmax(0, std::fmin(1, p.alpha * p.x + p.beta)); },
     static_cast<double>(0.2f), 0.5},
    {"HardSwish", [](const Point& p) { return p.x * std::fmax(0, std::fmin(1, p.x / 6 + 0.5)); }},
    {"Mish", [](const Point& p) { return p.x * std::tanh(softplus(p.x)); }},
    {"Swish", [](const Point& p) { return p.x * sigmoid(p.alpha * p.x); }, 1},
    {"Sin", [](const Point& p) { return std::sin(p.x); }},
    {"Cos", [](const Point& p) { return std::cos(p.x); }},
    {"Tan", [](const Point& p) { return std::tan(p.x); }},
    {"Asin", [](const Point& p) { return std::asin(p.x); }},
    {"Acos", [](const Point& p) { return std::acos(p.x); }},
    {"Atan", [](const Point& p) { return std::atan(p.x); }},
    {"Sinh", [](const Point& p) { return std::sinh(p.x); }},
    {"Cosh", [](const Point& p) { return std::cosh(p.x); }},
    {"Asinh", [](const Point& p) { return std::asinh(p.x); }},
    {"Acosh", [](const Point& p) { return std::acosh(p.x); }},
    {"Atanh", [](const Point& p) { return std::atanh(p.x); }},
    {"Identity", [](const Point& p) { return p.x; }},
};

Arrays unary(const Call& call) {
  const Array& x = call.input(0);
  for (const UnaryRow& row : kUnaryRows) {
    if (call.node.op_type != row.op_type) continue;
    Array y = x;
    for (double& value : y.values) {
      value = row.curve({value, call.number("alpha", row.alpha), call.number("beta", row.beta),
                         call.number("gamma", row.gamma)});
    }
    return {y};
  }
  return {};
}

Arrays gelu(const Call& call) {
  const bool tanh_form = call.text("approximate", "none") == "tanh";
  Array y = call.input(0);
  for (double& x : y.values) {
    const double argument = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    x = 0.5 * x * (1 + (tanh_form ? std::tanh(argument) : std::erf(x / M_SQRT2)));
  }
  return {y};
}

/// Min and max are attributes before opset 11 and inputs from then on. NaN stays NaN.
Arrays clip(const Call& call) {
  Array y = call.input(0);
  double low = call.number("min", -std::numeric_limits<double>::infinity());
  double high = call.number("max", std::numeric_limits<double>::infinity());
  if (const Array* input = call.optional(1)) low = input->values[0];
  if (const Array* input = call.optional(2)) high = input->values[0];
  for (double& x : y.values) {
    x = x < low ? low : x;
    x = x > high ? high : x;
  }
  return {y};
}

Arrays logical_not(const Call& call) {
  Array y = call.input(0);
  for (double& x : y.values) x = x == 0;
  return {y};
}

Arrays bitwise_not(const Call& call) {
  Array y = call.input(0);
  for (double& x : y.values) x = -x - 1;  // wrapped to the type afterwards
  return {y};
}

Arrays is_nan(const Call& call) {
  Array y = call.input(0);
  y.type = ElementType::Bool;
  for (double& x : y.values) x = std::isnan(x);
  return {y};
}

Arrays is_inf(const Call& call) {
  Array y = call.input(0);
  y.type = ElementType::Bool;
  const bool positive = call.integer("detect_positive", 1) != 0;
  const bool negative = call.integer("detect_negative", 1) != 0;
  for (double& x : y.values) x = std::isinf(x) && (x > 0 ? positive : negative);
  return {y};
}

Arrays dropout(const Call& call) {
  Array mask = filled(ElementType::Bool, call.input(0).dims, 1);
  if (call.node.opset < 10) mask.type = call.input(0).type;
  Arrays result = {call.input(0)};
  if (call.output_count > 1) result.push_back(mask);
  return result;
}

Arrays shrink(const Call& call) {
  const double bias = call.number("bias", 0);
  const double lambd = call.number("lambd", 0.5);
  Array y = call.input(0);
  for (double& x : y.values) x = x < -lambd ? x + bias : x > lambd ? x - bias : 0;
  return {y};
}

const Registration kUnary(
    {"Abs",     "Neg",        "Sign",     "Floor",       "Ceil",      "Round",
     "Sqrt",    "Reciprocal", "Exp",      "Log",         "Erf",       "Tanh",
     "Sigmoid", "Softplus",   "Softsign", "Relu",        "LeakyRelu", "ThresholdedRelu",
     "Elu",     "Celu",       "Selu",     "HardSigmoid", "HardSwish", "Mish",
     "Swish",   "Sin",        "Cos",      "Tan",         "Asin",      "Acos",
     "Atan",    "Sinh",       "Cosh",     "Asinh",       "Acosh",     "Atanh",
     "Identity"},
    unary);
const Registration kGelu({"Gelu"}, gelu);
const Registration kClip({"Clip"}, clip);
const Registration kNot({"Not"}, logical_not);
const Registration kBitwiseNot({"BitwiseNot"}, bitwise_not);
const Registration kIsNan({"IsNaN"}, is_nan);
const Registration kIsInf({"IsInf"}, is_inf);
const Registration kDropout({"Dropout"}, dropout);
const Registration kShrink({"Shrink"}, shrink);

}  // namespace
}  // namespace backplane::reference
