// Networks quantized dynamically: DynamicQuantizeLinear, MatMulInteger or ConvInteger with constant weights, and what
// makes floats of the sums. Bytes are the same in every runtime as long as what is quantized is, and sums are exact: results differ by
// the rounding of a few float operations alone.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/graph_writer.hpp"

namespace backplane::ops_test {
namespace {

std::int64_t extent(Random& random) {
  return random.pick<std::int64_t>({1, 2, 3, 4, 15, 16, 17, 32, 33, 63, 64, 65, 100, 130, 257});
}

/// A tensor of floats as bytes: by DynamicQuantizeLinear, or fed with one scale.
struct Bytes {
  std::string values, scale, zero;
};

Bytes quantize(GraphWriter& g, const std::string& x) {
  const std::vector<std::string> made = g.nodes("DynamicQuantizeLinear", {x}, 3);
  return {made[0], made[1], made[2]};
}

Bytes feed_bytes(GraphWriter& g, Random& random, const Dims& dims) {
  const ElementType type = random.pick({ElementType::UInt8, ElementType::Int8});
  const Dims one = random.one_in(2) ? Dims{} : Dims{1};
  const auto ends = std::pair(reference::lowest(type), reference::highest(type));
  return {g.feed(random.tensor(type, dims, ends.first, ends.second)), g.feed(f32(one, {1.0 / 128})),
          random.one_in(4) ? "" : g.feed(random.tensor(type, one, ends.first, ends.second))};
}

/// Constant weights of either type, with a zero point or without, and a scale.
struct Weights {
  std::string values, scale, zero;
};

Weights weights(GraphWriter& g, Random& random, std::int64_t depth, std::int64_t columns) {
  const ElementType type = random.pick({ElementType::Int8, ElementType::Int8, ElementType::UInt8});
  const double low = reference::lowest(type), high = reference::highest(type);
  Weights w;
  w.values = g.constant(random.one_in(2) ? random.trained_bytes(type, {depth, columns})
                                         : random.tensor(type, {depth, columns}, low, high));
  const Dims each = {columns};
  const double size = 1 / (64 * std::sqrt(static_cast<double>(depth)));
  w.scale = g.constant(random.pick<Dims>({{}, {1}, each, each, {1, columns}}), size / 2, size);
  if (random.one_in(5)) return w;
  const Dims dims = random.pick<Dims>({{}, {1}, each});
  const double middle = type == ElementType::Int8 ? 0 : 128;
  w.zero = random.one_in(2) ? g.constant(random.tensor(type, dims, middle, middle))
                            : g.constant(random.tensor(type, dims, low, high));
  return w;
}

std::string either_way(GraphWriter& g, Random& random, const char* op, const std::string& a,
                       const std::string& b) {
  return random.one_in(2) ? g.node(op, {a, b}) : g.node(op, {b, a});
}

/// The float result of a product, and the values on the way to it.
struct Product {
  std::string result, sums, floats, scale;
};

Product product(GraphWriter& g, Random& random, const Bytes& a, const Weights& w) {
  Product p;
  std::vector<std::string> inputs = {a.values, w.values};
  if (!a.zero.empty() || !w.zero.empty()) inputs.push_back(a.zero);
  if (!w.zero.empty()) inputs.push_back(w.zero);
  p.sums = g.node("MatMulInteger", inputs);
  p.floats = g.node("Cast", {p.sums}, {{"to", std::int64_t{1}}});
  p.scale = either_way(g, random, "Mul", a.scale, w.scale);
  p.result = either_way(g, random, "Mul", p.floats, p.scale);
  return p;
}

/// A bias of any shape that fits, constant or not.
std::string add_bias(GraphWriter& g, Random& random, const std::string& y, std::int64_t columns) {
  const Dims dims = random.pick<Dims>({{columns}, {columns}, {columns}, {}, {1}, {1, columns}});
  const std::string bias = random.one_in(6) ? g.feed(dims) : g.constant(dims);
  return either_way(g, random, "Add", y, bias);
}

std::string gelu(GraphWriter& g, const std::string& x) {
  const std::string inner = g.node("Div", {x, g.constant(f32({}, {std::sqrt(2.0)}))});
  const std::string sum = g.node("Add", {g.node("Erf", {inner}), g.constant(f32({}, {1}))});
  return g.node("Mul", {g.node("Mul", {x, sum}), g.constant(f32({}, {0.5}))});
}

std::string activation(GraphWriter& g, Random& random, const std::string& x) {
  switch (random.integer(0, 5)) {
    case 0:
      return g.node("Relu", {x});
    case 1:
      return gelu(g, x);
    case 2:
      return g.node("Tanh", {x});
    case 3:
      return g.node("Mul", {x, g.node("Sigmoid", {x})});
    case 4:
      return g.node("Clip", {x, g.constant(f32({}, {-0.5})), g.constant(f32({}, {0.25}))});
    default:
      return x;
  }
}

Dims with_last(Dims dims, std::int64_t last) {
  dims.back() = last;
  return dims;
}

Dims operand_dims(Random& random, std::int64_t depth) {
  const std::int64_t rows = random.pick<std::int64_t>({1, 2, 3, 5, 8, 9, 31, 100});
  switch (random.integer(0, 5)) {
    case 0:
      return {depth};
    case 1:
      return {random.integer(1, 3), rows, depth};
    case 2:
      return {1, rows, depth};
    default:
      return {rows, depth};
  }
}

constexpr Tolerance kRounding = {64, 256};

GraphCase chain(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t depth = extent(random), columns = extent(random);
  const Dims dims = operand_dims(random, depth);
  const Bytes a = random.one_in(4) ? feed_bytes(g, random, dims)
                                   : quantize(g, g.feed(dims, random.one_in(3) ? 0 : -1, 1));
  Product p = product(g, random, a, weights(g, random, depth, columns));
  std::string y = p.result;
  if (!random.one_in(3)) y = add_bias(g, random, y, columns);
  if (random.one_in(2)) {
    const Dims same = with_last(dims, columns);
    y = either_way(g, random, "Add", y, g.feed(random.one_in(4) ? Dims{columns} : same));
  }
  y = activation(g, random, y);
  return g.done({y}, kRounding);
}
const Sweep kChain("DynamicQuantization", "Chain", 120, chain);

/// Values inside a chain are asked for or read by others, too: they must not disappear.
GraphCase inner_values(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t depth = extent(random), columns = extent(random);
  const Bytes a = quantize(g, g.feed(operand_dims(random, depth)));
  const Product p = product(g, random, a, weights(g, random, depth, columns));
  const std::string biased = g.node("Add", {p.result, g.constant({columns})});
  const std::string y = g.node("Relu", {biased});
  const std::string inner = random.pick<std::string>({p.sums, p.floats, p.scale, p.result, biased});
  if (random.one_in(2)) return g.done({y, inner}, kRounding);
  return g.done({y, inner == p.sums ? g.node("Abs", {inner}) : g.node("Neg", {inner})}, kRounding);
}
const Sweep kInnerValues("DynamicQuantization", "InnerValuesStay", 30, inner_values);

/// Products that read the same bytes, as those of queries, keys and values do; their results are multiplied.
GraphCase siblings(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t depth = random.pick<std::int64_t>({16, 33, 64}), columns = extent(random);
  const std::string x = g.feed({random.integer(1, 12), depth});
  const Bytes a = quantize(g, x);
  std::vector<std::string> results;
  for (std::int64_t i = random.integer(2, 3); i > 0; --i) {
    const Product p = product(g, random, a, weights(g, random, depth, columns));
    results.push_back(activation(g, random, add_bias(g, random, p.result, columns)));
  }
  results.push_back(g.node("Mul", {results[0], results[1]}));
  return g.done(results, {64, 1024});
}
const Sweep kSiblings("DynamicQuantization", "ProductsOfTheSameBytes", 30, siblings);

/// A convolution and the dims of its operands; `channels` are those of its result.
struct Convolution {
  std::vector<reference::Attribute> attributes;
  Dims x, w;
  std::int64_t channels = 0;
};

/// Of one group and 1 to 3 spatial axes, or of several groups.
Convolution convolution(Random& random) {
  Convolution c;
  const std::int64_t groups = random.one_in(6) ? 2 : 1;
  const std::int64_t depth = random.pick<std::int64_t>({1, 2, 3, 4, 7, 8, 16, 20, 33});
  c.channels = groups * random.pick<std::int64_t>({1, 3, 4, 16, 17, 40, 70});
  c.x = {random.integer(1, 2), groups * depth};
  c.w = {c.channels, depth};
  std::vector<std::int64_t> strides, dilations, pads;
  for (std::int64_t axes = random.pick<std::int64_t>({1, 2, 2, 2, 3}); axes > 0; --axes) {
    const std::int64_t kernel = random.pick<std::int64_t>({1, 2, 3, 3, 5});
    dilations.push_back(random.one_in(4) ? 2 : 1);
    strides.push_back(random.integer(1, 2));
    pads.push_back(random.integer(0, kernel - 1));
    c.w.push_back(kernel);
    c.x.push_back((kernel - 1) * dilations.back() + random.pick<std::int64_t>({1, 2, 6, 9}));
  }
  std::vector<std::int64_t> both = pads;
  for (const std::int64_t pad : pads) both.push_back(random.one_in(3) ? 0 : pad);
  c.attributes = {
      {"group", groups}, {"strides", strides}, {"dilations", dilations}, {"pads", both}};
  return c;
}

/// [channels], with the axes that are behind it, and in front of it or not.
Dims channel_dims(Random& random, const Convolution& c) {
  Dims dims(c.x.size() - 1, 1);
  dims[0] = c.channels;
  if (random.one_in(2)) dims.insert(dims.begin(), 1);
  return dims;
}

Weights conv_weights(GraphWriter& g, Random& random, const Convolution& c) {
  const ElementType type = random.pick({ElementType::Int8, ElementType::UInt8});
  const double low = reference::lowest(type), high = reference::highest(type);
  Weights w;
  w.values = g.constant(random.tensor(type, c.w, low, high));
  w.scale = g.constant(random.pick<Dims>({{}, {1}, channel_dims(random, c)}), 0.0005, 0.001);
  if (!random.one_in(4)) {
    const bool middle = random.one_in(3);
    const double at = type == ElementType::Int8 ? 0 : 128;
    const Dims dims = random.pick<Dims>({{}, {1}, {c.channels}});
    w.zero = g.constant(random.tensor(type, dims, middle ? at : low, middle ? at : high));
  }
  return w;
}

/// Sums of a convolution, with a bias of integers or not, and what follows them.
GraphCase convolutions(Random& random) {
  GraphWriter g(17, random);
  const Convolution c = convolution(random);
  const Bytes a = random.one_in(3) ? feed_bytes(g, random, c.x)
                                   : quantize(g, g.feed(c.x, random.one_in(3) ? 0 : -1, 1));
  const Weights w = conv_weights(g, random, c);
  std::vector<std::string> inputs = {a.values, w.values};
  if (!a.zero.empty() || !w.zero.empty()) inputs.push_back(a.zero);
  if (!w.zero.empty()) inputs.push_back(w.zero);
  std::string sums = g.node("ConvInteger", inputs, c.attributes);
  if (random.one_in(3)) {
    const Tensor bias = random.tensor(ElementType::Int32, channel_dims(random, c), -9000, 9000);
    sums = either_way(g, random, "Add", sums, random.one_in(2) ? g.feed(bias) : g.constant(bias));
  }
  if (random.one_in(5)) return g.done({sums});
  std::string y = g.node("Cast", {sums}, {{"to", std::int64_t{1}}});
  y = either_way(g, random, "Mul", y, either_way(g, random, "Mul", a.scale, w.scale));
  if (random.one_in(2)) {
    const Dims dims = random.one_in(5) ? Dims{} : channel_dims(random, c);
    y = either_way(g, random, "Add", y, random.one_in(5) ? g.feed(dims) : g.constant(dims));
  }
  if (random.one_in(3)) y = either_way(g, random, "Add", y, g.node("Neg", {y}));
  y = activation(g, random, y);
  return g.done({y}, kRounding);
}
const Sweep kConvolutions("DynamicQuantization", "Convolutions", 120, convolutions);

/// Two convolutions of the same bytes, the second one's result added to the first one's, or to what the bytes are of.
GraphCase residual_layers(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t channels = random.pick<std::int64_t>({4, 12, 18});
  const std::string x = g.feed({1, channels, 6, random.integer(1, 9)});
  const Bytes a = quantize(g, x);
  const std::string one = g.constant(f32({}, {1.0 / 4096}));
  const auto layer = [&](std::int64_t kernel, const std::string& addend) {
    const std::string w =
        g.constant(random.tensor(ElementType::UInt8, {channels, channels, kernel, kernel}, 0, 255));
    const std::string zero = g.constant(random.tensor(ElementType::UInt8, {}, 100, 140));
    const std::int64_t pad = kernel / 2;
    std::string y =
        g.node("ConvInteger", {a.values, w, a.zero, zero}, {{"pads", ints({pad, pad, pad, pad})}});
    y = g.node("Mul",
               {g.node("Cast", {y}, {{"to", std::int64_t{1}}}), g.node("Mul", {a.scale, one})});
    y = either_way(g, random, "Add", y, g.constant({channels, 1, 1}));
    return addend.empty() ? y : activation(g, random, either_way(g, random, "Add", y, addend));
  };
  const std::string first = layer(3, "");
  return g.done({layer(random.pick<std::int64_t>({1, 3}), random.one_in(2) ? first : x)},
                kRounding);
}
const Sweep kResidualLayers("DynamicQuantization", "LayersWithAResidual", 20, residual_layers);

/// No rows, no columns, no depth.
GraphCase nothing(Random& random) {
  GraphWriter g(17, random);
  std::vector<std::int64_t> sizes = {random.size(), random.size(), random.size()};
  sizes[static_cast<std::size_t>(random.integer(0, 2))] = 0;
  const Bytes a = feed_bytes(g, random, {sizes[0], sizes[1]});
  const ElementType type = random.pick({ElementType::Int8, ElementType::UInt8});
  Weights w;
  w.values = g.constant(random.tensor(type, {sizes[1], sizes[2]}));
  w.scale = g.constant(f32({}, {0.5}));
  std::string y = product(g, random, a, w).result;
  if (random.one_in(2)) y = g.node("Add", {y, g.constant({sizes[2]})});
  return g.done({activation(g, random, y)}, kRounding);
}
const Sweep kNothing("DynamicQuantization", "NoElements", 12, nothing);

}  // namespace
}  // namespace backplane::ops_test
