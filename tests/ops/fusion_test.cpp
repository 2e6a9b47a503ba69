// Patterns that providers fuse, as whole small graphs: with and without optimization they give the
// same.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/graph_writer.hpp"

namespace backplane::ops_test {
namespace {

struct ConvShape {
  std::int64_t channels;
  std::int64_t features;
  std::int64_t kernel;
  std::int64_t groups = 1;
  std::int64_t stride = 1;
};

ConvShape conv_shape(Random& random) {
  ConvShape s{random.pick<std::int64_t>({3, 8, 16, 17}), random.pick<std::int64_t>({8, 16, 33}),
              random.pick<std::int64_t>({1, 3, 3, 5})};
  s.stride = random.integer(1, 2);
  if (random.one_in(3)) {
    s.groups = s.channels;
    s.features = s.channels;
  }
  return s;
}

std::string conv(GraphWriter& g, Random& random, const std::string& x, const ConvShape& s) {
  std::vector<std::string> inputs = {
      x, g.constant({s.features, s.channels / s.groups, s.kernel, s.kernel}, -0.3, 0.3)};
  if (random.one_in(2)) inputs.push_back(g.constant({s.features}));
  const std::int64_t pad = s.kernel / 2;
  return g.node("Conv", inputs,
                {{"kernel_shape", ints({s.kernel, s.kernel})},
                 {"group", s.groups},
                 {"strides", ints({s.stride, s.stride})},
                 {"pads", ints({pad, pad, pad, pad})}});
}

std::string batch_normalization(GraphWriter& g, const std::string& x, std::int64_t channels) {
  return g.node("BatchNormalization", {x, g.constant({channels}, 0.5, 1.5), g.constant({channels}),
                                       g.constant({channels}), g.constant({channels}, 0.5, 2)});
}

Dims image(Random& random, std::int64_t channels) {
  return {random.integer(1, 2), channels, random.integer(5, 14), random.integer(5, 14)};
}

/// Clip(x + 3, 0, 6) / 6, and x times that: HardSigmoid and HardSwish.
std::string hard_gate(GraphWriter& g, Random& random, const std::string& x) {
  const std::string moved = g.node("Add", {x, g.constant(f32({}, {3}))});
  std::string y = g.node("Clip", {moved, g.constant(f32({}, {0})), g.constant(f32({}, {6}))});
  const bool is_gated = random.one_in(2), is_last = random.one_in(2);
  if (is_gated && is_last) y = g.node("Mul", {y, x});
  y = random.one_in(2) ? g.node("Div", {y, g.constant(f32({}, {6}))})
                       : g.node("Mul", {g.constant(f32({1}, {1.0 / 6.0})), y});
  return is_gated && !is_last ? g.node("Mul", {x, y}) : y;
}

std::string plain_activation(GraphWriter& g, Random& random, const std::string& x) {
  switch (random.integer(0, 7)) {
    case 0:
      return g.node("Relu", {x});
    case 1:
      return g.node("LeakyRelu", {x}, {{"alpha", 0.1f}});
    case 2:
      return g.node("Clip", {x, g.constant(f32({}, {0})), g.constant(f32({}, {0.5}))});
    case 3:
      return g.node("Sigmoid", {x});
    case 4:
      return g.node("Mul", {x, g.node("Sigmoid", {x})});  // SiLU
    case 5:
    case 6:
      return hard_gate(g, random, x);
    default:
      return g.node("HardSwish", {x});
  }
}

/// With arithmetic with single numbers behind it now and then, as PP-LCNetV3 has a learned scale and shift.
std::string activation(GraphWriter& g, Random& random, const std::string& x) {
  std::string y = plain_activation(g, random, x);
  for (std::int64_t steps = random.one_in(2) ? random.integer(1, 3) : 0; steps > 0; --steps) {
    const std::string number = g.constant(f32({1}, {random.one_in(2) ? 1.5 : -0.75}));
    const std::int64_t kind = random.integer(0, 3);
    if (kind == 0) {  // a quotient by what is near 0 says little
      y = g.node("Div", {y, number});
    } else {
      const char* op = kind == 1 ? "Mul" : kind == 2 ? "Add" : "Sub";
      y = random.one_in(3) ? g.node(op, {number, y}) : g.node(op, {y, number});
    }
  }
  return y;
}

GraphCase conv_bn_activation(Random& random) {
  GraphWriter g(17, random);
  const ConvShape s = conv_shape(random);
  std::string x = conv(g, random, g.feed(image(random, s.channels)), s);
  if (!random.one_in(3)) x = batch_normalization(g, x, s.features);
  if (!random.one_in(4)) x = activation(g, random, x);
  return g.done({x});
}
const Sweep kConvBnActivation("Fusion", "ConvBatchNormalizationActivation", 40, conv_bn_activation);

/// DenseNet: the normalisation comes before the convolution. Constants per channel follow it.
GraphCase bn_relu_conv(Random& random) {
  GraphWriter g(17, random);
  ConvShape s = conv_shape(random);
  std::string x = batch_normalization(g, g.feed(image(random, s.channels)), s.channels);
  x = g.node("Mul", {x, g.constant({s.channels, 1, 1}, 0.5, 1.5)});
  x = g.node("Add", {x, g.constant({s.channels, 1, 1})});
  x = conv(g, random, g.node("Relu", {x}), s);
  return g.done({x});
}
const Sweep kBnReluConv("Fusion", "BatchNormalizationReluConv", 16, bn_relu_conv);

/// Between plain values nothing changes its order; some planes are worked through in parts.
GraphCase bn_alone(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t channels = random.integer(1, 9);
  const std::string x = random.one_in(3) ? g.feed({random.integer(0, 2), channels, 90, 95})
                                         : g.feed(image(random, channels));
  const std::string y = batch_normalization(g, x, channels);
  return g.done({random.one_in(3) ? y : activation(g, random, y)});
}
const Sweep kBnAlone("Fusion", "BatchNormalizationAlone", 16, bn_alone);

GraphCase residual(Random& random) {
  GraphWriter g(17, random);
  ConvShape s = conv_shape(random);
  s.stride = 1;
  // Where channels stay the same, x itself may be added: read by one node twice.
  if (random.one_in(2)) s.features = s.channels;
  const Dims dims = image(random, s.channels);
  const std::string x = g.feed(dims);
  std::string y = conv(g, random, x, s);
  std::string side = x;
  if (s.features != s.channels || random.one_in(2)) {
    ConvShape one{s.channels, s.features, 1};
    side = conv(g, random, x, one);
  }
  const char* op = random.one_in(2) ? "Add" : "Sum";
  y = random.one_in(2) ? g.node(op, {y, side}) : g.node(op, {side, y});
  if (!random.one_in(3)) y = g.node("Relu", {y});
  return g.done(random.one_in(3) ? std::vector<std::string>{y, side} : std::vector<std::string>{y});
}
const Sweep kResidual("Fusion", "ConvAddRelu", 40, residual);

/// Few channels between values that others read channels first.
GraphCase between_planes(Random& random) {
  GraphWriter g(17, random);
  ConvShape s{random.pick<std::int64_t>({1, 2, 3, 8}), random.pick<std::int64_t>({1, 3, 8, 17}),
              random.pick<std::int64_t>({1, 3, 5})};
  s.stride = random.integer(1, 3);
  const std::int64_t height = random.integer(1, 9), width = random.integer(8, 70);
  const std::int64_t batch = random.integer(1, 2);
  const Dims dims = {batch, s.channels, (height - 1) * s.stride + 1, (width - 1) * s.stride + 1};
  std::string y = conv(g, random, g.feed(dims), s);
  if (random.one_in(2)) y = batch_normalization(g, y, s.features);
  if (!random.one_in(3)) y = g.node("Add", {y, g.feed({batch, s.features, height, width})});
  if (!random.one_in(3)) y = activation(g, random, y);
  return g.done({y});
}
const Sweep kBetweenPlanes("Fusion", "ConvBetweenPlanes", 40, between_planes);

/// The value between two nodes is asked for, too, so they must not disappear into one another.
GraphCase inner_output(Random& random) {
  GraphWriter g(17, random);
  const ConvShape s = conv_shape(random);
  const std::string x = conv(g, random, g.feed(image(random, s.channels)), s);
  const std::string y = batch_normalization(g, x, s.features);
  const std::string z = g.node("Relu", {y});
  return g.done({x, z, g.node("Neg", {y})});
}
const Sweep kInnerOutput("Fusion", "InnerOutputsStay", 12, inner_output);

/// Inception: branches that meet in a Concat, one of them pooled.
GraphCase branches(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t channels = random.pick<std::int64_t>({8, 16, 19});
  const std::string x = g.feed(image(random, channels));
  std::vector<std::string> parts;
  for (std::int64_t i = random.integer(2, 3); i > 0; --i) {
    const ConvShape s{channels, random.pick<std::int64_t>({4, 8, 13}),
                      random.pick<std::int64_t>({1, 3})};
    parts.push_back(g.node("Relu", {conv(g, random, x, s)}));
  }
  parts.push_back(g.node(random.one_in(2) ? "MaxPool" : "AveragePool", {x},
                         {{"kernel_shape", ints({3, 3})}, {"pads", ints({1, 1, 1, 1})}}));
  if (random.one_in(3)) parts.push_back(x);
  const std::string joined = g.node("Concat", parts, {{"axis", 1}});
  return g.done({g.node("GlobalAveragePool", {joined}), joined});
}
const Sweep kBranches("Fusion", "BranchesAndConcat", 24, branches);

/// ShuffleNet: Reshape, Transpose, Reshape between grouped convolutions.
GraphCase channel_shuffle(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t groups = random.pick<std::int64_t>({2, 4});
  const std::int64_t channels = groups * random.integer(2, 6);
  const Dims dims = image(random, channels);
  std::string x = conv(g, random, g.feed(dims), {channels, channels, 1, groups});
  x = g.node("Reshape",
             {x, g.constant(i64({dims[0], groups, channels / groups, dims[2], dims[3]}))});
  x = g.node("Transpose", {x}, {{"perm", ints({0, 2, 1, 3, 4})}});
  x = g.node("Reshape", {x, g.constant(i64({dims[0], channels, dims[2], dims[3]}))});
  x = conv(g, random, x, {channels, channels, 3, channels});
  return g.done({x});
}
const Sweep kChannelShuffle("Fusion", "ChannelShuffle", 16, channel_shuffle);

/// `half`: the dims of its last number.
std::string gelu(GraphWriter& g, const std::string& x, const Dims& half = {}) {
  const std::string erf =
      g.node("Erf", {g.node("Div", {x, g.constant(f32({}, {std::sqrt(2.0)}))})});
  const std::string sum = g.node("Add", {erf, g.constant(f32({}, {1}))});
  return g.node("Mul", {g.node("Mul", {x, sum}), g.constant(f32(half, {0.5}))});
}

/// With tanh, as exporters of GPT-2 write it, or by products alone.
std::string gelu_by_tanh(GraphWriter& g, Random& random, const std::string& x) {
  const auto number = [&](double value) { return g.constant(f32({}, {value})); };
  std::string inner;
  if (random.one_in(2)) {
    const std::string cube = g.node("Pow", {x, number(3)});
    inner = g.node("Add", {x, g.node("Mul", {cube, number(0.044715)})});
  } else {
    const std::string square = g.node("Mul", {g.node("Mul", {x, x}), number(0.044715)});
    inner = g.node("Mul", {x, g.node("Add", {square, number(1)})});
  }
  const std::string tanh =
      g.node("Tanh", {g.node("Mul", {number(std::sqrt(2 / std::acos(-1.0))), inner})});
  const std::string sum = g.node("Add", {tanh, number(1)});
  return g.node("Mul", {g.node("Mul", {x, number(0.5)}), sum});
}

GraphCase dense(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t k = random.pick<std::int64_t>({7, 16, 48, 65});
  const std::int64_t n = random.pick<std::int64_t>({5, 16, 33, 64});
  const Dims dims = random.one_in(2) ? Dims{random.integer(1, 20), k}
                                     : Dims{random.integer(1, 3), random.integer(1, 9), k};
  std::string x = g.node("MatMul", {g.feed(dims), g.constant({k, n}, -0.5, 0.5)});
  const std::string bias = g.constant(random.one_in(3) ? Dims{1, n} : Dims{n});
  x = random.one_in(2) ? g.node("Add", {x, bias}) : g.node("Add", {bias, x});
  switch (random.integer(0, 5)) {
    case 5:
      x = gelu_by_tanh(g, random, x);
      break;
    case 0:
      x = gelu(g, x, random.one_in(3) ? Dims{1, 1, 1, 1} : Dims{});
      break;
    case 1:
      x = g.node("Relu", {x});
      break;
    case 2:
      x = g.node("Mul", {x, g.node("Sigmoid", {x})});
      break;
    case 3:
      x = g.node("Tanh", {x});
      break;
    default:
      break;
  }
  if (random.one_in(3)) x = g.node("Add", {x, g.feed({n})});
  return g.done({x});
}
const Sweep kDense("Fusion", "MatMulAddActivation", 40, dense);

/// x * Sigmoid(x) or x * Sigmoid(alpha * x), and, now and then, something that is not quite it.
GraphCase gate(Random& random) {
  GraphWriter g(17, random);
  const Dims dims = random.dims(random.integer(0, 4), 300);
  const std::string x = g.feed(dims, -100, 100);
  std::string inner = x;
  if (random.one_in(2)) {
    const Dims one(static_cast<std::size_t>(random.integer(0, 5)), 1);
    const std::string alpha =
        random.one_in(4) ? g.feed(one) : g.constant(f32(one, {random.pick({1.702, -0.5, 1.0})}));
    inner = random.one_in(2) ? g.node("Mul", {inner, alpha}) : g.node("Mul", {alpha, inner});
  }
  const std::string open = g.node("Sigmoid", {inner});
  const std::string other = random.one_in(4) ? g.feed(dims) : random.one_in(5) ? inner : x;
  std::vector<std::string> outputs;
  outputs.push_back(random.one_in(2) ? g.node("Mul", {other, open}) : g.node("Mul", {open, other}));
  if (random.one_in(4)) outputs.push_back(open);
  if (inner != x && random.one_in(4)) outputs.push_back(g.node("Neg", {inner}));
  return g.done(outputs, {16, 16});
}
const Sweep kGate("Fusion", "Gate", 40, gate);

GraphCase mlp(Random& random) {
  GraphWriter g(13, random);
  std::int64_t width = random.pick<std::int64_t>({16, 33, 64});
  std::string x = g.feed({random.integer(1, 5), width});
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t next = random.pick<std::int64_t>({10, 32, 48});
    x = g.node("Gemm", {x, g.constant({next, width}, -0.4, 0.4), g.constant({next})},
               {{"transB", 1}});
    if (i < 2) x = g.node("Relu", {x});
    width = next;
  }
  return g.done({x});
}
const Sweep kMlp("Fusion", "GemmRelu", 12, mlp);

GraphCase layer_normalization(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t width = random.pick<std::int64_t>({8, 31, 64});
  const std::string x = g.feed({random.integer(1, 3), random.integer(1, 6), width}, -3, 3);
  const std::string mean = g.node("ReduceMean", {x}, {{"axes", ints({-1})}});
  const std::string centred = g.node("Sub", {x, mean});
  const std::string square = g.node("Pow", {centred, g.constant(f32({}, {2}))});
  const std::string variance = g.node("ReduceMean", {square}, {{"axes", ints({-1})}});
  const std::string deviation =
      g.node("Sqrt", {g.node("Add", {variance, g.constant(f32({}, {1e-5}))})});
  const std::string scaled =
      g.node("Mul", {g.node("Div", {centred, deviation}), g.constant({width})});
  return g.done({g.node("Add", {scaled, g.constant({width})})});
}
const Sweep kLayerNormalization("Fusion", "DecomposedLayerNormalization", 12, layer_normalization);

/// As exporters write it: the square by Pow or Mul, the quotient by Div, by a Div of 1, or by Reciprocal; and, now and then,
/// something that is not quite it.
GraphCase rms_normalization(Random& random) {
  GraphWriter g(18, random);
  const std::int64_t width = random.pick<std::int64_t>({1, 8, 31, 64, 200});
  const std::string x = g.feed({random.integer(1, 3), random.integer(0, 6), width}, -3, 3);
  const std::string square =
      random.one_in(2) ? g.node("Pow", {x, g.constant(f32({}, {2}))}) : g.node("Mul", {x, x});
  const std::string mean = g.node("ReduceMean", {square, g.constant(i64({-1}))});
  const std::string epsilon = g.constant(f32({}, {random.one_in(4) ? 0.5 : 1e-5}));
  const std::string root = g.node(
      "Sqrt", {random.one_in(2) ? g.node("Add", {mean, epsilon}) : g.node("Add", {epsilon, mean})});
  std::string scaled;
  if (random.one_in(3)) {
    scaled = g.node("Div", {x, root});
  } else {
    const std::string inverse = random.one_in(2) ? g.node("Reciprocal", {root})
                                                 : g.node("Div", {g.constant(f32({}, {1})), root});
    scaled = random.one_in(2) ? g.node("Mul", {x, inverse}) : g.node("Mul", {inverse, x});
  }
  const std::string gamma = random.one_in(5)   ? g.constant({1, 1, 1})
                            : random.one_in(5) ? g.feed({width})
                                               : g.constant({width});
  const std::string y =
      random.one_in(2) ? g.node("Mul", {gamma, scaled}) : g.node("Mul", {scaled, gamma});
  if (random.one_in(4)) return g.done({y, root});
  if (random.one_in(3))
    return g.done({g.node("Add", {random.one_in(2) ? g.constant({width}) : x, y})});
  return g.done({y});
}
const Sweep kRmsNormalization("Fusion", "DecomposedRmsNormalization", 40, rms_normalization);

/// Element-wise nodes before rows that are folded or normalised; operands have ones among their dims by chance.
GraphCase rows_of_elements(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t width = random.pick<std::int64_t>({1, 5, 16, 33});
  const Dims dims{random.integer(1, 2), random.integer(1, 3), random.integer(1, 5), width};
  const auto operand = [&] {
    Dims own(dims.begin() + random.integer(0, 3), dims.end());
    for (std::int64_t& dim : own) dim = random.one_in(3) ? 1 : dim;
    return g.feed(own, -2, 2);
  };
  std::string x = g.node("Mul", {g.feed(dims, -3, 3), g.constant(f32({}, {0.25}))});
  x = g.node("Add", {operand(), x});
  if (random.one_in(2)) x = g.node("Sub", {g.node("Abs", {x}), operand()});
  std::vector<std::string> outputs;
  switch (random.integer(0, 2)) {
    case 0:
      outputs.push_back(g.node("Softmax", {x}, {{"axis", -1}}));
      break;
    case 1:
      outputs.push_back(g.node("ReduceMax", {x}, {{"axes", ints({-1})}}));
      break;
    default:
      outputs.push_back(
          g.node("LayerNormalization", {x, g.constant({width}), g.constant({width})}));
  }
  if (random.one_in(3)) outputs.push_back(x);
  return g.done(outputs);
}
const Sweep kRowsOfElements("Fusion", "RowsOfElements", 24, rows_of_elements);

/// Element-wise nodes of 16 bits, as in the layers of language models: a residual that is normalised and read again, a gate, and
/// numbers of one element.
GraphCase half_elements(Random& random) {
  GraphWriter g(23, random);
  const ElementType type = random.pick({ElementType::Float16, ElementType::BFloat16});
  const std::int64_t width = random.pick<std::int64_t>({1, 5, 16, 33, 64, 200});
  const Dims dims{random.integer(1, 2), random.integer(0, 5), width};
  const auto feed = [&](const Dims& of) { return g.feed(random.tensor(type, of, -2, 2)); };
  const auto constant = [&](const Dims& of) { return g.constant(random.tensor(type, of, 0.5, 1)); };
  const std::string x = feed(dims);
  std::string sum = g.node("Add", {feed(random.one_in(3) ? Dims{width} : dims), x});
  if (random.one_in(2)) sum = g.node("Mul", {sum, constant({})});
  std::vector<std::string> outputs;
  switch (random.integer(0, 3)) {
    case 0:
      outputs.push_back(g.node("Softmax", {sum}, {{"axis", -1}}));
      break;
    case 1:
      outputs.push_back(g.node("LayerNormalization", {sum, constant({width}), constant({width})},
                               {{"epsilon", 0.1f}}));
      break;
    case 2:
      outputs.push_back(g.node("RMSNormalization", {sum, constant({width})}, {{"epsilon", 0.1f}}));
      break;
    default:
      outputs.push_back(
          g.node("Mul", {feed(dims), g.node("Mul", {sum, g.node("Sigmoid", {sum})})}));
  }
  if (random.one_in(2)) outputs.push_back(g.node("Sub", {sum, outputs[0]}));
  if (random.one_in(4)) outputs.push_back(sum);
  GraphCase made = g.done(outputs);
  const double step = type == ElementType::Float16 ? 0x1p-10 : 0x1p-7;
  made.tolerance = {8 * step / 0x1p-23, 8 * step / 0x1p-23};
  return made;
}
const Sweep kHalfElements("Fusion", "ElementsOf16Bits", 40, half_elements);

GraphCase attention(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t batch = random.integer(1, 2);
  const std::int64_t heads = random.integer(1, 3);
  const std::int64_t length = random.pick<std::int64_t>({3, 8, 17});
  const std::int64_t width = random.pick<std::int64_t>({4, 8, 16});
  const std::string x = g.feed({batch, length, heads * width});
  const auto projection = [&](const Dims& perm) {
    std::string y = g.node("MatMul", {x, g.constant({heads * width, heads * width}, -0.4, 0.4)});
    y = g.node("Add", {g.constant({heads * width}), y});
    y = g.node("Reshape", {y, g.constant(i64({batch, length, heads, width}))});
    return g.node("Transpose", {y}, {{"perm", perm}});
  };
  const std::string q = projection({0, 2, 1, 3});
  const std::string k = projection({0, 2, 3, 1});
  const std::string v = projection({0, 2, 1, 3});
  std::string scores = g.node(
      "Div",
      {g.node("MatMul", {q, k}), g.constant(f32({}, {std::sqrt(static_cast<double>(width))}))});
  scores = g.node("Add", {scores, g.feed({batch, 1, 1, length}, -2, 0)});
  std::string y = g.node("MatMul", {g.node("Softmax", {scores}, {{"axis", -1}}), v});
  y = g.node("Transpose", {y}, {{"perm", ints({0, 2, 1, 3})}});
  return g.done({g.node("Reshape", {y, g.constant(i64({batch, length, heads * width}))})});
}
const Sweep kAttention("Fusion", "Attention", 12, attention);

}  // namespace
}  // namespace backplane::ops_test
