// Networks in QDQ form, whose nodes between DequantizeLinear and QuantizeLinear providers compute with the
// bytes themselves. Scales are powers of two, so that nothing lies near a half by rounding alone; a step is
// allowed where a sum that lies on a half in exact arithmetic falls on the other side in float.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/host.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

/// Results may be so far apart, and what rounding adds to the difference.
Tolerance within(double distance, double relative = 0) {
  constexpr double kEpsilon = 1.1920928955078125e-07;  // the unit of tolerances
  return {relative, 1.01 * distance / kEpsilon};
}

/// What bytes stand for.
struct Bytes {
  ElementType type;
  double scale, zero;
};

Bytes bytes(Random& random, double scale) {
  if (random.one_in(3)) return {ElementType::Int8, scale, random.pick<double>({0, -5, 40})};
  return {ElementType::UInt8, scale, random.pick<double>({0, 100, 128, 131})};
}

std::string zero_point(GraphWriter& g, const Bytes& b) {
  return g.constant(tensor(b.type, {}, {b.zero}));
}

std::string quantize(GraphWriter& g, const std::string& x, const Bytes& b) {
  return g.node("QuantizeLinear", {x, g.constant(f32({}, {b.scale})), zero_point(g, b)});
}

std::string dequantize(GraphWriter& g, const std::string& x, const Bytes& b) {
  return g.node("DequantizeLinear", {x, g.constant(f32({}, {b.scale})), zero_point(g, b)});
}

std::string pair(GraphWriter& g, const std::string& x, const Bytes& b) {
  return dequantize(g, quantize(g, x, b), b);
}

/// Constant weights with one scale, or one for each of `axis`: signed, or unsigned of a zero point that
/// kernels may know or not.
std::string weights(GraphWriter& g, Random& random, const Dims& dims, std::size_t axis) {
  const bool is_signed = !random.one_in(3);
  const ElementType type = is_signed ? ElementType::Int8 : ElementType::UInt8;
  const double zero = is_signed ? 0 : random.pick<double>({128, 128, 131});
  const Dims parameters = random.one_in(3) ? Dims{} : Dims{dims[axis]};
  std::vector<double> scales(parameters.empty() ? 1 : static_cast<std::size_t>(parameters[0]));
  for (double& value : scales) value = std::ldexp(1.0, static_cast<int>(random.integer(-9, -7)));
  std::vector<std::string> inputs = {
      g.constant(random.one_in(2) ? random.trained_bytes(type, dims)
                                  : random.tensor(type, dims, reference::lowest(type),
                                                  reference::highest(type))),
      g.constant(f32(parameters, scales))};
  if (!is_signed || random.one_in(2))
    inputs.push_back(g.constant(random.tensor(type, parameters, zero, zero)));
  return g.node("DequantizeLinear", inputs, {{"axis", static_cast<std::int64_t>(axis)}});
}

std::string bias(GraphWriter& g, Random& random, std::int64_t columns) {
  if (random.one_in(2)) return g.constant({columns}, -3, 3);
  return g.node("DequantizeLinear",
                {g.constant(random.tensor(ElementType::Int32, {columns}, -9000, 9000)),
                 g.constant(f32({}, {1.0 / 4096}))});
}

std::string clamp(GraphWriter& g, Random& random, const std::string& x) {
  if (random.one_in(2)) return x;
  if (random.one_in(2)) return g.node("Relu", {x});
  return g.node("Clip", {x, g.constant(f32({}, {-1})), g.constant(f32({}, {3}))});
}

/// A convolution of any geometry; groups too.
std::string conv(GraphWriter& g, Random& random, const std::string& x, const Dims& dims) {
  const std::int64_t channels = dims[1];
  std::int64_t groups = 1, features = random.pick<std::int64_t>({1, 8, 16, 17, 33, 64, 80});
  if (random.one_in(3)) {
    groups = channels;
    features = channels;
  } else if (channels % 8 == 0 && random.one_in(2)) {
    groups = 2;
    features = features / 2 * 2 + 2;
  }
  Dims w = {features, channels / groups}, kernel, strides, dilations, pads;
  for (std::size_t axis = 2; axis < dims.size(); ++axis) {
    kernel.push_back(
        std::min<std::int64_t>(random.pick<std::int64_t>({1, 2, 3, 3, 5}), dims[axis]));
    strides.push_back(random.integer(1, 2));
    const bool fits = kernel.back() > 1 && 2 * (kernel.back() - 1) < dims[axis];
    dilations.push_back(fits ? random.integer(1, 2) : 1);
  }
  for (int side = 0; side < 2; ++side) {
    for (const std::int64_t extent : kernel) pads.push_back(random.integer(0, extent / 2));
  }
  w.insert(w.end(), kernel.begin(), kernel.end());
  std::vector<std::string> inputs = {x, weights(g, random, w, 0)};
  if (random.one_in(2)) inputs.push_back(bias(g, random, features));
  return g.node("Conv", inputs,
                {{"group", groups},
                 {"strides", ints(strides)},
                 {"dilations", ints(dilations)},
                 {"pads", ints(pads)}});
}

GraphCase convolution(Random& random) {
  GraphWriter g(13, random);
  Dims dims = {random.integer(1, 2), random.pick<std::int64_t>({1, 3, 4, 8, 16, 17, 24, 70})};
  const std::int64_t axes = random.one_in(2) ? 2 : random.integer(1, 3);
  for (std::int64_t i = 0; i < axes; ++i) dims.push_back(random.integer(2, axes == 3 ? 6 : 14));
  const std::string x = pair(g, g.feed(dims, -2, 2), bytes(random, 1.0 / 64));
  std::string y = clamp(g, random, conv(g, random, x, dims));
  const double step = 1.0 / 16;
  if (random.one_in(4)) return g.done({y}, {64, 4096});
  const Bytes result = bytes(random, step);
  const std::string stored = quantize(g, y, result);
  y = dequantize(g, stored, result);
  return random.one_in(4) ? g.done({stored, y}, within(1)) : g.done({y}, within(step));
}
const Sweep kConvolution("QuantizedNetwork", "Convolution", 120, convolution);

/// Images and channels for which a 3x3 convolution goes by transforms where bytes are widened, and some that are too
/// small for it; edges that cut tiles.
GraphCase convolution_3x3(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t channels = random.pick<std::int64_t>({16, 20, 32, 36, 52, 64, 100});
  const std::int64_t features = random.pick<std::int64_t>({1, 8, 16, 17, 32, 40, 64});
  const Dims dims = {random.integer(1, 2), channels, random.integer(3, 15), random.integer(3, 15)};
  const std::string x = pair(g, g.feed(dims, -2, 2), bytes(random, 1.0 / 64));
  std::vector<std::string> inputs = {x, weights(g, random, {features, channels, 3, 3}, 0)};
  if (random.one_in(2)) inputs.push_back(bias(g, random, features));
  Dims pads;
  for (int i = 0; i < 4; ++i) pads.push_back(random.integer(0, 2));
  const std::string y = clamp(g, random, g.node("Conv", inputs, {{"pads", ints(pads)}}));
  if (random.one_in(3)) return g.done({y}, {64, 4096});
  const double step = 1.0 / 8;
  return g.done({pair(g, y, bytes(random, step))}, within(step));
}
const Sweep kConvolution3x3("QuantizedNetwork", "Convolution3x3", 60, convolution_3x3);

/// Channel by channel, 3 x 3: whole vectors of channels, some that are not, fewer than one; edges outside of the image on all
/// sides. All factors are powers of two, so that results are exact.
GraphCase sliding(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t channels = random.pick<std::int64_t>({3, 16, 17, 24, 31, 32, 40, 70});
  Dims dims = {random.integer(1, 2), channels}, w = {channels, 1}, strides, dilations, pads;
  const auto axis = [&](std::int64_t size, std::int64_t kernel, std::int64_t dilation) {
    dims.push_back(size);
    w.push_back(kernel);
    strides.push_back(random.integer(1, 4));
    dilations.push_back(dilation);
  };
  if (random.one_in(4)) axis(random.integer(1, 3), 1, 1);
  axis(random.integer(5, 9), 3, random.integer(1, 2));
  axis(random.integer(3, 40), 3, 1);
  for (std::size_t i = 0; i < 2 * strides.size(); ++i)
    pads.push_back(random.integer(0, w[2 + i % strides.size()] / 2 + 1));
  const std::string x = pair(g, g.feed(dims, -2, 2), bytes(random, 1.0 / 64));
  const std::string y = g.node("Conv", {x, weights(g, random, w, 0)},
                               {{"group", channels},
                                {"strides", ints(strides)},
                                {"dilations", ints(dilations)},
                                {"pads", ints(pads)}});
  if (random.one_in(3)) return g.done({y});
  return g.done({quantize(g, clamp(g, random, y), bytes(random, 1.0 / 16))}, within(0));
}
const Sweep kSliding("QuantizedNetwork", "Sliding", 80, sliding);

/// First layers: few channels, of which several pixels are a row, and kernels of other widths than a vector holds.
GraphCase few_channels(Random& random) {
  GraphWriter g(13, random);
  const Dims dims = {random.integer(1, 2), random.integer(1, 5), random.integer(7, 12),
                     random.integer(9, 20)};
  const Dims w = {random.pick<std::int64_t>({1, 8, 16, 24, 40}), dims[1], random.integer(1, 7),
                  random.integer(2, 9)};
  const std::string x = pair(g, g.feed(dims, -2, 2), bytes(random, 1.0 / 64));
  const std::int64_t stride = random.integer(1, 2);
  const std::string y = g.node("Conv", {x, weights(g, random, w, 0)},
                               {{"strides", ints({stride, stride})},
                                {"pads", ints({w[2] / 2, w[3] / 2, w[2] / 2, w[3] / 2})}});
  if (random.one_in(3)) return g.done({y});
  return g.done({quantize(g, clamp(g, random, y), bytes(random, 1.0 / 4))}, within(0));
}
const Sweep kFewChannels("QuantizedNetwork", "FewChannels", 60, few_channels);

/// Sums of bytes of all kinds.
GraphCase addition(Random& random) {
  GraphWriter g(13, random);
  const Dims dims = {random.integer(1, 3), random.pick<std::int64_t>({1, 5, 31, 32, 33, 64, 100})};
  const auto one = [&] {
    return pair(g, g.feed(dims, -2, 2), bytes(random, random.one_in(2) ? 1.0 / 64 : 1.0 / 32));
  };
  const std::string sum = g.node("Add", {one(), one()});
  return g.done({quantize(g, clamp(g, random, sum), bytes(random, 1.0 / 32))}, within(0));
}
const Sweep kAddition("QuantizedNetwork", "Addition", 40, addition);

TEST(QuantizedNetwork, A3x3ConvolutionGoesByTransformsWhereBytesAreWidened) {
  for (const std::int64_t stride : {1, 2}) {
    Random random(5);
    GraphWriter g(13, random);
    const std::string x = pair(g, g.feed({1, 64, 9, 9}, -2, 2), {ElementType::UInt8, 0.02, 7});
    const std::string w = g.node(
        "DequantizeLinear", {g.constant(random.tensor(ElementType::Int8, {64, 64, 3, 3}, -99, 99)),
                             g.constant(f32({}, {0.01}))});
    const std::string y = g.node("Conv", {x, w}, {{"strides", ints({stride, stride})}});
    const GraphCase graph = g.done({y}, {64, 4096});
    Session session(model_of(graph, Form::Fixed),
                    {{"providers", "cpu"}, {"provider.cpu.isa", "baseline"}});
    const std::string explained = session.explain();
    EXPECT_EQ(explained.find("quantized_conv winograd") != std::string::npos, stride == 1)
        << explained;
  }
}

GraphCase product(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t depth = random.pick<std::int64_t>({1, 3, 4, 16, 63, 130});
  const std::int64_t columns = random.pick<std::int64_t>({1, 15, 16, 33, 64, 100});
  const bool gemm = random.one_in(2);
  Dims dims = {random.pick<std::int64_t>({1, 5, 6, 7, 100}), depth};
  if (!gemm && random.one_in(2)) dims.insert(dims.begin(), random.integer(1, 3));
  const std::string x = pair(g, g.feed(dims, -2, 2), bytes(random, 1.0 / 64));
  const bool transposed = gemm && random.one_in(2);
  const std::string w = weights(g, random, transposed ? Dims{columns, depth} : Dims{depth, columns},
                                transposed ? 0 : 1);
  const bool biased = random.one_in(2);
  std::string y;
  if (gemm) {
    std::vector<std::string> inputs = {x, w};
    if (biased) inputs.push_back(bias(g, random, columns));
    y = g.node("Gemm", inputs, {{"transB", std::int64_t{transposed}}});
  } else {
    y = g.node("MatMul", {x, w});
    if (biased) y = g.node("Add", {y, bias(g, random, columns)});
  }
  y = clamp(g, random, y);
  const double step = 1.0 / 16;
  if (random.one_in(4)) return g.done({y}, {64, 4096});
  return g.done({pair(g, y, bytes(random, step))}, within(step));
}
const Sweep kProduct("QuantizedNetwork", "Product", 60, product);

/// Two dense layers that read the same bytes; the second one's result stays float in some.
GraphCase two_products(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t depth = random.size(), columns = random.size();
  const Dims dims = random.one_in(2) ? Dims{random.size(), depth}
                                     : Dims{random.integer(1, 3), random.integer(1, 5), depth};
  const double step = 1.0 / 16;
  const std::string x = pair(g, g.feed(dims, -2, 2), bytes(random, 1.0 / 64));
  const auto layer = [&] {
    std::string y = g.node("MatMul", {x, weights(g, random, {depth, columns}, 1)});
    if (random.one_in(2)) y = g.node("Add", {y, g.constant({columns})});
    return random.one_in(2) ? g.node("Relu", {y}) : y;
  };
  const std::string first = pair(g, layer(), bytes(random, step));
  std::string second = layer();
  if (random.one_in(2)) second = pair(g, second, bytes(random, step));
  return g.done({first, second}, within(2 * step, 64));
}
const Sweep kTwoProducts("QuantizedNetwork", "TwoProducts", 24, two_products);

/// The blocks of an image network: pooling, a residual, what only moves elements, a dense layer.
GraphCase network(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t channels = random.pick<std::int64_t>({4, 16, 20});
  const Dims dims = {random.integer(1, 2), channels, random.integer(4, 9), random.integer(4, 9)};
  const double step = 1.0 / 16;
  const Bytes first = bytes(random, 1.0 / 64);
  std::string x = pair(g, g.feed(dims, -2, 2), first);
  const auto layer = [&](const std::string& from, std::int64_t kernel) {
    const std::string y =
        g.node("Conv", {from, weights(g, random, {channels, channels, kernel, kernel}, 0)},
               {{"pads", ints({kernel / 2, kernel / 2, kernel / 2, kernel / 2})}});
    return pair(g, clamp(g, random, y), bytes(random, step));
  };
  if (random.one_in(2)) {
    const std::string pooled = g.node(
        "MaxPool", {x},
        {{"kernel_shape", ints({3, 3})}, {"strides", ints({2, 2})}, {"pads", ints({1, 1, 1, 1})}});
    x = pair(g, pooled, random.one_in(3) ? bytes(random, 1.0 / 64) : first);
  }
  const std::string inner = layer(x, 1);
  const std::string sum = g.node("Add", {layer(inner, 3), random.one_in(4) ? inner : layer(x, 3)});
  const Bytes summed = bytes(random, step);
  x = pair(g, clamp(g, random, sum), summed);
  if (random.one_in(2)) {
    x = pair(g, g.node("GlobalAveragePool", {x}), bytes(random, step));
    return g.done({x}, within(8 * step));
  }
  x = pair(g, g.node("Transpose", {x}, {{"perm", ints({0, 2, 3, 1})}}), summed);
  x = pair(g, g.node("Reshape", {x, g.constant(i64({0, -1}))}), summed);
  return g.done({x}, within(8 * step));
}
const Sweep kNetwork("QuantizedNetwork", "Blocks", 40, network);

}  // namespace
}  // namespace backplane::ops_test
