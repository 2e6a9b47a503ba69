// Random networks of images: convolutions with what stands between them in networks for vision. Providers may keep
// images channels last from node to node, and must give what the plain form gives.
#include <functional>
#include <string>
#include <vector>

#include "tests/ops/graph_writer.hpp"

namespace backplane::ops_test {
namespace {

/// The image that the next step works on, and what came before it.
struct Network {
  GraphWriter& g;
  Random& random;
  std::int64_t opset;
  std::string x;
  Dims dims;  // [batch, channels, height, width]
  std::vector<std::pair<std::string, Dims>> earlier;
  std::vector<std::string> outputs;

  std::int64_t batch() const { return dims[0]; }
  std::int64_t channels() const { return dims[1]; }
  std::int64_t pixels() const { return dims[2] * dims[3]; }

  void then(std::string value) {
    earlier.emplace_back(x, dims);
    x = std::move(value);
  }
  void then(std::string value, Dims new_dims) {
    then(std::move(value));
    dims = std::move(new_dims);
  }
  /// Axes as an attribute or, from opset 18 on, as an input.
  std::string reduce(const char* op, const std::string& value,
                     const std::vector<std::int64_t>& axes, bool keeps) {
    std::vector<reference::Attribute> attributes = {{"keepdims", keeps ? 1 : 0}};
    std::vector<std::string> inputs = {value};
    if (opset >= 18 || std::string(op) == "ReduceSum") {
      inputs.push_back(g.constant(i64(axes)));
    } else {
      attributes.push_back({"axes", ints(axes)});
    }
    return g.node(op, inputs, attributes);
  }
};

std::string conv(Network& n, const std::string& x, std::int64_t features, std::int64_t channels,
                 std::int64_t kernel, std::int64_t groups = 1, std::int64_t dilation = 1) {
  GraphWriter& g = n.g;
  const std::int64_t pad = kernel / 2 * dilation;
  return g.node("Conv",
                {x, g.constant({features, channels / groups, kernel, kernel}, -0.3, 0.3),
                 g.constant({features})},
                {{"pads", ints({pad, pad, pad, pad})},
                 {"group", groups},
                 {"dilations", ints({dilation, dilation})}});
}

void convolution(Network& n) {
  const auto features = n.random.pick<std::int64_t>({8, 12, 17});
  const auto kernel = n.random.pick<std::int64_t>({1, 3});
  // Some dilations leave most of the kernel outside of the image.
  const auto dilation = kernel == 3 ? n.random.pick<std::int64_t>({1, 1, 4, 9}) : 1;
  const Dims dims = {n.batch(), features, n.dims[2], n.dims[3]};
  n.then(conv(n, n.x, features, n.channels(), kernel, 1, dilation), dims);
}

/// One, two or three outputs of each channel.
void depthwise(Network& n) {
  const std::int64_t features = n.channels() * n.random.integer(1, 3);
  const Dims dims = {n.batch(), features, n.dims[2], n.dims[3]};
  const std::string y = conv(n, n.x, features, n.channels(), 3, n.channels());
  n.then(n.random.one_in(2) ? n.g.node("Relu", {y}) : y, dims);
}

/// Squeeze and excitation: a factor of each channel.
void gate(Network& n) {
  std::string y = n.random.one_in(2) ? n.g.node("GlobalAveragePool", {n.x})
                                     : n.reduce("ReduceMean", n.x, {2, 3}, true);
  y = n.g.node("Sigmoid", {conv(n, y, n.channels(), n.channels(), 1)});
  n.then(n.random.one_in(2) ? n.g.node("Mul", {n.x, y}) : n.g.node("Mul", {y, n.x}));
}

/// A factor of each pixel.
void spatial_gate(Network& n) {
  const std::string y =
      n.random.one_in(2) ? n.reduce("ReduceMax", n.x, {1}, true) : conv(n, n.x, 1, n.channels(), 3);
  n.then(n.g.node("Mul", {n.g.node("Sigmoid", {y}), n.x}));
}

void constant_operand(Network& n) {
  const std::int64_t c = n.channels(), h = n.dims[2], w = n.dims[3];
  const Dims dims = n.random.pick<Dims>({{},
                                         {1},
                                         {c, 1, 1},
                                         {1, c, 1, 1},
                                         {h, w},
                                         {1, 1, h, w},
                                         {w},
                                         {n.batch(), 1, 1, 1},
                                         {c, h, 1},
                                         {1, c, h, w},
                                         {1, 1, 1, 1}});
  const char* op = n.random.pick<const char*>({"Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"});
  const std::string operand = n.g.constant(dims, 0.5, 1.5);
  const bool first = n.random.one_in(2) || std::string(op) == "PRelu" || std::string(op) == "Div";
  n.then(first ? n.g.node(op, {n.x, operand}) : n.g.node(op, {operand, n.x}));
}

void element_wise(Network& n) {
  n.then(n.g.node(n.random.pick<const char*>({"Neg", "Abs", "Softplus", "Elu", "Tanh", "Erf",
                                              "Softsign", "HardSwish", "LeakyRelu", "Sigmoid"}),
                  {n.x}));
}

void slice(Network& n) {
  const std::int64_t axis = n.random.integer(1, 3);
  const auto index = static_cast<std::size_t>(axis);
  if (n.dims[index] < 4) return;
  const std::int64_t step = n.random.integer(1, 2);
  Dims dims = n.dims;
  dims[index] = (n.dims[index] - 1 + step - 1) / step;
  const std::int64_t named = n.random.one_in(2) ? axis : axis - 4;
  n.then(n.g.node("Slice", {n.x, n.g.constant(i64({1}, {1})), n.g.constant(i64({1}, {1000})),
                            n.g.constant(i64({named})), n.g.constant(i64({step}))}),
         dims);
}

/// Half of the channels goes its own way.
void split(Network& n) {
  const std::int64_t half = n.channels() / 2;
  if (half < 1) return;
  const std::vector<std::string> parts =
      n.g.nodes("Split", {n.x, n.g.constant(i64({half, n.channels() - half}))}, 2,
                {{"axis", n.random.one_in(2) ? 1 : -3}});
  const std::string own = n.g.node("Relu", {conv(n, parts[0], half, half, 3)});
  const std::vector<std::string> joined = n.random.one_in(2)
                                              ? std::vector<std::string>{own, parts[1]}
                                              : std::vector<std::string>{parts[1], own, parts[0]};
  Dims dims = n.dims;
  if (joined.size() == 3) dims[1] += half;
  n.then(n.g.node("Concat", joined, {{"axis", 1}}), dims);
}

void pad(Network& n) {
  const char* mode = n.random.pick<const char*>({"constant", "reflect", "edge"});
  const bool some = n.opset >= 18 && n.random.one_in(2);
  const std::vector<std::int64_t> pads = some ? std::vector<std::int64_t>{1, 0, 2, 1}
                                              : std::vector<std::int64_t>{0, 0, 1, 0, 0, 0, 2, 1};
  std::vector<std::string> inputs = {n.x, n.g.constant(i64(pads))};
  if (some) inputs.insert(inputs.end(), {"", n.g.constant(i64({2, -1}))});
  if (n.dims[2] < 3 || n.dims[3] < 3) return;
  n.then(n.g.node("Pad", inputs, {{"mode", mode}}),
         {n.batch(), n.channels(), n.dims[2] + 3, n.dims[3] + 1});
}

/// A product over the channels, with the model's own Transposes around it.
void channels_last_product(Network& n) {
  std::string y = n.g.node("Transpose", {n.x}, {{"perm", ints({0, 2, 3, 1})}});
  if (n.random.one_in(2))
    y = n.g.node("MatMul", {y, n.g.constant({n.channels(), n.channels()}, -0.3, 0.3)});
  if (n.random.one_in(3)) n.outputs.push_back(y);
  y = n.g.node("Transpose", {y}, {{"perm", ints({0, 3, 1, 2})}});
  if (n.random.one_in(2)) y = n.g.node("Mul", {n.g.constant({n.channels(), 1, 1}), y});
  n.then(n.random.one_in(2) ? n.g.node("Add", {n.x, y}) : y);
}

/// Pixels as the tokens of a Transformer, and back.
void tokens(Network& n) {
  const Dims dims = n.dims;
  std::string y =
      n.g.node("Reshape", {n.x, n.g.constant(i64({n.batch(), n.channels(), n.pixels()}))});
  y = n.g.node("Transpose", {y}, {{"perm", ints({0, 2, 1})}});
  y = n.g.node("Mul", {y, n.g.constant({n.channels()})});
  if (n.random.one_in(3)) n.outputs.push_back(y);
  y = n.g.node("Transpose", {y}, {{"perm", ints({0, 2, 1})}});
  y = n.g.node("Reshape", {y, n.g.constant(i64(dims))});
  n.then(conv(n, y, n.channels(), n.channels(), 1));
}

void group_normalization(Network& n) {
  const std::int64_t c = n.channels();
  const std::int64_t groups = n.random.pick<std::int64_t>({1, c, c % 4 == 0 ? 4 : 1});
  GraphWriter& g = n.g;
  std::string y;
  if (n.opset >= 21 && n.random.one_in(2)) {
    y = g.node("GroupNormalization", {n.x, g.constant({c}), g.constant({c})},
               {{"num_groups", groups}});
  } else if (n.random.one_in(3)) {
    y = g.node("InstanceNormalization", {n.x, g.constant({c}), g.constant({c})});
  } else {
    y = g.node("Reshape", {n.x, g.constant(i64({n.batch(), groups, -1}))});
    const Tensor ones = tensor(ElementType::Float, {groups},
                               std::vector<double>(static_cast<std::size_t>(groups), 1.0));
    const Tensor zeros = tensor(ElementType::Float, {groups},
                                std::vector<double>(static_cast<std::size_t>(groups), 0.0));
    y = g.node("InstanceNormalization",
               {y, n.random.one_in(4) ? g.constant({groups}) : g.constant(ones), g.constant(zeros)},
               {{"epsilon", 0.01f}});
    y = g.node("Reshape", {y, g.constant(i64(n.dims))});
    if (!n.random.one_in(4)) y = g.node("Mul", {y, g.constant({c, 1, 1})});
    if (!n.random.one_in(4)) y = g.node("Add", {y, g.constant({c, 1, 1})});
  }
  n.then(n.random.one_in(2) ? g.node("Mul", {y, g.node("Sigmoid", {y})}) : y);
}

void pool(Network& n) {
  const char* op = n.random.one_in(2) ? "MaxPool" : "AveragePool";
  n.then(n.g.node(op, {n.x}, {{"kernel_shape", ints({3, 3})}, {"pads", ints({1, 1, 1, 1})}}));
}

/// Pixels between the pixels, by windows that meet, overlap or leave gaps.
void enlarge(Network& n) {
  Dims dims = n.dims;
  std::vector<std::int64_t> kernel, strides, begin, end, extra, dilations;
  for (std::size_t axis = 2; axis < 4; ++axis) {
    kernel.push_back(n.random.integer(1, 4));
    strides.push_back(n.random.integer(1, 3));
    dilations.push_back(n.random.pick<std::int64_t>({1, 1, 2}));
    begin.push_back(n.random.integer(0, (kernel.back() - 1) / 2));
    end.push_back(n.random.integer(0, (kernel.back() - 1) / 2));
    extra.push_back(n.random.integer(0, strides.back() - 1));
    dims[axis] = (n.dims[axis] - 1) * strides.back() + (kernel.back() - 1) * dilations.back() + 1 +
                 extra.back() - begin.back() - end.back();
  }
  if (n.pixels() > 400) return;
  const std::int64_t groups = n.channels() % 2 == 0 ? n.random.integer(1, 2) : 1;
  const auto features = n.random.pick<std::int64_t>({1, 8, 17});
  dims[1] = features * groups;
  std::vector<std::string> inputs = {
      n.x, n.g.constant({n.channels(), features, kernel[0], kernel[1]}, -0.3, 0.3)};
  if (n.random.one_in(2)) inputs.push_back(n.g.constant({dims[1]}));
  begin.insert(begin.end(), end.begin(), end.end());
  std::string y = n.g.node("ConvTranspose", inputs,
                           {{"strides", strides},
                            {"dilations", dilations},
                            {"pads", begin},
                            {"output_padding", extra},
                            {"group", groups}});
  if (n.random.one_in(2)) {
    y = n.g.node("BatchNormalization", {y, n.g.constant({dims[1]}), n.g.constant({dims[1]}),
                                        n.g.constant({dims[1]}), n.g.constant({dims[1]}, 0.5, 2)});
  }
  if (n.random.one_in(2)) y = n.g.node(n.random.one_in(2) ? "Relu" : "Sigmoid", {y});
  n.then(y, dims);
}

/// A step of a U-Net: half of the pixels, their double, and what was there before beside it.
void down_and_up(Network& n) {
  const std::int64_t c = n.channels(), h = n.dims[2], w = n.dims[3];
  if (h < 2 || w < 2) return;
  std::string y =
      n.g.node("MaxPool", {n.x}, {{"kernel_shape", ints({2, 2})}, {"strides", ints({2, 2})}});
  y = n.g.node("Relu", {conv(n, y, 2 * c, c, 3)});
  y = n.g.node("ConvTranspose", {y, n.g.constant({2 * c, c, 2, 2}, -0.3, 0.3), n.g.constant({c})},
               {{"strides", ints({2, 2})}, {"output_padding", ints({h % 2, w % 2})}});
  const bool first = n.random.one_in(2);
  y = n.g.node("Concat", {first ? n.x : y, first ? y : n.x}, {{"axis", 1}});
  n.then(y, {n.batch(), 2 * c, h, w});
}

void residual(Network& n) {
  for (const auto& [value, dims] : n.earlier) {
    if (dims != n.dims) continue;
    n.then(n.g.node("Add", {n.x, value}));
    return;
  }
}

/// What leaves the image form: some axes are gone.
void reduction(Network& n) {
  const char* op = n.random.pick<const char*>({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"});
  const auto axes = n.random.pick<std::vector<std::int64_t>>(
      {{1}, {2, 3}, {-1}, {-2}, {1, 2}, {0, 1}, {0}, {0, 2, 3}, {1, 2, 3}});
  n.outputs.push_back(n.reduce(op, n.x, axes, n.random.one_in(3)));
}

void transpose(Network& n) {
  const auto perm =
      n.random.pick<std::vector<std::int64_t>>({{0, 1, 3, 2}, {0, 2, 1, 3}, {1, 0, 2, 3}});
  Dims dims;
  for (const std::int64_t axis : perm) dims.push_back(n.dims[static_cast<std::size_t>(axis)]);
  n.then(n.g.node("Transpose", {n.x}, {{"perm", ints(perm)}}), dims);
}

GraphCase image_network(Random& random) {
  const auto opset = random.pick<std::int64_t>({14, 17, 18, 21});
  GraphWriter g(opset, random);
  const auto channels = random.pick<std::int64_t>({3, 8, 16});
  const Dims dims = {random.integer(1, 2), channels, random.integer(4, 11), random.integer(4, 11)};
  Network n{g, random, opset, g.feed(dims), dims, {}, {}};
  convolution(n);
  const std::vector<std::function<void(Network&)>> steps = {convolution,
                                                            depthwise,
                                                            gate,
                                                            spatial_gate,
                                                            constant_operand,
                                                            element_wise,
                                                            slice,
                                                            split,
                                                            pad,
                                                            channels_last_product,
                                                            tokens,
                                                            group_normalization,
                                                            pool,
                                                            enlarge,
                                                            down_and_up,
                                                            residual,
                                                            reduction,
                                                            transpose,
                                                            constant_operand,
                                                            convolution};
  for (std::int64_t i = random.integer(3, 7); i > 0; --i) {
    steps[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(steps.size()) - 1))](
        n);
    if (random.one_in(8)) n.outputs.push_back(n.x);
  }
  if (random.one_in(2)) n.then(g.node("Relu", {n.x}));
  n.outputs.push_back(n.x);
  return g.done(n.outputs, {1024, 8192});
}
const Sweep kImageNetwork("ImageNetwork", "Random", 180, image_network);

}  // namespace
}  // namespace backplane::ops_test
