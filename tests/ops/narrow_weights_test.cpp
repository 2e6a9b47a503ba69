// Weights of 2, 4 and 8 bits that are dequantized on their way into a product or a Gather, in ONNX's form (DequantizeLinear
// of a constant) and as com.microsoft::MatMulNBits.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/ops/graph_writer.hpp"

namespace backplane::ops_test {
namespace {

bool has_sign(ElementType type) { return type == ElementType::Int4 || type == ElementType::Int8; }
bool is_4_bits(ElementType type) { return type == ElementType::Int4 || type == ElementType::UInt4; }

Tensor numbers(Random& random, ElementType type, const Dims& dims) {
  const double least = has_sign(type) ? (is_4_bits(type) ? -8 : -128) : 0;
  return random.tensor(type, dims, least, least + (is_4_bits(type) ? 15 : 255));
}

/// A matrix that is dequantized, and how.
struct Weights {
  std::int64_t depth, columns;
  ElementType type = ElementType::Int4;
  std::int64_t block = 0;      // 0: a scale for each column
  bool is_transposed = false;  // [columns, depth]
  bool has_zeros = false;
  bool has_one_scale = false;
  ElementType real = ElementType::Float;
};

Weights any_weights(Random& random) {
  Weights w{};
  w.type =
      random.pick({ElementType::Int4, ElementType::UInt4, ElementType::Int8, ElementType::UInt8});
  w.block = random.pick<std::int64_t>({0, 8, 16, 32, 32, 64, 128, 256});
  w.depth = std::max<std::int64_t>(w.block, 8) * random.integer(1, w.block > 64 ? 2 : 5);
  if (random.one_in(2)) w.depth -= random.integer(1, 7);
  w.columns = random.pick<std::int64_t>({1, 3, 8, 17, 33, 64, 65, 100});
  w.is_transposed = random.one_in(2);
  w.has_zeros = random.one_in(2);
  w.has_one_scale = w.block == 0 && random.one_in(4);
  return w;
}

std::int64_t any_rows(Random& random) { return random.one_in(12) ? 65 : random.integer(1, 17); }

/// The dequantized matrix, as it is stored.
std::string dequantized(GraphWriter& g, Random& random, const Weights& w) {
  const std::int64_t blocks = w.block > 0 ? (w.depth + w.block - 1) / w.block : 0;
  const auto ordered = [&w](std::int64_t along, std::int64_t across) {
    return w.is_transposed ? Dims{across, along} : Dims{along, across};
  };
  const Dims dims = ordered(w.depth, w.columns);
  Dims parameters = w.block > 0 ? ordered(blocks, w.columns) : Dims{w.columns};
  if (w.has_one_scale) parameters = {};
  const double most = is_4_bits(w.type) ? 0.1 : 0.006;
  std::vector<std::string> inputs = {
      g.constant(numbers(random, w.type, dims)),
      g.constant(random.tensor(w.real, parameters, most / 10, most))};
  if (w.has_zeros) inputs.push_back(g.constant(numbers(random, w.type, parameters)));
  const std::int64_t depth_axis = w.is_transposed ? 1 : 0;
  if (w.block == 0) return g.node("DequantizeLinear", inputs, {{"axis", 1 - depth_axis}});
  return g.node("DequantizeLinear", inputs, {{"axis", depth_axis}, {"block_size", w.block}});
}

std::string transposed(GraphWriter& g, const std::string& x) {
  return g.node("Transpose", {x}, {{"perm", ints({1, 0})}});
}

GraphCase product(Random& random) {
  GraphWriter g(21, random);
  Weights w = any_weights(random);
  const bool half = random.one_in(8);
  if (half) w.real = ElementType::Float16;
  const std::string b = dequantized(g, random, w);
  const bool gemm = random.one_in(3);
  Dims dims = {any_rows(random), w.depth};
  if (!gemm && random.one_in(4)) dims = {2, random.integer(1, 5), w.depth};
  const std::string x = g.feed(random.tensor(w.real, dims, -1, 1));
  std::string y;
  if (gemm) {
    std::vector<std::string> inputs = {x, b};
    if (random.one_in(2)) inputs.push_back(g.constant(random.tensor(w.real, {w.columns}, -1, 1)));
    y = g.node("Gemm", inputs, {{"transB", w.is_transposed ? 1 : 0}});
  } else {
    y = g.node("MatMul", {x, w.is_transposed ? transposed(g, b) : b});
  }
  if (!half && random.one_in(2)) y = g.node("Add", {g.constant({w.columns}), y});
  if (!half && random.one_in(3)) {
    dims.back() = w.columns;
    y = g.node("Add", {y, g.feed(dims)});
  }
  if (random.one_in(3)) y = g.node(random.one_in(2) ? "Relu" : "Sigmoid", {y});
  // Without fusion weights of 16 bits are rounded.
  return g.done({y}, half ? Tolerance{100000, 1000000} : Tolerance{256, 4096});
}
const Sweep kProduct("NarrowWeights", "Product", 120, product);

/// Scales along the axis that is summed over, products with transposed rows, weights that are not constant: not fused.
GraphCase other_product(Random& random) {
  GraphWriter g(21, random);
  const std::int64_t depth = random.pick<std::int64_t>({5, 16, 32}), columns = random.size();
  const ElementType type = random.pick({ElementType::Int4, ElementType::UInt8});
  const auto scales = [&](const Dims& dims) { return g.constant(dims, 0.01, 0.1); };
  std::string x = g.feed({random.integer(1, 5), depth}), y;
  switch (random.integer(0, 4)) {
    case 0:  // a scale for each step of the depth
      y = g.node("MatMul",
                 {x, g.node("DequantizeLinear",
                            {g.constant(numbers(random, type, {depth, columns})), scales({depth})},
                            {{"axis", 0}})});
      break;
    case 1:  // blocks of columns
      y = g.node("MatMul",
                 {x, g.node("DequantizeLinear",
                            {g.constant(numbers(random, type, {depth, 32})), scales({depth, 2})},
                            {{"axis", 1}, {"block_size", 16}})});
      break;
    case 2:  // blocks of a size that is no multiple of 8
      y = g.node("MatMul", {x, g.node("DequantizeLinear",
                                      {g.constant(numbers(random, type, {depth, columns})),
                                       scales({(depth + 2) / 3, columns})},
                                      {{"axis", 0}, {"block_size", 3}})});
      break;
    case 3: {  // a factor
      const auto w = g.node(
          "DequantizeLinear",
          {g.constant(numbers(random, type, {depth, columns})), scales({columns})}, {{"axis", 1}});
      y = g.node("Gemm", {x, w, g.feed({columns})}, {{"alpha", 0.5f}, {"beta", 2.0f}});
      break;
    }
    default: {  // weights that are fed
      const auto w =
          g.node("DequantizeLinear",
                 {g.feed(numbers(random, ElementType::Int8, {depth, columns})), scales({columns})},
                 {{"axis", 1}});
      y = g.node("MatMul", {x, w});
    }
  }
  return g.done({y}, {256, 4096});
}
const Sweep kOtherProduct("NarrowWeights", "OtherProduct", 25, other_product);

/// One constant with several readers, the dequantized matrix as an output among them.
GraphCase shared(Random& random) {
  GraphWriter g(21, random);
  Weights w = any_weights(random);
  w.is_transposed = true;  // a table of rows, and the last product of a model
  const std::string table = dequantized(g, random, w);
  std::vector<std::string> outputs;
  outputs.push_back(g.node("MatMul", {g.feed({any_rows(random), w.depth}), transposed(g, table)}));
  if (random.one_in(2))
    outputs.push_back(
        g.node("Gemm", {g.feed({any_rows(random), w.depth}), table}, {{"transB", 1}}));
  if (random.one_in(2)) {
    const Dims picks = random.dims(random.integer(0, 2), 30, false);
    outputs.push_back(
        g.node("Gather", {table, g.feed(random.indices(picks, -w.columns, w.columns - 1))}));
  }
  if (random.one_in(3)) outputs.push_back(g.node("Abs", {table}));
  if (random.one_in(3)) outputs.push_back(table);
  return g.done(outputs, {256, 4096});
}
const Sweep kShared("NarrowWeights", "Shared", 40, shared);

GraphCase table(Random& random) {
  GraphWriter g(21, random);
  Weights w = any_weights(random);
  if (random.one_in(4)) w.real = ElementType::Float16;
  // A scale for each row, for each column, or for each block of a row.
  w.is_transposed = w.block > 0 || random.one_in(2);
  const std::string rows = dequantized(g, random, w);
  const std::int64_t count = w.is_transposed ? w.columns : w.depth;
  const Dims picks = random.dims(random.integer(0, 3), 60);
  const auto type = random.pick({ElementType::Int32, ElementType::Int64});
  const std::string indices = g.feed(random.indices(picks, -count, count - 1, type));
  const std::string y = g.node("Gather", {rows, indices}, {{"axis", random.one_in(5) ? -2 : 0}});
  return g.done({y}, {4, 4});
}
const Sweep kTable("NarrowWeights", "Table", 50, table);

/// Rows whose rounding to 8 bits by blocks changes nothing: whole numbers, the greatest of each block 127.
Tensor whole_rows(Random& random, const Dims& dims, std::int64_t block) {
  std::vector<double> values;
  const std::int64_t depth = dims.back();
  const std::int64_t count = reference::element_count(dims);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool first = i % depth % block == 0;
    values.push_back(first ? (random.one_in(2) ? 127 : -127)
                           : static_cast<double>(random.integer(-127, 127)));
  }
  return f32(dims, values);
}

GraphCase matmul_nbits(Random& random) {
  GraphWriter g(21, random);
  const std::int64_t bits = random.one_in(3) ? 8 : 4;
  const std::int64_t block = random.pick<std::int64_t>({16, 32, 32, 64, 128, 256});
  std::int64_t depth = block * random.integer(1, block > 64 ? 2 : 5);
  if (random.one_in(2)) depth -= random.integer(1, 15);
  const std::int64_t columns = random.pick<std::int64_t>({1, 3, 17, 64, 100});
  const std::int64_t blocks = (depth + block - 1) / block;
  const bool rounds = random.one_in(2);
  Dims dims = {any_rows(random), depth};
  if (random.one_in(4)) dims = {2, random.integer(1, 3), depth};
  if (random.one_in(8)) dims = {depth};
  const Dims parameters = random.one_in(2) ? Dims{columns, blocks} : Dims{columns * blocks};
  const double most = (bits == 4 ? 0.1 : 0.006) / (rounds ? 100 : 1);
  std::vector<std::string> inputs = {
      rounds ? g.feed(whole_rows(random, dims, block)) : g.feed(dims),
      g.constant(random.tensor(ElementType::UInt8, {columns, blocks, block * bits / 8}, 0, 255)),
      g.constant(parameters, most / 10, most)};
  const std::int64_t zeros = random.integer(0, 2);
  inputs.push_back(zeros == 0 ? ""
                   : zeros == 1
                       ? g.constant(random.tensor(ElementType::UInt8,
                                                  {columns * ((blocks * bits + 7) / 8)}, 0, 255))
                       : g.constant({columns, blocks}, 0, 1 << bits));
  inputs.push_back("");
  if (random.one_in(3)) inputs.push_back(g.constant({columns}));
  while (inputs.back().empty()) inputs.pop_back();
  std::string y = g.node("MatMulNBits", inputs,
                         {{"K", depth},
                          {"N", columns},
                          {"bits", bits},
                          {"block_size", block},
                          {"accuracy_level", std::int64_t{rounds ? 4 : random.integer(0, 1)}}});
  g.last().domain = "com.microsoft";
  g.last().opset = 1;
  if (random.one_in(3)) y = g.node("Add", {y, g.constant({columns})});
  if (random.one_in(3)) y = g.node("Relu", {y});
  return g.done({y}, {256, 4096});
}
const Sweep kMatMulNBits("NarrowWeights", "MatMulNBits", 100, matmul_nbits);

/// MatMulNBits alone: every type, number of bits and kind of zero points, of few rows and of many.
GraphCase matmul_nbits_in_any_form(Random& random) {
  GraphWriter g(21, random);
  const ElementType type = random.pick(
      {ElementType::Float, ElementType::Float, ElementType::Float16, ElementType::BFloat16});
  const auto bits = random.pick<std::int64_t>({2, 4, 4, 8});
  const auto block = random.pick<std::int64_t>({16, 16, 32, 32, 64, 128, 256});
  std::int64_t depth = block * random.integer(1, block > 64 ? 3 : 9);
  if (random.one_in(2)) depth -= random.integer(1, 15);
  const auto columns = random.pick<std::int64_t>({1, 3, 7, 32, 65, 130, 517, 2100});
  const std::int64_t blocks = (depth + block - 1) / block;
  const auto rows = random.pick<std::int64_t>({0, 1, 1, 2, 3, 5, 8, 11, 30, 70});
  const Dims dims = random.one_in(4) ? Dims{2, rows, depth} : Dims{rows, depth};
  const double most = 0.8 / static_cast<double>(1 << bits);
  const auto reals = [&](const Dims& of, double low, double high) {
    return random.tensor(type, of, low, high);
  };
  const auto bytes = [&](const Dims& of) { return random.tensor(ElementType::UInt8, of, 0, 255); };
  std::vector<std::string> inputs = {g.feed(reals(dims, -1, 1)),
                                     g.constant(bytes({columns, blocks, block * bits / 8})),
                                     g.constant(reals({columns, blocks}, -most, most))};
  const std::int64_t zeros = random.integer(0, 3);
  inputs.push_back(zeros == 0   ? ""
                   : zeros == 1 ? g.constant(random.tensor(ElementType::Float, {columns, blocks}, 0,
                                                           static_cast<double>(1 << bits)))
                   : zeros == 2 ? g.constant(reals({columns, blocks}, 0, 1 << bits))
                                : g.constant(bytes({columns, (blocks * bits + 7) / 8})));
  inputs.push_back("");
  if (random.one_in(2)) inputs.push_back(g.constant(reals({columns}, -1, 1)));
  while (inputs.back().empty()) inputs.pop_back();
  const std::string y = g.node(
      "MatMulNBits", inputs, {{"K", depth}, {"N", columns}, {"bits", bits}, {"block_size", block}});
  g.last().domain = "com.microsoft";
  g.last().opset = 1;
  // Weights that are written out are rounded to the type of A.
  return g.done({y}, type == ElementType::Float     ? Tolerance{256, 4096}
                     : type == ElementType::Float16 ? Tolerance{8000, 60000}
                                                    : Tolerance{64000, 480000});
}
const Sweep kMatMulNBitsInAnyForm("NarrowWeights", "MatMulNBitsInAnyForm", 120,
                                  matmul_nbits_in_any_form);

/// Columns so deep that many share one, of a lone row and of few.
GraphCase deep_weights(Random& random) {
  GraphWriter g(21, random);
  const auto type = random.pick({ElementType::Float, ElementType::Float16, ElementType::BFloat16});
  const auto bits = random.pick<std::int64_t>({2, 4, 4, 4, 8});
  const auto block = random.pick<std::int64_t>({16, 32, 32, 128});
  const std::int64_t depth = 4096 * random.integer(1, 2) - random.integer(0, 70);
  const auto columns = random.pick<std::int64_t>({5, 16, 40, 67});
  const std::int64_t blocks = (depth + block - 1) / block;
  const double most = 0.1 / static_cast<double>(1 << bits);
  const auto reals = [&](const Dims& of, double low, double high) {
    return random.tensor(type, of, low, high);
  };
  const auto bytes = [&](const Dims& of) { return random.tensor(ElementType::UInt8, of, 0, 255); };
  std::vector<std::string> inputs = {
      g.feed(reals({random.pick<std::int64_t>({1, 1, 3, 8}), depth}, -1, 1)),
      g.constant(bytes({columns, blocks, block * bits / 8})),
      g.constant(reals({columns, blocks}, -most, most))};
  if (random.one_in(2)) inputs.push_back(g.constant(bytes({columns, (blocks * bits + 7) / 8})));
  const std::string y = g.node(
      "MatMulNBits", inputs, {{"K", depth}, {"N", columns}, {"bits", bits}, {"block_size", block}});
  g.last().domain = "com.microsoft";
  g.last().opset = 1;
  return g.done({y}, type == ElementType::Float     ? Tolerance{2048, 16384}
                     : type == ElementType::Float16 ? Tolerance{8000, 60000}
                                                    : Tolerance{64000, 480000});
}
const Sweep kDeepWeights("NarrowWeights", "DeepWeightsInAnyForm", 12, deep_weights);

/// More weights than are written out at once.
GraphCase many_weights(Random& random) {
  GraphWriter g(21, random);
  const std::int64_t depth = 1504, columns = 3100, blocks = depth / 32;
  const std::string y =
      g.node("MatMulNBits",
             {g.feed({35, depth}),
              g.constant(random.tensor(ElementType::UInt8, {columns, blocks, 16}, 0, 255)),
              g.constant({columns, blocks}, -0.05, 0.05), "", "", g.constant({columns})},
             {{"K", depth}, {"N", columns}, {"block_size", std::int64_t{32}}});
  g.last().domain = "com.microsoft";
  g.last().opset = 1;
  return g.done({y}, {256, 4096});
}
const Sweep kManyWeights("NarrowWeights", "ManyWeightsInAnyForm", 1, many_weights);

}  // namespace
}  // namespace backplane::ops_test
