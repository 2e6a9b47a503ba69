// Functions of two and more tensors with broadcasting, comparisons, Where, and Cast.
#include <cmath>
#include <cstdint>
#include <string>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

using Step = double (*)(double a, double b, const Call& call);

struct Row {
  const char* op_type;
  Step step;
  bool gives_bool = false;
};

/// Integer division cuts off the fraction; division of integers by zero is not asked for.
double divide(double a, double b, const Call& call) {
  return is_float(call.input(0).type) ? a / b : std::trunc(a / b);
}

double power(double a, double b, const Call& call) {
  const double result = std::pow(a, b);
  return is_float(call.input(0).type) ? result : std::trunc(result);
}

double modulo(double a, double b, const Call& call) {
  if (call.integer("fmod", 0) != 0) return std::fmod(a, b);
  const double rest = std::fmod(a, b);  // the sign of the divisor
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

std::uint64_t pattern(double value) { return encode(ElementType::Int64, value); }

double from_pattern(std::uint64_t value, const Call& call) {
  return decode(call.input(0).type, value);
}

double shift(double a, double b, const Call& call) {
  const std::uint64_t bits = encode(ElementType::UInt64, a);
  const auto by = static_cast<unsigned>(b);
  const bool left = call.text("direction", "") == "LEFT";
  if (by >= 64) return 0;
  return from_pattern(left ? bits << by : bits >> by, call);
}

/// NaN wins, as in numpy and in the specification of Max.
double greater_of(double a, double b, const Call&) {
  return std::isnan(a) || std::isnan(b) ? std::nan("") : std::fmax(a, b);
}

double lesser_of(double a, double b, const Call&) {
  return std::isnan(a) || std::isnan(b) ? std::nan("") : std::fmin(a, b);
}

const Row kRows[] = {
    {"Add", [](double a, double b, const Call&) { return a + b; }},
    {"Sub", [](double a, double b, const Call&) { return a - b; }},
    {"Mul", [](double a, double b, const Call&) { return a * b; }},
    {"Div", divide},
    {"Pow", power},
    {"Mod", modulo},
    {"PRelu", [](double a, double b, const Call&) { return a < 0 ? a * b : a; }},
    {"Max", greater_of},
    {"Min", lesser_of},
    {"Sum", [](double a, double b, const Call&) { return a + b; }},
    {"Mean", [](double a, double b, const Call&) { return a + b; }},
    {"And", [](double a, double b, const Call&) { return static_cast<double>(a != 0 && b != 0); }},
    {"Or", [](double a, double b, const Call&) { return static_cast<double>(a != 0 || b != 0); }},
    {"Xor",
     [](double a, double b, const Call&) { return static_cast<double>((a != 0) != (b != 0)); }},
    {"Equal", [](double a, double b, const Call&) { return static_cast<double>(a == b); }, true},
    {"Greater", [](double a, double b, const Call&) { return static_cast<double>(a > b); }, true},
    {"GreaterOrEqual", [](double a, double b, const Call&) { return static_cast<double>(a >= b); },
     true},
    {"Less", [](double a, double b, const Call&) { return static_cast<double>(a < b); }, true},
    {"LessOrEqual", [](double a, double b, const Call&) { return static_cast<double>(a <= b); },
     true},
    {"BitShift", shift},
    {"BitwiseAnd",
     [](double a, double b, const Call& c) { return from_pattern(pattern(a) & pattern(b), c); }},
    {"BitwiseOr",
     [](double a, double b, const Call& c) { return from_pattern(pattern(a) | pattern(b), c); }},
    {"BitwiseXor",
     [](double a, double b, const Call& c) { return from_pattern(pattern(a) ^ pattern(b), c); }},
};

const Row& row_of(const std::string& op_type) {
  for (const Row& row : kRows) {
    if (op_type == row.op_type) return row;
  }
  return kRows[0];
}

/// Over all inputs from left to right; Mean divides at the end.
Arrays elementwise(const Call& call) {
  const Row& row = row_of(call.node.op_type);
  Array y = call.input(0);
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    const Array& right = call.input(i);
    Array next = filled(y.type, broadcast(y.dims, right.dims));
    std::size_t position = 0;
    for_each_index(next.dims, [&](const Dims& index) {
      next.values[position++] = row.step(y.values[offset_broadcast(y.dims, index)],
                                         right.values[offset_broadcast(right.dims, index)], call);
    });
    y = next;
  }
  if (call.node.op_type == "Mean") {
    for (double& value : y.values) value /= static_cast<double>(call.inputs.size());
  }
  if (row.gives_bool) y.type = ElementType::Bool;
  return {y};
}

Arrays where(const Call& call) {
  const Array& condition = call.input(0);
  const Array& x = call.input(1);
  const Array& y = call.input(2);
  Array z = filled(x.type, broadcast(condition.dims, broadcast(x.dims, y.dims)));
  std::size_t position = 0;
  for_each_index(z.dims, [&](const Dims& index) {
    const bool chosen = condition.values[offset_broadcast(condition.dims, index)] != 0;
    z.values[position++] = chosen ? x.values[offset_broadcast(x.dims, index)]
                                  : y.values[offset_broadcast(y.dims, index)];
  });
  return {z};
}

/// The 8-bit floating-point types saturate unless the attribute says otherwise; NaN stays NaN.
double cast_to_float8(ElementType to, double value, bool saturate) {
  if (!saturate || std::isnan(value)) return round_to(to, value);
  const double limit = highest(to);
  const double rounded = round_to(to, value);
  return std::isfinite(rounded) ? rounded : std::copysign(limit, value);
}

Arrays cast(const Call& call) {
  Array y = call.input(0);
  const ElementType from = y.type;
  y.type = call.node.op_type == "CastLike"
               ? call.input(1).type
               : static_cast<ElementType>(call.integer("to", static_cast<std::int64_t>(from)));
  const bool saturate = call.integer("saturate", 1) != 0;
  for (double& value : y.values) {
    if (is_float(y.type) && bits(y.type) == 8) {
      value = cast_to_float8(y.type, value, saturate);
    } else {
      value = round_to(y.type, value);
    }
  }
  return {y};
}

const Registration kElementwise({"Add",
                                 "Sub",
                                 "Mul",
                                 "Div",
                                 "Pow",
                                 "Mod",
                                 "PRelu",
                                 "Max",
                                 "Min",
                                 "Sum",
                                 "Mean",
                                 "And",
                                 "Or",
                                 "Xor",
                                 "Equal",
                                 "Greater",
                                 "GreaterOrEqual",
                                 "Less",
                                 "LessOrEqual",
                                 "BitShift",
                                 "BitwiseAnd",
                                 "BitwiseOr",
                                 "BitwiseXor"},
                                elementwise);
const Registration kWhere({"Where"}, where);
const Registration kCast({"Cast", "CastLike"}, cast);

}  // namespace
}  // namespace backplane::reference
