// Quantization, and products and convolutions of quantized values:
// https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
#include <cmath>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "QuantizeRoundsHalvesToEvenAndSaturates",
     .node = {.op_type = "QuantizeLinear", .opset = 13},
     .inputs = {f32({6}, {1, 3, 5, -1, 1000, -1000}), constant(f32({}, {2})),
                constant(u8({}, {128}))},
     .outputs = {u8({6}, {128, 130, 130, 128, 255, 0})}},
    {.name = "QuantizeWithoutAZeroPointIsUint8",
     .node = {.op_type = "QuantizeLinear", .opset = 13},
     .inputs = {f32({3}, {1, -1, 300}), constant(f32({}, {1}))},
     .outputs = {u8({3}, {1, 0, 255})}},
    {.name =
         "QuantizeMakesNanTheLeast",  // wherever it stands: in a vector or in what is left after those
     .node = {.op_type = "QuantizeLinear", .opset = 13},
     .inputs = {f32({17}, {kNan, 2, 2, 2, 2, 2, 2, kNan, 2, 2, 2, 2, 2, 2, 2, 2, kNan}),
                constant(f32({}, {2})), constant(i8({}, {3}))},
     .outputs = {i8({17}, {-128, 4, 4, 4, 4, 4, 4, -128, 4, 4, 4, 4, 4, 4, 4, 4, -128})}},
    {.name = "QuantizeAlongAnAxis",
     .node = {.op_type = "QuantizeLinear", .opset = 13, .attributes = {{"axis", 0}}},
     .inputs = {f32({2, 2}, {1, 2, 10, 20}), constant(f32({2}, {1, 10})),
                constant(i8({2}, {0, 5}))},
     .outputs = {i8({2, 2}, {1, 2, 6, 7})}},
    {.name = "DequantizeAlongAnAxis",
     .node = {.op_type = "DequantizeLinear", .opset = 13, .attributes = {{"axis", 1}}},
     .inputs = {u8({1, 2, 2}, {1, 2, 3, 4}), constant(f32({2}, {2, 10})),
                constant(u8({2}, {0, 3}))},
     .outputs = {f32({1, 2, 2}, {2, 4, 0, 10})}},
    {.name = "DequantizeOfInt32HasNoZeroPoint",
     .node = {.op_type = "DequantizeLinear", .opset = 13},
     .inputs = {i32({2}, {100000, -3}), constant(f32({}, {0.5}))},
     .outputs = {f32({2}, {50000, -1.5})}},
    {.name = "DequantizeByOneBlockThatHasRoom",
     .node = {.op_type = "DequantizeLinear",
              .opset = 21,
              .attributes = {{"axis", 0}, {"block_size", kGreatest}}},
     .inputs = {i8({4}, {1, 2, 3, 4}), constant(f32({1}, {2}))},
     .outputs = {f32({4}, {2, 4, 6, 8})}},
    {.name = "DequantizeByBlocks",
     .node = {.op_type = "DequantizeLinear",
              .opset = 21,
              .attributes = {{"axis", 1}, {"block_size", 2}}},
     .inputs = {i8({1, 4}, {1, 2, 3, 4}), constant(f32({1, 2}, {1, 10}))},
     .outputs = {f32({1, 4}, {1, 2, 30, 40})}},
    {.name = "DynamicQuantizeUsesTheRange",
     .node = {.op_type = "DynamicQuantizeLinear", .opset = 11},
     .inputs = {f32({3}, {0, 127.5, 255})},
     .outputs = {u8({3}, {0, 128, 255}), f32({}, {1}), u8({}, {0})}},
    {.name = "MatMulIntegerTakesZeroPointsOff",
     .node = {.op_type = "MatMulInteger", .opset = 10},
     .inputs = {u8({1, 2}, {130, 127}), constant(i8({2, 1}, {3, -4})), constant(u8({}, {128})),
                constant(i8({}, {0}))},
     .outputs = {i32({1, 1}, {10})}},
    {.name = "ConvIntegerPadsWithTheZeroPoint",
     .node = {.op_type = "ConvInteger", .opset = 10, .attributes = {{"pads", ints({0, 1, 0, 1})}}},
     .inputs = {u8({1, 1, 1, 2}, {3, 4}), constant(u8({1, 1, 1, 3}, {1, 1, 1})),
                constant(u8({}, {1}))},
     .outputs = {i32({1, 1, 1, 2}, {5, 5})}},
    {.name = "QLinearConvAddsItsBias",
     .node = {.op_type = "QLinearConv", .opset = 10},
     .inputs = {u8({1, 1, 1, 1}, {20}), constant(f32({}, {0.5})), constant(u8({}, {10})),
                constant(i8({1, 1, 1, 1}, {4})), constant(f32({}, {0.25})), constant(i8({}, {0})),
                constant(f32({}, {1})), constant(u8({}, {3})), constant(i32({1}, {8}))},
     .outputs = {u8({1, 1, 1, 1}, {9})}},
};
const Rows kQuantizationRows("Quantization", kRows);

/// Powers of two, so that no quotient is rounded and everybody sees the same halves.
double scale_value(Random& random) {
  return std::ldexp(1.0, static_cast<int>(random.integer(-6, 1)));
}

Tensor scales(Random& random, const Dims& dims) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < reference::element_count(dims); ++i)
    values.push_back(scale_value(random));
  return f32(dims, values);
}

OpCase linear(Random& random) {
  OpCase row;
  const bool quantizes = random.one_in(2);
  const std::int64_t rank = random.integer(1, 4);
  const Dims dims = random.dims(rank, 2000, false);
  const bool has_16_bits = random.one_in(4);
  const ElementType type = has_16_bits ? random.pick({ElementType::Int16, ElementType::UInt16})
                                       : random.pick({ElementType::Int8, ElementType::UInt8});
  row.node = {.op_type = quantizes ? "QuantizeLinear" : "DequantizeLinear",
              .opset = has_16_bits ? 21 : 13};
  Dims parameters;
  if (random.one_in(2)) {
    const std::int64_t axis = random.axis(rank);
    row.node.attributes = {{"axis", axis}};
    parameters = {dims[axis < 0 ? axis + rank : axis]};
  }
  row.inputs = {quantizes ? random.tensor(ElementType::Float, dims, -40, 40)
                          : random.tensor(type, dims, -128, 255),
                constant(scales(random, parameters)),
                constant(random.tensor(type, parameters, -20, 100))};
  row.tolerance = {0, 0};
  return row;
}
const Sweep kLinear("Quantization", "PerTensorAndPerAxis", 80, linear);

OpCase blocks(Random& random) {
  OpCase row;
  const bool quantizes = random.one_in(2);
  const std::int64_t block = random.integer(1, 4);
  const Dims scale_dims = {random.integer(1, 5), random.integer(1, 4)};
  const Dims dims = {scale_dims[0], scale_dims[1] * block};
  const ElementType type =
      random.pick({ElementType::Int8, ElementType::UInt8, ElementType::Int4, ElementType::UInt4});
  row.node = {.op_type = quantizes ? "QuantizeLinear" : "DequantizeLinear",
              .opset = 21,
              .attributes = {{"axis", 1}, {"block_size", block}}};
  row.inputs = {quantizes ? random.tensor(ElementType::Float, dims, -10, 10)
                          : random.tensor(type, dims, -8, 15),
                constant(scales(random, scale_dims)),
                constant(random.tensor(type, scale_dims, -4, 7))};
  row.tolerance = {0, 0};
  return row;
}
const Sweep kBlocks("Quantization", "PerBlock", 24, blocks);

OpCase dynamic(Random& random) {
  OpCase row;
  row.node = {.op_type = "DynamicQuantizeLinear", .opset = 11};
  row.inputs = {
      random.tensor(ElementType::Float, random.dims(random.integer(1, 3), 2000, false), -5, 5)};
  row.output_count = 3;
  row.tolerance = {1, 0};
  return row;
}
const Sweep kDynamic("Quantization", "Dynamic", 12, dynamic);

Tensor bytes(Random& random, ElementType type, const Dims& dims) {
  return random.tensor(type, dims, reference::lowest(type), reference::highest(type));
}

OpCase matmul_integer(Random& random) {
  OpCase row;
  const ElementType a = random.pick({ElementType::UInt8, ElementType::Int8});
  const ElementType b = random.pick({ElementType::UInt8, ElementType::Int8});
  const std::int64_t m = random.size();
  const std::int64_t k = random.size() * random.integer(1, 6);
  const std::int64_t n = random.size();
  row.node = {.op_type = "MatMulInteger", .opset = 10};
  const Dims batch = random.one_in(3) ? Dims{2} : Dims{};
  Dims a_dims = batch;
  a_dims.insert(a_dims.end(), {m, k});
  row.inputs = {bytes(random, a, a_dims), bytes(random, b, {k, n})};
  row.inputs[1].is_constant = random.one_in(2);
  if (random.one_in(2)) {
    row.inputs.push_back(bytes(random, a, {}));
    row.inputs.push_back(constant(bytes(random, b, random.one_in(2) ? Dims{} : Dims{n})));
  }
  return row;
}
const Sweep kMatMulInteger("Quantization", "MatMulInteger", 40, matmul_integer);

/// Vectors, batches that broadcast, zero points for each row and column, no elements; sizes around those of tiles.
OpCase matmul_integer_forms(Random& random) {
  OpCase row;
  const ElementType a = random.pick({ElementType::UInt8, ElementType::Int8});
  const ElementType b = random.pick({ElementType::UInt8, ElementType::Int8});
  const auto size = [&random] {
    return random.pick<std::int64_t>({0, 1, 2, 3, 4, 5, 15, 17, 31, 63, 64, 65, 100, 257});
  };
  std::int64_t m = size(), k = size(), n = size();
  if (m * k * n > 200'000) m = random.integer(1, 9);
  Dims a_dims = {m, k}, b_dims = {k, n};
  switch (random.integer(0, 5)) {
    case 0:
      a_dims = {k};
      m = 1;
      break;
    case 1:
      b_dims = {k};
      n = 1;
      break;
    case 2:
      a_dims.insert(a_dims.begin(), {random.integer(1, 2), 2});
      b_dims.insert(b_dims.begin(), random.integer(1, 2));
      break;
    case 3:
      b_dims.insert(b_dims.begin(), 3);
      break;
    default:
      break;
  }
  row.node = {.op_type = "MatMulInteger", .opset = 10};
  row.inputs = {bytes(random, a, a_dims), bytes(random, b, b_dims)};
  row.inputs[1].is_constant = !random.one_in(3);
  if (random.one_in(4)) return row;
  const bool each_row = a_dims.size() == 2 && random.one_in(2);
  const bool each_column = b_dims.size() > 1 && random.one_in(2);
  row.inputs.push_back(random.one_in(4) ? absent() : bytes(random, a, each_row ? Dims{m} : Dims{}));
  row.inputs.push_back(constant(bytes(random, b, each_column ? Dims{n} : Dims{1})));
  return row;
}
const Sweep kMatMulIntegerForms("Quantization", "MatMulIntegerForms", 80, matmul_integer_forms);

/// The attributes of a two-dimensional convolution and the dims of its operands.
struct Convolution {
  std::vector<reference::Attribute> attributes;
  Dims x;
  Dims w;
};

Convolution convolution(Random& random) {
  const std::int64_t groups = random.pick<std::int64_t>({1, 1, 2, 8});
  const std::int64_t channels = groups == 8 ? 1 : random.integer(1, 9);
  const std::int64_t features = groups == 8 ? 1 : random.integer(1, 9);
  const std::int64_t k = random.pick<std::int64_t>({1, 2, 3});
  const std::int64_t stride = random.integer(1, 2);
  const std::int64_t pad = random.integer(0, k / 2);
  return {
      {{"group", groups},
       {"strides", ints({stride, stride})},
       {"pads", ints({pad, pad, pad, pad})}},
      {random.integer(1, 2), groups * channels, k + random.integer(0, 7), k + random.integer(0, 7)},
      {groups * features, channels, k, k}};
}

OpCase conv_integer(Random& random) {
  OpCase row;
  const Convolution c = convolution(random);
  const ElementType x = random.pick({ElementType::UInt8, ElementType::UInt8, ElementType::Int8});
  const ElementType w = random.pick({ElementType::UInt8, ElementType::Int8});
  row.node = {.op_type = "ConvInteger", .opset = 10, .attributes = c.attributes};
  row.inputs = {bytes(random, x, c.x), bytes(random, w, c.w)};
  row.inputs[1].is_constant = random.one_in(2);
  if (random.one_in(2)) row.inputs.push_back(constant(bytes(random, x, {})));
  if (row.inputs.size() == 3 && random.one_in(2))
    row.inputs.push_back(constant(bytes(random, w, {})));
  return row;
}
const Sweep kConvInteger("Quantization", "ConvInteger", 40, conv_integer);

OpCase qlinear_conv(Random& random) {
  OpCase row;
  const Convolution c = convolution(random);
  const ElementType type = random.pick({ElementType::UInt8, ElementType::UInt8, ElementType::Int8});
  const ElementType w =
      type == ElementType::Int8 ? type : random.pick({ElementType::UInt8, ElementType::Int8});
  row.node = {.op_type = "QLinearConv", .opset = 10, .attributes = c.attributes};
  const Dims channels = random.one_in(2) ? Dims{} : Dims{c.w[0]};
  // A zero point per channel must be 0 for most engines; a scalar one may be anything.
  Tensor w_zero = random.tensor(w, channels, channels.empty() ? -3 : 0, channels.empty() ? 3 : 0);
  if (w == ElementType::UInt8) w_zero = random.tensor(w, channels, 128, 128);
  row.inputs = {bytes(random, type, c.x),
                constant(scales(random, {})),
                constant(bytes(random, type, {})),
                constant(bytes(random, w, c.w)),
                constant(scales(random, channels)),
                constant(w_zero),
                constant(f32({}, {4})),
                constant(random.tensor(type, {}, 0, 20))};
  if (random.one_in(2))
    row.inputs.push_back(constant(random.tensor(ElementType::Int32, {c.w[0]}, -2000, 2000)));
  return row;
}
const Sweep kQLinearConv("Quantization", "QLinearConv", 40, qlinear_conv);

OpCase qlinear_matmul(Random& random) {
  OpCase row;
  const ElementType type = random.pick({ElementType::UInt8, ElementType::Int8});
  const std::int64_t m = random.size();
  const std::int64_t k = random.size();
  const std::int64_t n = random.size();
  row.node = {.op_type = "QLinearMatMul", .opset = 10};
  row.inputs = {bytes(random, type, {m, k}),
                constant(scales(random, {})),
                constant(bytes(random, type, {})),
                constant(bytes(random, type, {k, n})),
                constant(scales(random, {})),
                constant(bytes(random, type, {})),
                constant(f32({}, {4})),
                constant(random.tensor(type, {}, 0, 20))};
  return row;
}
const Sweep kQLinearMatMul("Quantization", "QLinearMatMul", 24, qlinear_matmul);

/// As networks have it: one matrix of weights around the middle of their type.
OpCase qlinear_matmul_by_weights(Random& random) {
  OpCase row;
  const ElementType type = random.pick({ElementType::UInt8, ElementType::Int8});
  const ElementType w = random.pick({ElementType::UInt8, ElementType::Int8});
  const std::int64_t k = random.size(), n = random.size();
  const Dims columns = random.one_in(2) ? Dims{} : Dims{n};
  const double middle = w == ElementType::UInt8 ? 128 : 0;
  Dims rows = random.dims(random.integer(0, 2), 40, true);
  rows.push_back(k);
  row.node = {.op_type = "QLinearMatMul", .opset = 10};
  row.inputs = {bytes(random, type, rows),
                constant(scales(random, {})),
                constant(bytes(random, type, {})),
                constant(bytes(random, w, {k, n})),
                constant(scales(random, columns)),
                constant(random.tensor(w, columns, middle, middle)),
                constant(f32({}, {4})),
                constant(random.tensor(type, {}, 0, 20))};
  return row;
}
const Sweep kByWeights("Quantization", "QLinearMatMulByWeights", 24, qlinear_matmul_by_weights);

/// Elements at the ends of a type's range: their products add up to more than a float holds exactly.
Tensor ends(Random& random, ElementType type, const Dims& dims) {
  return random.one_in(2)
             ? bytes(random, type, dims)
             : random.tensor(type, dims, reference::highest(type), reference::highest(type));
}

Input lowest_zero(Random& random, ElementType type) {
  return constant(random.tensor(type, {}, reference::lowest(type), reference::lowest(type)));
}

OpCase deep_matmul_integer(Random& random) {
  OpCase row;
  const ElementType a = random.pick({ElementType::UInt8, ElementType::Int8});
  const ElementType b = random.pick({ElementType::UInt8, ElementType::Int8});
  const std::int64_t depth = random.integer(500, 900), columns = random.integer(33, 70);
  row.node = {.op_type = "MatMulInteger", .opset = 10};
  row.inputs = {ends(random, a, {random.integer(9, 20), depth}),
                constant(ends(random, b, {depth, columns})), lowest_zero(random, a),
                lowest_zero(random, b)};
  return row;
}
const Sweep kDeepMatMulInteger("Quantization", "DeepMatMulInteger", 8, deep_matmul_integer);

OpCase deep_qlinear_conv(Random& random) {
  OpCase row;
  const std::int64_t channels = random.integer(60, 90), filters = random.integer(17, 30);
  const std::int64_t k = random.pick<std::int64_t>({1, 3});
  row.node = {.op_type = "QLinearConv",
              .opset = 10,
              .attributes = {{"pads", ints({k / 2, k / 2, k / 2, k / 2})},
                             {"strides", ints({random.integer(1, 2), 1})}}};
  const ElementType x = ElementType::UInt8, w = ElementType::Int8;
  row.inputs = {ends(random, x, {2, channels, random.integer(6, 11), random.integer(9, 20)}),
                constant(scales(random, {})),
                constant(bytes(random, x, {})),
                constant(ends(random, w, {filters, channels, k, k})),
                constant(scales(random, {filters})),
                constant(random.tensor(w, {filters}, 0, 0)),
                constant(f32({}, {512})),
                constant(bytes(random, x, {})),
                constant(random.tensor(ElementType::Int32, {filters}, -2000, 2000))};
  return row;
}
const Sweep kDeepQLinearConv("Quantization", "DeepQLinearConv", 8, deep_qlinear_conv);

OpCase depthwise_qlinear_conv(Random& random) {
  OpCase row;
  const std::int64_t channels = random.integer(5, 20), stride = random.integer(1, 2);
  row.node = {
      .op_type = "QLinearConv",
      .opset = 10,
      .attributes = {
          {"group", channels}, {"pads", ints({1, 1, 1, 1})}, {"strides", ints({stride, stride})}}};
  const ElementType x = ElementType::UInt8, w = ElementType::Int8;
  row.inputs = {ends(random, x, {1, channels, random.integer(9, 20), random.integer(17, 40)}),
                constant(scales(random, {})),
                constant(bytes(random, x, {})),
                constant(ends(random, w, {channels, 1, 3, 3})),
                constant(scales(random, {channels})),
                constant(random.tensor(w, {channels}, 0, 0)),
                constant(f32({}, {16})),
                constant(bytes(random, x, {})),
                constant(random.tensor(ElementType::Int32, {channels}, -2000, 2000))};
  return row;
}
const Sweep kDepthwise("Quantization", "DepthwiseQLinearConv", 8, depthwise_qlinear_conv);

}  // namespace
}  // namespace backplane::ops_test
