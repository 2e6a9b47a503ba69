// Functions of two and more tensors with broadcasting, comparisons, logic, bits, Where.
#include <cmath>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "AddBroadcastsBothWays",
     .node = {.op_type = "Add", .opset = 14},
     .inputs = {f32({2, 1}, {10, 20}), f32({3}, {1, 2, 3})},
     .outputs = {f32({2, 3}, {11, 12, 13, 21, 22, 23})}},
    {.name = "AddOfInt64IsExact",
     .node = {.op_type = "Add", .opset = 14},
     .inputs = {i64({2}, {9007199254740993, INT64_MAX}), i64({2}, {2, 1})},
     .outputs = {i64({2}, {9007199254740995, INT64_MIN})}},
    {.name = "SubOfUint8Wraps",
     .node = {.op_type = "Sub", .opset = 14},
     .inputs = {u8({2}, {3, 5}), u8({2}, {5, 3})},
     .outputs = {u8({2}, {254, 2})}},
    {.name = "MulOfInt64IsExact",
     .node = {.op_type = "Mul", .opset = 14},
     .inputs = {i64({1}, {3037000499}), i64({1}, {3037000499})},
     .outputs = {i64({1}, {9223372030926249001})}},
    {.name = "DivOfIntegersCutsTowardsZero",
     .node = {.op_type = "Div", .opset = 14},
     .inputs = {i32({4}, {7, -7, 7, -7}), i32({4}, {2, 2, -2, -2})},
     .outputs = {i32({4}, {3, -3, -3, 3})}},
    {.name = "DivOfFloatsByZero",
     .node = {.op_type = "Div", .opset = 14},
     .inputs = {f32({3}, {1, -1, 0}), f32({}, {0})},
     .outputs = {f32({3}, {kInf, -kInf, kNan})}},
    {.name = "ModOfIntegersHasTheDivisorsSign",
     .node = {.op_type = "Mod", .opset = 13},
     .inputs = {i32({4}, {7, -7, 7, -7}), i32({4}, {3, 3, -3, -3})},
     .outputs = {i32({4}, {1, 2, -2, -1})}},
    {.name = "FmodHasTheDividendsSign",
     .node = {.op_type = "Mod", .opset = 13, .attributes = {{"fmod", 1}}},
     .inputs = {f32({4}, {7.5, -7.5, 7.5, -7.5}), f32({4}, {2, 2, -2, -2})},
     .outputs = {f32({4}, {1.5, -1.5, 1.5, -1.5})}},
    {.name = "FmodOfIntegers",
     .node = {.op_type = "Mod", .opset = 13, .attributes = {{"fmod", 1}}},
     .inputs = {i64({4}, {7, -7, 7, -7}), i64({4}, {3, 3, -3, -3})},
     .outputs = {i64({4}, {1, -1, 1, -1})}},
    {.name = "FmodAtItsEnds",
     .node = {.op_type = "Mod", .opset = 13, .attributes = {{"fmod", 1}}},
     .inputs = {f32({10}, {3e38, -0.0, 5, 5, kInf, kNan, 1, 16777217, 1e-44, 2.9999998}),
                f32({10}, {1e-3, 2, kInf, 0, 2, 2, kNan, 0.1, 1e-45, 3})},
     .outputs = {f32(
         {10}, {std::fmod(static_cast<double>(3e38f), static_cast<double>(1e-3f)), 0, 5, kNan, kNan,
                kNan, kNan, std::fmod(16777216.0, static_cast<double>(0.1f)), 0, 2.9999998})},
     .tolerance = {0, 0}},
    {.name = "PowByAHalf",
     .node = {.op_type = "Pow", .opset = 15},
     .inputs = {f32({6}, {4, 0, -0.0, -1, kInf, -kInf}), constant(f32({}, {0.5}))},
     .outputs = {f32({6}, {2, 0, 0, kNan, kInf, kInf})},
     .tolerance = {0, 0}},
    {.name = "PowOfDoubleByAHalf",
     .node = {.op_type = "Pow", .opset = 15},
     .inputs = {f64({9}, {4, 0, -0.0, -1, kInf, -kInf, kNan, 9, 16}), constant(f64({}, {0.5}))},
     .outputs = {f64({9}, {2, 0, 0, kNan, kInf, kInf, kNan, 3, 4})},
     .tolerance = {0, 0}},
    {.name = "PowByAnExponentThatAFloatDoesNotHold",
     .node = {.op_type = "Pow", .opset = 15},
     .inputs = {f32({2}, {-1, 1}), constant(i64({1}, {16777217}))},
     .outputs = {f32({2}, {-1, 1})}},
    {.name = "PowWithAnExponentOfAnotherType",
     .node = {.op_type = "Pow", .opset = 15},
     .inputs = {f32({3}, {2, -3, 0.5}), constant(i64({1}, {2}))},
     .outputs = {f32({3}, {4, 9, 0.25})}},
    {.name = "PowOfIntegers",
     .node = {.op_type = "Pow", .opset = 15},
     .inputs = {i32({3}, {2, -3, 5}), i32({3}, {10, 3, 0})},
     .outputs = {i32({3}, {1024, -27, 1})}},
    {.name = "PowOfZeroAndInfinity",
     .node = {.op_type = "Pow", .opset = 15},
     .inputs = {f32({4}, {0, 0, 2, -2}), f32({4}, {0, -1, kInf, 0.5})},
     .outputs = {f32({4}, {1, kInf, kInf, kNan})}},
    {.name = "MaxKeepsNan",
     .node = {.op_type = "Max", .opset = 13},
     .inputs = {f32({3}, {1, kNan, 3}), f32({3}, {2, 2, kNan})},
     .outputs = {f32({3}, {2, kNan, kNan})}},
    {.name = "MinOfOneInput",
     .node = {.op_type = "Min", .opset = 13},
     .inputs = {f32({2}, {1, 2})},
     .outputs = {f32({2}, {1, 2})}},
    {.name = "MeanOfThree",
     .node = {.op_type = "Mean", .opset = 13},
     .inputs = {f32({2}, {1, 2}), f32({2}, {3, 4}), f32({1}, {5})},
     .outputs = {f32({2}, {3, 11.0 / 3})}},
    {.name = "EqualOfStrings",
     .node = {.op_type = "Equal", .opset = 19},
     .inputs = {text({2, 1}, {"a", "b"}), text({2}, {"a", "c"})},
     .outputs = {boolean({2, 2}, {1, 0, 0, 0})}},
    {.name = "EqualOfBools",
     .node = {.op_type = "Equal", .opset = 13},
     .inputs = {boolean({2}, {1, 0}), boolean({1}, {1})},
     .outputs = {boolean({2}, {1, 0})}},
    {.name = "EqualOfNeighbouringInt64",
     .node = {.op_type = "Equal", .opset = 13},
     .inputs = {i64({2}, {9007199254740993, 1}), i64({1}, {9007199254740992})},
     .outputs = {boolean({2}, {0, 0})}},
    {.name = "ComparisonsWithNanAreFalse",
     .node = {.op_type = "GreaterOrEqual", .opset = 16},
     .inputs = {f32({3}, {kNan, 1, kNan}), f32({3}, {1, kNan, kNan})},
     .outputs = {boolean({3}, {0, 0, 0})}},
    {.name = "BitShiftLeft",
     .node = {.op_type = "BitShift", .opset = 11, .attributes = {{"direction", "LEFT"}}},
     .inputs = {u8({3}, {1, 129, 7}), u8({3}, {1, 1, 4})},
     .outputs = {u8({3}, {2, 2, 112})}},
    {.name = "BitShiftRight",
     .node = {.op_type = "BitShift", .opset = 11, .attributes = {{"direction", "RIGHT"}}},
     .inputs = {u8({3}, {2, 129, 255}), u8({}, {1})},
     .outputs = {u8({3}, {1, 64, 127})}},
    {.name = "PReluWithASlopePerChannel",
     .node = {.op_type = "PRelu", .opset = 16},
     .inputs = {f32({1, 2, 2}, {-1, 1, -2, 2}), constant(f32({2, 1}, {0.5, 0.25}))},
     .outputs = {f32({1, 2, 2}, {-0.5, 1, -0.5, 2})}},
    {.name = "WhereOfStrings",
     .node = {.op_type = "Where", .opset = 16},
     .inputs = {boolean({2}, {1, 0}), text({1}, {"yes"}), text({2}, {"no", "never"})},
     .outputs = {text({2}, {"yes", "never"})}},
    {.name = "ScalarWithScalar",
     .node = {.op_type = "Mul", .opset = 13},
     .inputs = {f32({}, {3}), f32({}, {4})},
     .outputs = {f32({}, {12})}},
    {.name = "ScalarWithNoElements",
     .node = {.op_type = "Add", .opset = 13},
     .inputs = {f32({2, 0}, {}), f32({}, {4})},
     .outputs = {f32({2, 0}, {})}},
    {.name = "SizeOneMeetsSizeZero",
     .node = {.op_type = "Add", .opset = 13},
     .inputs = {f32({2, 0}, {}), f32({1, 1}, {4})},
     .outputs = {f32({2, 0}, {})}},
};
const Rows kBinaryRows("Binary", kRows);

struct Function {
  const char* op_type;
  std::int64_t opset;
  std::vector<ElementType> types;
  double low = -20;
  double high = 20;
  double tolerance = 1;
};

const std::vector<ElementType> kBools = {ElementType::Bool};
const std::vector<ElementType> kUnsigned = {ElementType::UInt8, ElementType::UInt16,
                                            ElementType::UInt32, ElementType::UInt64};

std::vector<Function> functions() {
  std::vector<ElementType> comparable = number_types();
  comparable.push_back(ElementType::Bool);
  return {
      {"Add", 14, number_types()},
      {"Sub", 14, number_types()},
      {"Mul", 14, number_types()},
      {"Div", 14, number_types(), 1, 20, 2},
      {"Mod", 13, integer_types(), 1, 20},
      {"Pow",
       15,
       {ElementType::Float, ElementType::Double, ElementType::Int32, ElementType::Int64},
       1,
       4,
       16},
      {"PRelu",
       16,
       {ElementType::Float, ElementType::Double, ElementType::Float16, ElementType::Int32,
        ElementType::Int64, ElementType::UInt32, ElementType::UInt64, ElementType::BFloat16}},
      {"And", 7, kBools},
      {"Or", 7, kBools},
      {"Xor", 7, kBools},
      {"Equal", 13, comparable, -2, 2},
      {"Greater", 13, number_types(), -2, 2},
      {"Less", 13, number_types(), -2, 2},
      {"GreaterOrEqual", 16, number_types(), -2, 2},
      {"LessOrEqual", 16, number_types(), -2, 2},
      {"BitwiseAnd", 18, integer_types(), -1000, 1000},
      {"BitwiseOr", 18, integer_types(), -1000, 1000},
      {"BitwiseXor", 18, integer_types(), -1000, 1000},
  };
}

/// Two inputs of which either is broadcast.
std::vector<Dims> broadcast_pair(Random& random, std::int64_t rank) {
  const Dims full = random.dims(rank);
  if (random.one_in(2)) return {full, random.broadcastable(full)};
  return {random.broadcastable(full), full};
}

OpCase any_function(Random& random) {
  static const std::vector<Function> all = functions();
  const Function& function = random.pick(all);
  OpCase row;
  row.node = {.op_type = function.op_type, .opset = function.opset};
  const ElementType type = random.one_in(4) ? function.types[0] : random.pick(function.types);
  std::vector<Dims> dims = broadcast_pair(random, random.integer(0, 5));
  if (row.node.op_type == "PRelu" && dims[0].size() <= dims[1].size()) dims[0] = dims[1];
  for (const Dims& one : dims)
    row.inputs.push_back(random.tensor(type, one, function.low, function.high));
  if (row.node.op_type == "PRelu") {
    row.inputs[1] = random.tensor(type, random.broadcastable(dims[0]), function.low, function.high);
  }
  if (random.one_in(3)) row.inputs[1] = constant(row.inputs[1].tensor);
  row.tolerance = {function.tolerance, function.tolerance};
  return row;
}
const Sweep kAnyFunction("Binary", "AnyFunction", 240, any_function);

/// Quotients near whole numbers and far from them; a remainder has no error.
OpCase remainder(Random& random) {
  OpCase row;
  row.node = {.op_type = "Mod", .opset = 13, .attributes = {{"fmod", 1}}};
  const ElementType type = random.pick({ElementType::Float, ElementType::Float, ElementType::Double,
                                        ElementType::Float16, ElementType::BFloat16});
  const double high = random.pick({1.0, 100.0, 30000.0});
  const std::vector<Dims> dims = broadcast_pair(random, random.integer(0, 4));
  row.inputs = {random.tensor(type, dims[0], -high, high),
                random.tensor(type, dims[1], random.pick({-20.0, 0.001}), 20)};
  if (random.one_in(3)) row.inputs[0] = random.tensor(type, dims[0], 1, 1);
  row.tolerance = {0, 0};
  return row;
}
const Sweep kRemainder("Binary", "Remainder", 60, remainder);

/// Powers of one number, which is often one that has a loop of its own.
OpCase power_by_number(Random& random) {
  OpCase row;
  row.node = {.op_type = "Pow", .opset = 15};
  const ElementType base = random.pick({ElementType::Float, ElementType::Double});
  const bool is_whole = random.one_in(2);
  const ElementType type = is_whole ? random.pick(number_types()) : base;
  const double power = is_whole ? random.pick({1.0, 2.0, 3.0, 4.0})
                                : random.pick({0.5, 2.0, 3.0, -1.0, 1.0, 1.5, 0.0});
  row.inputs = {
      random.tensor(base, random.dims(random.integer(0, 4)), 0.1, 4),
      random.tensor(type, Dims(static_cast<std::size_t>(random.integer(0, 1)), 1), power, power)};
  row.tolerance = {4, 4};
  return row;
}
const Sweep kPowerByNumber("Binary", "PowerByNumber", 60, power_by_number);

OpCase many_elements(Random& random) {
  static const std::vector<Function> all = functions();
  const Function& function = random.pick(all);
  OpCase row;
  row.node = {.op_type = function.op_type, .opset = function.opset};
  const std::int64_t columns = random.integer(200, 400);
  const Dims full = {random.integer(100, 200), columns};
  const Dims other = random.pick({full, Dims{}, Dims{columns}, Dims{full[0], 1}});
  row.inputs = {random.tensor(function.types[0], full, function.low, function.high),
                random.tensor(function.types[0], other, function.low, function.high)};
  row.tolerance = {function.tolerance, function.tolerance};
  return row;
}
const Sweep kManyElements("Binary", "ManyElements", 8, many_elements);

OpCase variadic(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"Max", "Min", "Sum", "Mean"}), .opset = 13};
  const bool ordered = row.node.op_type == "Max" || row.node.op_type == "Min";
  const ElementType type = random.pick(ordered ? number_types() : float_types());
  const Dims full = random.dims(random.integer(0, 4), 500);
  const std::int64_t count = random.integer(1, 5);
  for (std::int64_t i = 0; i < count; ++i) {
    row.inputs.push_back(random.tensor(type, random.broadcastable(full), -9, 9));
  }
  // Every sum on the way may be rounded to the type: kernels may add in pairs.
  const double unit = type == ElementType::BFloat16  ? 65536
                      : type == ElementType::Float16 ? 8192
                                                     : 1;
  row.tolerance = ordered ? Tolerance{0, 0} : Tolerance{4 * unit, 16 * unit};
  return row;
}
const Sweep kVariadic("Binary", "Variadic", 60, variadic);

OpCase where(Random& random) {
  OpCase row;
  row.node = {.op_type = "Where", .opset = 16};
  const ElementType type = random.pick(all_types());
  const Dims full = random.dims(random.integer(0, 5));
  row.inputs = {random.tensor(ElementType::Bool, random.broadcastable(full)),
                random.tensor(type, random.broadcastable(full)),
                random.tensor(type, random.broadcastable(full))};
  row.tolerance = {0, 0};
  return row;
}
const Sweep kWhere("Binary", "Where", 60, where);

OpCase shift(Random& random) {
  OpCase row;
  row.node = {.op_type = "BitShift", .opset = 11};
  row.node.attributes = {{"direction", random.pick({"LEFT", "RIGHT"})}};
  const ElementType type = random.pick(kUnsigned);
  const std::vector<Dims> dims = broadcast_pair(random, random.integer(0, 3));
  row.inputs = {random.tensor(type, dims[0], 0, 200), random.tensor(type, dims[1], 0, 7)};
  return row;
}
const Sweep kShift("Binary", "BitShift", 16, shift);

}  // namespace
}  // namespace backplane::ops_test
