// Functions of one tensor, element by element: https://onnx.ai/onnx/operators/
#include <cmath>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "ReluOfNanIsNan",
     .node = {.op_type = "Relu", .opset = 14},
     .inputs = {f32({5}, {-1, 0, 2, kNan, -kInf})},
     .outputs = {f32({5}, {0, 0, 2, kNan, 0})}},
    {.name = "ReluOfIntegers",
     .node = {.op_type = "Relu", .opset = 14},
     .inputs = {i8({4}, {-128, -1, 0, 127})},
     .outputs = {i8({4}, {0, 0, 0, 127})}},
    {.name = "RoundTakesHalvesToEven",
     .node = {.op_type = "Round", .opset = 11},
     .inputs = {f32({8}, {0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 8388609, 1e30})},
     .outputs = {f32({8}, {0, 2, 2, 0, -2, -2, 8388609, 1e30})}},
    {.name = "AbsOfTheLeastInt64StaysAsItIs",
     .node = {.op_type = "Abs", .opset = 13},
     .inputs = {i64({3}, {INT64_MIN, -9007199254740993, 5})},
     .outputs = {i64({3}, {INT64_MIN, 9007199254740993, 5})}},
    {.name = "NegOfLargeInt64",
     .node = {.op_type = "Neg", .opset = 13},
     .inputs = {i64({2}, {9007199254740993, -INT64_MAX})},
     .outputs = {i64({2}, {-9007199254740993, INT64_MAX})}},
    {.name = "SignOfUnsigned",
     .node = {.op_type = "Sign", .opset = 13},
     .inputs = {u8({3}, {0, 1, 255})},
     .outputs = {u8({3}, {0, 1, 1})}},
    {.name = "SignOfInfinityAndZero",
     .node = {.op_type = "Sign", .opset = 13},
     .inputs = {f32({4}, {-kInf, kInf, 0, -0.0})},
     .outputs = {f32({4}, {-1, 1, 0, 0})}},
    {.name = "ExpAtItsEnds",
     .node = {.op_type = "Exp", .opset = 13},
     .inputs = {f32({6}, {88, 89, -87, -200, kInf, -kInf})},
     .outputs = {f32({6}, {std::exp(88.0), kInf, std::exp(-87.0), 0, kInf, 0})},
     .tolerance = {8, 0}},
    {.name = "LogAtItsEnds",
     .node = {.op_type = "Log", .opset = 13},
     .inputs = {f32({6}, {1, 0, -1, kInf, 1e-38, 3e38})},
     .outputs = {f32({6}, {0, -kInf, kNan, kInf, std::log(1e-38), std::log(3e38)})}},
    {.name = "SqrtOfNegativeIsNan",
     .node = {.op_type = "Sqrt", .opset = 13},
     .inputs = {f32({4}, {4, 0, -1, kInf})},
     .outputs = {f32({4}, {2, 0, kNan, kInf})}},
    {.name = "SigmoidAtItsEnds",
     .node = {.op_type = "Sigmoid", .opset = 13},
     .inputs = {f32({6}, {0, 100, -200, kInf, -kInf, kNan})},
     .outputs = {f32({6}, {0.5, 1, 0, 1, 0, kNan})}},
    {.name = "TanhAtItsEnds",
     .node = {.op_type = "Tanh", .opset = 13},
     .inputs = {f32({6}, {0, 50, -50, kInf, -kInf, kNan})},
     .outputs = {f32({6}, {0, 1, -1, 1, -1, kNan})}},
    {.name = "ErfAtItsEnds",
     .node = {.op_type = "Erf", .opset = 13},
     .inputs = {f32({5}, {0, 6, -6, kInf, kNan})},
     .outputs = {f32({5}, {0, 1, -1, 1, kNan})}},
    {.name = "TanhOfSmallAndLargeValues",
     .node = {.op_type = "Tanh", .opset = 13},
     .inputs = {f32({8}, {1e-38, -1e-5, 0.17, 0.36, 8.5, 9.5, -0.62, 3e38})},
     .outputs = {f32({8}, {1e-38, -1e-5, std::tanh(0.17), std::tanh(0.36), std::tanh(8.5), 1,
                           std::tanh(-0.62), 1})},
     .tolerance = {4, 0}},
    {.name = "SigmoidOfWhatIsSmallIsNotZero",
     .node = {.op_type = "Sigmoid", .opset = 13},
     .inputs = {f32({4}, {-80, -87.25, -90, -3e38})},
     .outputs = {f32({4}, {std::exp(-80.0), std::exp(-87.25), 0, 0})},
     .tolerance = {4, 0}},
    {.name = "ErfOfSmallAndLargeValues",
     .node = {.op_type = "Erf", .opset = 13},
     .inputs = {f32({6}, {1e-38, -1e-5, 0.00173, 0.92, -3.9, 3.95})},
     .outputs = {f32({6}, {1.1283791671e-38, -1.1283791671e-5, std::erf(0.00173), std::erf(0.92),
                           std::erf(-3.9), 1})},
     .tolerance = {4, 0}},
    {.name = "SinOfLargeValues",
     .node = {.op_type = "Sin", .opset = 7},
     .inputs = {f32({10}, {0, 131072, 131073, -1e6, 3e38, kInf, -kInf, kNan, 710, -1e-30})},
     .outputs = {f32(
         {10}, {0, std::sin(131072.0), std::sin(131073.0), std::sin(-1e6),
                std::sin(static_cast<double>(3e38f)), kNan, kNan, kNan, std::sin(710.0), -1e-30})},
     .tolerance = {4, 0}},
    {.name = "CosOfLargeValues",
     .node = {.op_type = "Cos", .opset = 7},
     .inputs = {f32({9}, {0, 131072, 131073, -1e6, 3e38, kInf, -kInf, kNan, 1.57079637})},
     .outputs = {f32({9}, {1, std::cos(131072.0), std::cos(131073.0), std::cos(-1e6),
                           std::cos(static_cast<double>(3e38f)), kNan, kNan, kNan,
                           std::cos(static_cast<double>(1.57079637f))})},
     .tolerance = {4, 0}},
    {.name = "SinOfLargeDoubles",
     .node = {.op_type = "Sin", .opset = 7},
     .inputs = {f64({9}, {0, 131072, 131073, -1e6, 1e300, kInf, kNan, 710, -1e-300})},
     .outputs = {f64({9}, {0, std::sin(131072.0), std::sin(131073.0), std::sin(-1e6),
                           std::sin(1e300), kNan, kNan, std::sin(710.0), -1e-300})},
     .tolerance = {2, 0}},
    {.name = "CosOfDoublesNearARoot",
     .node = {.op_type = "Cos", .opset = 7},
     .inputs = {f64({5}, {1.5707963267948966, 4.71238898038469, 1e5, 14.137166941154069, -kInf})},
     .outputs = {f64({5}, {std::cos(1.5707963267948966), std::cos(4.71238898038469), std::cos(1e5),
                           std::cos(14.137166941154069), kNan})},
     .tolerance = {2, 0}},
    {.name = "ExpOfDoubleAtItsEnds",
     .node = {.op_type = "Exp", .opset = 13},
     .inputs = {f64({10}, {0, 709.7, 710, -708.5, -745, -746, kInf, -kInf, kNan, 1e-300})},
     .outputs = {f64({10}, {1, std::exp(709.7), kInf, std::exp(-708.5), std::exp(-745.0), 0, kInf,
                            0, kNan, 1})},
     .tolerance = {2, 0}},
    {.name = "TanhOfDoubleAtItsEnds",
     .node = {.op_type = "Tanh", .opset = 13},
     .inputs = {f64({9}, {0, 1e-300, -1e-5, 0.17, 25, -1e300, kInf, -kInf, kNan})},
     .outputs = {f64({9}, {0, 1e-300, std::tanh(-1e-5), std::tanh(0.17), 1, -1, 1, -1, kNan})},
     .tolerance = {3, 0}},
    {.name = "SigmoidOfDoubleAtItsEnds",
     .node = {.op_type = "Sigmoid", .opset = 13},
     .inputs = {f64({8}, {0, 800, -700, -1e300, kInf, -kInf, kNan, -1})},
     .outputs = {f64({8}, {0.5, 1, std::exp(-700.0), 0, 1, 0, kNan, 1 / (1 + std::exp(1.0))})},
     .tolerance = {3, 0}},
    {.name = "AtanAtItsEnds",
     .node = {.op_type = "Atan", .opset = 7},
     .inputs = {f32({7}, {0, 1, -1, kInf, -kInf, kNan, 1e-38})},
     .outputs = {f32(
         {7}, {0, std::atan(1.0), -std::atan(1.0), std::acos(0.0), -std::acos(0.0), kNan, 1e-38})},
     .tolerance = {2, 0}},
    {.name = "AsinAtItsEnds",
     .node = {.op_type = "Asin", .opset = 7},
     .inputs = {f32({8}, {0, 1, -1, 1.0000001, -kInf, kNan, 0.5, -0.50390625})},
     .outputs = {f32({8}, {0, std::asin(1.0), std::asin(-1.0), kNan, kNan, kNan, std::asin(0.5),
                           std::asin(-0.50390625)})},
     .tolerance = {4, 0}},
    {.name = "AcosAtItsEnds",
     .node = {.op_type = "Acos", .opset = 7},
     .inputs = {f32({8}, {0, 1, -1, -1.0000001, kInf, kNan, -0.5, 0.99993896484375})},
     .outputs = {f32({8}, {std::acos(0.0), 0, std::acos(-1.0), kNan, kNan, kNan, std::acos(-0.5),
                           std::acos(0.99993896484375)})},
     .tolerance = {4, 0}},
    {.name = "SoftplusOfLargeValuesIsTheValue",
     .node = {.op_type = "Softplus", .opset = 1},
     .inputs = {f32({4}, {100, 1000, -1000, 0})},
     .outputs = {f32({4}, {100, 1000, 0, 0.6931471805599453})}},
    {.name = "ReciprocalOfZeroIsInfinity",
     .node = {.op_type = "Reciprocal", .opset = 13},
     .inputs = {f32({3}, {0, 4, kInf})},
     .outputs = {f32({3}, {kInf, 0.25, 0})}},
    {.name = "AFloatThatIsTooLargeForHalfBecomesInfinity",
     .node = {.op_type = "Exp", .opset = 13},
     .inputs = {f16({3}, {11, 12, 0})},
     .outputs = {f16({3}, {59874.1417151978, kInf, 1})}},
    {.name = "ScalarInScalarOut",
     .node = {.op_type = "Relu", .opset = 13},
     .inputs = {f32({}, {-2})},
     .outputs = {f32({}, {0})}},
    {.name = "NoElements",
     .node = {.op_type = "Sigmoid", .opset = 13},
     .inputs = {f32({3, 0, 2}, {})},
     .outputs = {f32({3, 0, 2}, {})}},
    {.name = "NotOfBool",
     .node = {.op_type = "Not", .opset = 1},
     .inputs = {boolean({2, 2}, {1, 0, 0, 1})},
     .outputs = {boolean({2, 2}, {0, 1, 1, 0})}},
    {.name = "BitwiseNotOfUnsigned",
     .node = {.op_type = "BitwiseNot", .opset = 18},
     .inputs = {u8({3}, {0, 1, 255})},
     .outputs = {u8({3}, {255, 254, 0})}},
    {.name = "IsNan",
     .node = {.op_type = "IsNaN", .opset = 13},
     .inputs = {f32({4}, {kNan, 1, kInf, -kNan})},
     .outputs = {boolean({4}, {1, 0, 0, 1})}},
    {.name = "IsInfOfBothSigns",
     .node = {.op_type = "IsInf", .opset = 10},
     .inputs = {f32({4}, {kNan, -kInf, kInf, 3})},
     .outputs = {boolean({4}, {0, 1, 1, 0})}},
    {.name = "IsInfOfNegativeOnesAlone",
     .node = {.op_type = "IsInf", .opset = 10, .attributes = {{"detect_positive", 0}}},
     .inputs = {f64({4}, {kNan, -kInf, kInf, 3})},
     .outputs = {boolean({4}, {0, 1, 0, 0})}},
    {.name = "ClipByAttributes",
     .node = {.op_type = "Clip", .opset = 6, .attributes = {{"min", 0.0f}, {"max", 6.0f}}},
     .inputs = {f32({5}, {-1, 0, 3, 7, kInf})},
     .outputs = {f32({5}, {0, 0, 3, 6, 6})}},
    {.name = "ClipByInputs",
     .node = {.op_type = "Clip", .opset = 13},
     .inputs = {f32({4}, {-5, 0.5, 3, kNan}), constant(f32({}, {-1})), constant(f32({}, {1}))},
     .outputs = {f32({4}, {-1, 0.5, 1, kNan})}},
    {.name = "ClipWithoutMin",
     .node = {.op_type = "Clip", .opset = 13},
     .inputs = {i8({3}, {-128, 0, 100}), absent(), constant(i8({}, {50}))},
     .outputs = {i8({3}, {-128, 0, 50})}},
    {.name = "ClipWithoutBounds",
     .node = {.op_type = "Clip", .opset = 13},
     .inputs = {f32({2}, {-1e30, 1e30})},
     .outputs = {f32({2}, {-1e30, 1e30})}},
    {.name = "DropoutIsIdentity",
     .node = {.op_type = "Dropout", .opset = 13},
     .inputs = {f32({3}, {1, 2, 3})},
     .outputs = {f32({3}, {1, 2, 3}), boolean({3}, {1, 1, 1})}},
    {.name = "IdentityOfStrings",
     .node = {.op_type = "Identity", .opset = 16},
     .inputs = {text({2}, {"a", "a long text that no small buffer holds, for certain"})},
     .outputs = {text({2}, {"a", "a long text that no small buffer holds, for certain"})}},
};
const Rows kUnaryRows("Unary", kRows);

/// Which types an operator is declared for at the opset of the sweep.
enum class Kinds { Floats, IeeeFloats, Signed, Numbers };

struct Function {
  const char* op_type;
  std::int64_t opset;
  Kinds kinds = Kinds::Floats;
  double low = -4;
  double high = 4;
  double tolerance = 8;
  const char* parameters[2] = {nullptr, nullptr};  // attributes to be varied
};

const std::vector<Function> kFunctions = {
    {"Abs", 13, Kinds::Numbers, -100, 100, 0},
    {"Neg", 13, Kinds::Signed, -100, 100, 0},
    {"Sign", 13, Kinds::Numbers, -2, 2, 0},
    {"Floor", 13, Kinds::Floats, -100, 100, 0},
    {"Ceil", 13, Kinds::Floats, -100, 100, 0},
    {"Round", 22, Kinds::Floats, -100, 100, 0},
    {"Sqrt", 13, Kinds::Floats, 0, 100, 2},
    {"Reciprocal", 13, Kinds::Floats, 0.01, 10, 2},
    {"Exp", 13, Kinds::Floats, -10, 10},
    {"Log", 13, Kinds::Floats, 0.001, 100},
    {"Erf", 13, Kinds::Floats},
    {"Tanh", 13, Kinds::Floats, -6, 6},
    {"Sigmoid", 13, Kinds::Floats, -12, 12},
    {"Softplus", 22, Kinds::Floats, -20, 20},
    {"Softsign", 22, Kinds::Floats},
    {"Relu", 14, Kinds::Signed, -50, 50, 0},
    {"LeakyRelu", 16, Kinds::Floats, -4, 4, 2, {"alpha"}},
    {"ThresholdedRelu", 22, Kinds::Floats, -4, 4, 0, {"alpha"}},
    {"Elu", 22, Kinds::Floats, -4, 4, 8, {"alpha"}},
    {"Celu", 12, Kinds::IeeeFloats, -4, 4, 8, {"alpha"}},
    {"Selu", 22, Kinds::Floats, -4, 4, 8, {"alpha", "gamma"}},
    {"HardSigmoid", 22, Kinds::Floats, -6, 6, 4, {"alpha", "beta"}},
    {"HardSwish", 22, Kinds::Floats, -6, 6, 4},
    {"Swish", 24, Kinds::Floats, -12, 12, 8, {"alpha"}},
    {"Mish", 22, Kinds::Floats, -6, 6, 16},
    {"Gelu", 20, Kinds::Floats, -5, 5, 16},
    {"Sin", 22, Kinds::Floats},
    {"Cos", 22, Kinds::Floats},
    {"Tan", 22, Kinds::Floats, -1.4, 1.4, 16},
    {"Asin", 22, Kinds::Floats, -1, 1},
    {"Acos", 22, Kinds::Floats, -1, 1},
    {"Atan", 22, Kinds::Floats},
    {"Sinh", 22, Kinds::Floats},
    {"Cosh", 22, Kinds::Floats},
    {"Asinh", 22, Kinds::Floats},
    {"Acosh", 22, Kinds::Floats, 1, 10},
    {"Atanh", 22, Kinds::Floats, -0.9, 0.9},
    {"IsNaN", 20, Kinds::Floats},
    {"IsInf", 20, Kinds::Floats},
    {"Identity", 21, Kinds::Numbers},
};

ElementType type_for(const Function& function, Random& random) {
  if (random.one_in(3)) return ElementType::Float;
  switch (function.kinds) {
    case Kinds::IeeeFloats:
      return ElementType::Float;  // Celu-12 is declared for float alone
    case Kinds::Floats:
      return random.pick(float_types());
    case Kinds::Signed:
      return random.pick({ElementType::Float, ElementType::Double, ElementType::Float16,
                          ElementType::BFloat16, ElementType::Int8, ElementType::Int16,
                          ElementType::Int32, ElementType::Int64});
    default:
      return random.pick(number_types());
  }
}

OpCase row_of(const Function& function, ElementType type, const Dims& dims, Random& random) {
  OpCase row;
  row.node = {.op_type = function.op_type, .opset = function.opset};
  for (const char* parameter : function.parameters) {
    if (parameter != nullptr && random.one_in(2)) {
      row.node.attributes.push_back({parameter, random.real(0.1, 2)});
    }
  }
  if (std::string(function.op_type) == "Gelu" && random.one_in(2)) {
    row.node.attributes.push_back({"approximate", "tanh"});
  }
  row.inputs = {random.tensor(type, dims, function.low, function.high)};
  row.tolerance = {function.tolerance, function.tolerance};
  return row;
}

OpCase any_function(Random& random) {
  const Function& function = random.pick(kFunctions);
  return row_of(function, type_for(function, random), random.dims(random.integer(0, 5)), random);
}
const Sweep kAnyFunction("Unary", "AnyFunction", 240, any_function);

/// More elements than one thread's share, with a rest that fills no vector.
OpCase many_elements(Random& random) {
  const Function& function = random.pick(kFunctions);
  return row_of(function, ElementType::Float, {random.integer(30000, 90000)}, random);
}
const Sweep kManyElements("Unary", "ManyElements", 8, many_elements);

OpCase clip(Random& random) {
  OpCase row;
  row.node = {.op_type = "Clip", .opset = 13};
  const ElementType type = random.pick(number_types());
  row.inputs = {random.tensor(type, random.dims(random.integer(0, 4)), -20, 20)};
  row.inputs.push_back(random.one_in(3) ? absent() : constant(random.tensor(type, {}, -10, 5)));
  row.inputs.push_back(random.one_in(3) ? absent() : constant(random.tensor(type, {}, 6, 12)));
  row.tolerance = {0, 0};
  return row;
}
const Sweep kClip("Unary", "Clip", 40, clip);

}  // namespace
}  // namespace backplane::ops_test
