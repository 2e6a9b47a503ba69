// Cast and CastLike: https://onnx.ai/onnx/operators/onnx__Cast.html
#include <cmath>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

constexpr auto number(ElementType type) { return static_cast<std::int64_t>(type); }

const OpCase kRows[] = {
    {.name = "FloatToIntegerCutsTheFraction",
     .node = {.op_type = "Cast", .opset = 13, .attributes = {{"to", number(ElementType::Int32)}}},
     .inputs = {f32({4}, {1.9, -1.9, 0.5, 1e6})},
     .outputs = {i32({4}, {1, -1, 0, 1000000})}},
    {.name = "FloatToBoolIsWhetherItIsNotZero",
     .node = {.op_type = "Cast", .opset = 13, .attributes = {{"to", number(ElementType::Bool)}}},
     .inputs = {f32({5}, {0, -0.0, 0.25, kNan, -3})},
     .outputs = {boolean({5}, {0, 0, 1, 1, 1})}},
    {.name = "BoolToFloat",
     .node = {.op_type = "Cast", .opset = 13, .attributes = {{"to", number(ElementType::Float)}}},
     .inputs = {boolean({2}, {0, 1})},
     .outputs = {f32({2}, {0, 1})}},
    {.name = "Int64ToInt32KeepsTheLowBits",
     .node = {.op_type = "Cast", .opset = 13, .attributes = {{"to", number(ElementType::Int32)}}},
     .inputs = {i64({3}, {4294967297, -1, 2147483648})},
     .outputs = {i32({3}, {1, -1, -2147483648.0})}},
    {.name = "Int64ToUint8KeepsTheLowBits",
     .node = {.op_type = "Cast", .opset = 13, .attributes = {{"to", number(ElementType::UInt8)}}},
     .inputs = {i64({3}, {256, 257, -1})},
     .outputs = {u8({3}, {0, 1, 255})}},
    {.name = "FloatToHalfRoundsToEven",
     .node = {.op_type = "Cast", .opset = 13, .attributes = {{"to", number(ElementType::Float16)}}},
     .inputs = {f32({7}, {1.00048828125, 1.00146484375, 65519, 65520, 5.9e-8, 2.9e-8, kNan})},
     .outputs = {f16({7}, {1, 1.001953125, 65504, kInf, 5.960464477539063e-08, 0, kNan})},
     .tolerance = {0, 0}},
    {.name = "FloatToBfloat16RoundsToEven",
     .node = {.op_type = "Cast",
              .opset = 13,
              .attributes = {{"to", number(ElementType::BFloat16)}}},
     .inputs = {f32({4}, {1.00390625, 1.01171875, 3.4e38, kInf})},
     .outputs = {bf16({4}, {1, 1.015625, 3.4e38, kInf})},
     .tolerance = {0, 0}},
    {.name = "ToStringAndItsForms",
     .node = {.op_type = "Cast", .opset = 13, .attributes = {{"to", number(ElementType::String)}}},
     .inputs = {i64({3}, {INT64_MIN, 0, 42})},
     .outputs = {text({3}, {"-9223372036854775808", "0", "42"})}},
    {.name = "FromString",
     .node = {.op_type = "Cast", .opset = 13, .attributes = {{"to", number(ElementType::Float)}}},
     .inputs = {text({6}, {"3.14", "1e-5", "-2", "INF", "-INF", "NaN"})},
     .outputs = {f32({6}, {3.14, 1e-5, -2, kInf, -kInf, kNan})}},
    {.name = "Float8SaturatesByDefault",
     .node = {.op_type = "Cast",
              .opset = 19,
              .attributes = {{"to", number(ElementType::Float8E4M3FN)}}},
     .inputs = {f32({5}, {1, 1000, -1000, kInf, kNan})},
     .outputs = {tensor(ElementType::Float8E4M3FN, {5}, {1, 448, -448, 448, kNan})},
     .tolerance = {0, 0}},
    {.name = "Float8WithoutSaturation",
     .node = {.op_type = "Cast",
              .opset = 19,
              .attributes = {{"to", number(ElementType::Float8E5M2)}, {"saturate", 0}}},
     .inputs = {f32({3}, {1, 1e6, -1e6})},
     .outputs = {tensor(ElementType::Float8E5M2, {3}, {1, kInf, -kInf})},
     .tolerance = {0, 0}},
    {.name = "FourBitsArePacked",
     .node = {.op_type = "Cast", .opset = 21, .attributes = {{"to", number(ElementType::Int4)}}},
     .inputs = {i8({5}, {-8, -1, 0, 7, 3})},
     .outputs = {tensor(ElementType::Int4, {5}, {-8, -1, 0, 7, 3})}},
    {.name = "FourBitsAreUnpacked",
     .node = {.op_type = "Cast", .opset = 21, .attributes = {{"to", number(ElementType::Float)}}},
     .inputs = {tensor(ElementType::UInt4, {3}, {0, 15, 9})},
     .outputs = {f32({3}, {0, 15, 9})}},
    {.name = "CastLikeTakesTheSecondInputsType",
     .node = {.op_type = "CastLike", .opset = 15},
     .inputs = {f32({2}, {1.5, -2.5}), i64({1}, {0})},
     .outputs = {i64({2}, {1, -2})}},
};
const Rows kCastRows("Cast", kRows);

OpCase any_pair(Random& random) {
  static const std::vector<ElementType> types = [] {
    std::vector<ElementType> all = number_types();
    all.push_back(ElementType::Bool);
    return all;
  }();
  OpCase row;
  const ElementType from = random.pick(types);
  const ElementType to = random.pick(types);
  // A float that an integer type cannot hold gives what the processor likes.
  const double low = reference::is_integer(to) && !reference::is_signed(to) ? 0 : -100;
  row.inputs = {random.tensor(from, random.dims(random.integer(0, 5)), low, 100)};
  row.node = {.op_type = "Cast",
              .opset = random.pick<std::int64_t>({13, 19, 21}),
              .attributes = {{"to", number(to)}}};
  if (random.one_in(4)) {
    row.node = {.op_type = "CastLike", .opset = 15};
    row.inputs.push_back(random.tensor(to, {1}, 0, 1));
  }
  row.tolerance = {0, 0};
  return row;
}
const Sweep kAnyPair("Cast", "AnyPairOfTypes", 160, any_pair);

/// Numbers that 32 bits hold, and among many of them some that they do not.
OpCase wide_integers(Random& random) {
  const std::int64_t count = random.pick<std::int64_t>({1, 7, 255, 256, 257, 700});
  const ElementType real = random.pick({ElementType::Float, ElementType::Double});
  const bool to_integer = random.one_in(2);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool edge = random.one_in(static_cast<int>(count));
    const double value = edge ? random.pick({-2147483648.0, 2147483648.0, -2147483904.0, 1e15,
                                             -4294967296.0, 2147483520.0})
                              : random.real(-2147483647, 2147483647);
    values.push_back(to_integer ? value : std::trunc(value));
  }
  OpCase row;
  row.inputs = {tensor(to_integer ? real : ElementType::Int64, {count}, std::move(values))};
  row.node = {.op_type = "Cast",
              .opset = 13,
              .attributes = {{"to", number(to_integer ? ElementType::Int64 : real)}}};
  row.tolerance = {0, 0};
  return row;
}
const Sweep kWideIntegers("Cast", "WideIntegers", 40, wide_integers);

OpCase narrow_floats(Random& random) {
  const ElementType wide = random.pick(float_types());
  const ElementType narrow = random.pick({ElementType::Float8E4M3FN, ElementType::Float8E4M3FNUZ,
                                          ElementType::Float8E5M2, ElementType::Float8E5M2FNUZ});
  OpCase row;
  const Dims dims = random.dims(random.integer(0, 3));
  const bool up = random.one_in(2);
  row.inputs = {random.tensor(up ? narrow : wide, dims, -600, 600)};
  row.node = {.op_type = "Cast", .opset = 19, .attributes = {{"to", number(up ? wide : narrow)}}};
  if (!up && random.one_in(2)) row.node.attributes.push_back({"saturate", random.integer(0, 1)});
  row.tolerance = {0, 0};
  return row;
}
const Sweep kNarrowFloats("Cast", "Float8", 40, narrow_floats);

OpCase four_bits(Random& random) {
  const ElementType wide = random.pick({ElementType::Float, ElementType::Int8, ElementType::UInt8,
                                        ElementType::Int32, ElementType::Float16});
  const bool has_sign = random.one_in(2) && wide != ElementType::UInt8;
  const ElementType narrow = has_sign ? ElementType::Int4 : ElementType::UInt4;
  const bool up = random.one_in(2);
  OpCase row;
  row.inputs = {random.tensor(up ? narrow : wide, random.dims(random.integer(0, 3)),
                              has_sign ? -8 : 0, has_sign ? 7 : 15)};
  row.node = {.op_type = "Cast", .opset = 21, .attributes = {{"to", number(up ? wide : narrow)}}};
  row.tolerance = {0, 0};
  return row;
}
const Sweep kFourBits("Cast", "FourBits", 24, four_bits);

}  // namespace
}  // namespace backplane::ops_test
