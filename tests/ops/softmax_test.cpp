// Softmax, LogSoftmax, Hardmax: https://onnx.ai/onnx/operators/onnx__Softmax.html
#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

constexpr double kLn2 = 0.6931471805599453;
constexpr double kLn3 = 1.0986122886681098;

const OpCase kRows[] = {
    {.name = "AxisDefaultsToLast",
     .node = {.op_type = "Softmax", .opset = 13},
     .inputs = {f32({1, 2}, {0, kLn3})},
     .outputs = {f32({1, 2}, {0.25, 0.75})}},
    {.name = "LargeInputsDoNotOverflow",
     .node = {.op_type = "Softmax", .opset = 13},
     .inputs = {f32({2, 3}, {1000, 1000, 1000, -1000, -1000, -3000})},
     .outputs = {f32({2, 3}, {1.0 / 3, 1.0 / 3, 1.0 / 3, 0.5, 0.5, 0})}},
    {.name = "MinusInfinityHasNoShare",
     .node = {.op_type = "Softmax", .opset = 13},
     .inputs = {f32({1, 3}, {0, -kInf, 0})},
     .outputs = {f32({1, 3}, {0.5, 0, 0.5})}},
    {.name = "NanSpreadsOverItsLineAlone",
     .node = {.op_type = "Softmax", .opset = 13},
     .inputs = {f32({2, 2}, {0, kNan, 0, 0})},
     .outputs = {f32({2, 2}, {kNan, kNan, 0.5, 0.5})}},
    {.name = "DoublesOfNanAndInfinity",
     .node = {.op_type = "Softmax", .opset = 13},
     .inputs = {f64({3, 3}, {0, -kInf, 0, 0, 0, kNan, 1000, 1000, -1000})},
     .outputs = {f64({3, 3}, {0.5, 0, 0.5, kNan, kNan, kNan, 0.5, 0.5, 0})}},
    {.name = "BeforeOpset13TheAxesFromAxisOnAreOne",
     .node = {.op_type = "Softmax", .opset = 9},
     .inputs = {f32({1, 2, 2}, {0, 0, 0, 0})},
     .outputs = {f32({1, 2, 2}, {0.25, 0.25, 0.25, 0.25})}},
    {.name = "OneChannelOfAnImage",
     .node = {.op_type = "Softmax", .opset = 13, .attributes = {{"axis", 1}}},
     .inputs = {f32({1, 2, 1, 2}, {0, kLn3, 0, 0})},
     .outputs = {f32({1, 2, 1, 2}, {0.5, 0.75, 0.5, 0.25})}},
    {.name = "NoElements",
     .node = {.op_type = "Softmax", .opset = 13},
     .inputs = {f32({0, 3}, {})},
     .outputs = {f32({0, 3}, {})}},
    {.name = "LogOfALargeDifferenceIsExact",
     .node = {.op_type = "LogSoftmax", .opset = 13},
     .inputs = {f32({1, 2}, {0, -500})},
     .outputs = {f32({1, 2}, {0, -500})}},
    {.name = "LogOfALineWithNanOrInfinityIsNan",
     .node = {.op_type = "LogSoftmax", .opset = 13},
     .inputs = {f32({3, 2}, {kNan, 1, kInf, 0, 1, 1})},
     .outputs = {f32({3, 2}, {kNan, kNan, kNan, kNan, -kLn2, -kLn2})}},
    {.name = "LogDownColumnsWithNanIsNan",
     .node = {.op_type = "LogSoftmax", .opset = 13, .attributes = {{"axis", 0}}},
     .inputs = {f32({2, 3}, {1, kNan, 1, 1, 1, kInf})},
     .outputs = {f32({2, 3}, {-kLn2, kNan, kNan, -kLn2, kNan, kNan})}},
    {.name = "HardmaxTakesTheFirstOfEqualOnes",
     .node = {.op_type = "Hardmax", .opset = 13},
     .inputs = {f32({2, 3}, {1, 3, 3, 2, 2, 1})},
     .outputs = {f32({2, 3}, {0, 1, 0, 1, 0, 0})}},
};
const Rows kSoftmaxRows("Softmax", kRows);

OpCase any_axis(Random& random) {
  const std::int64_t rank = random.integer(1, 5);
  OpCase row;
  row.node.op_type = random.pick({"Softmax", "Softmax", "LogSoftmax", "Hardmax"});
  row.node.opset = random.pick({9, 11, 13, 13, 21});
  row.node.attributes = {{"axis", random.axis(rank)}};
  if (row.node.opset < 11) row.node.attributes = {{"axis", random.integer(0, rank - 1)}};
  const ElementType type = random.pick(
      {ElementType::Float, ElementType::Float, ElementType::Double, ElementType::Float16});
  row.inputs = {random.tensor(type, random.dims(rank), -10, 10)};
  row.tolerance = {16, 16};
  return row;
}
const Sweep kAnyAxis("Softmax", "AnyAxis", 60, any_axis);

OpCase long_lines(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"Softmax", "LogSoftmax"}), .opset = 13};
  const ElementType type = random.one_in(3) ? ElementType::Double : ElementType::Float;
  row.inputs = {random.tensor(type, {random.integer(1, 40), random.integer(900, 5000)}, -30, 30)};
  row.tolerance = {32, 32};
  return row;
}
const Sweep kLongLines("Softmax", "LongLines", 6, long_lines);

/// As attention has them: several at a time, the last ones fewer.
OpCase lines_of_attention(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"Softmax", "LogSoftmax"}), .opset = 13};
  const ElementType type = random.one_in(3) ? ElementType::Double : ElementType::Float;
  row.inputs = {random.tensor(type, {random.integer(1, 40), random.integer(16, 300)}, -30, 30)};
  row.tolerance = {16, 16};
  return row;
}
const Sweep kLinesOfAttention("Softmax", "LinesOfAttention", 20, lines_of_attention);

OpCase short_lines(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"Softmax", "LogSoftmax"}), .opset = 13};
  row.inputs = {
      random.tensor(ElementType::Float, {random.integer(1, 400), random.integer(1, 18)}, -30, 30)};
  row.tolerance = {16, 16};
  return row;
}
const Sweep kShortLines("Softmax", "ShortLines", 30, short_lines);

}  // namespace
}  // namespace backplane::ops_test
