// That the CPU provider's fusions happen, and where they must not: fusion_test.cpp compares results alone,
// which stay right when a pattern is no longer found.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/runner.hpp"
#include "tests/ops/symbolic.hpp"

namespace backplane::ops_test {
namespace {

using Names = std::vector<std::string>;

/// Which kernel runs each node of the model, in the order of the nodes; the same step counts once. A
/// node that is gone without a step has "".
struct Placement {
  Names kernels;
  std::size_t steps = 0;  // with those that the rewrite added
};

nlohmann::json explain(const GraphCase& graph) {
  const Options options = {{"providers", "cpu"}, {"fallback", "forbid"}};
  Session session(model_of(graph, Form::Fixed), options);
  return nlohmann::json::parse(session.explain());
}

Placement place(const GraphCase& graph) {
  const nlohmann::json explained = explain(graph);
  Placement placement;
  placement.steps = explained["order"].size();
  Names steps;
  for (const auto& node : explained["nodes"]) {
    const bool fused = node["fused_into"].is_string();
    const std::string step = fused ? node["fused_into"] : node["name"];
    if (std::find(steps.begin(), steps.end(), step) != steps.end()) continue;
    steps.push_back(step);
    const std::string kernel = node["kernel"].is_string() ? node["kernel"] : "";
    placement.kernels.push_back(kernel.substr(0, kernel.find(' ')));
  }
  return placement;
}

/// A 3x3 convolution of 16 channels that keeps the extents.
std::string conv(GraphWriter& g, const std::string& x) {
  return g.node("Conv", {x, g.constant({16, 16, 3, 3}), g.constant({16})},
                {{"pads", ints({1, 1, 1, 1})}});
}

std::string normalize(GraphWriter& g, const std::string& x) {
  return g.node("BatchNormalization", {x, g.constant({16}, 0.5, 1.5), g.constant({16}),
                                       g.constant({16}), g.constant({16}, 0.5, 2)});
}

const Dims kImage = {1, 16, 6, 6};

TEST(Rewrite, ConvTakesNormalizationResidualAndReluOver) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string x = g.feed(kImage);
  const std::string y = normalize(g, conv(g, x));
  const Placement placement = place(g.done({g.node("Relu", {g.node("Add", {y, x})})}));
  EXPECT_EQ(placement.kernels, Names{"cpu:conv_last"});
}

TEST(Rewrite, ABiasOfOneRowHoweverManyAxesItHasIsAddedByTheProduct) {
  Random random(1);
  for (const auto& [dims, steps] : std::vector<std::pair<Dims, std::size_t>>{
           {{9}, 1}, {{1, 9}, 1}, {{1, 1, 9}, 3}, {{3, 1}, 3}, {{1}, 3}}) {  // three axes add one
    GraphWriter g(17, random);
    const std::string product = g.node("MatMul", {g.feed({3, 7}), g.constant({7, 9})});
    const GraphCase graph = g.done({g.node("Relu", {g.node("Add", {product, g.constant(dims)})})});
    EXPECT_EQ(place(graph).steps, steps) << ::testing::PrintToString(dims);
  }
}

TEST(Rewrite, AnActivationOfFewColumnsIsANodeOfItsOwn) {
  Random random(1);
  for (const auto& [columns, steps] :
       std::vector<std::pair<std::int64_t, std::size_t>>{{1, 2}, {7, 2}, {8, 1}}) {
    for (const char* const op : {"MatMul", "Gemm"}) {
      GraphWriter g(17, random);
      const std::string product = g.node(op, {g.feed({3, 7}), g.constant({7, columns})});
      EXPECT_EQ(place(g.done({g.node("Sigmoid", {product})})).steps, steps) << op << columns;
    }
  }
}

TEST(Rewrite, AnActivationOfFewChannelsIsANodeOfItsOwn) {
  Random random(1);
  for (const auto& [channels, op, kernels] :
       std::vector<std::tuple<std::int64_t, const char*, std::size_t>>{
           {1, "Sigmoid", 2}, {8, "Sigmoid", 1}, {1, "Relu", 1}}) {
    GraphWriter g(17, random);
    const std::string y = g.node("Conv", {g.feed(kImage), g.constant({channels, 16, 1, 1})});
    EXPECT_EQ(place(g.done({g.node(op, {y})})).kernels.size(), kernels) << op << channels;
  }
}

TEST(Rewrite, AnOutputOfTheGraphStays) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string inner = conv(g, g.feed(kImage));
  const Placement placement = place(g.done({inner, g.node("Relu", {inner})}));
  EXPECT_EQ(placement.kernels.size(), 2u);
}

TEST(Rewrite, AConvThatTwoNodesReadIsNotFusedWithOneOfThem) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string inner = conv(g, g.feed(kImage));
  const std::string y = g.node("Mul", {g.node("Sigmoid", {inner}), g.node("Relu", {inner})});
  EXPECT_GE(place(g.done({y})).kernels.size(), 3u);
}

TEST(Rewrite, ANetworkOfImagesIsReorderedAtItsBordersAlone) {
  Random random(1);
  GraphWriter g(17, random);
  std::string x = g.feed(kImage);
  for (int i = 0; i < 3; ++i) x = g.node("Relu", {normalize(g, conv(g, x))});
  x = g.node("MaxPool", {x}, {{"kernel_shape", ints({2, 2})}, {"strides", ints({2, 2})}});
  x = g.node("Concat", {x, g.node("Sigmoid", {x})}, {{"axis", 1}});
  const Placement placement = place(g.done({x}));
  // Three convolutions, the pool, Sigmoid, Concat, and at most one reorder at either end.
  EXPECT_LE(placement.steps, 8u);
}

TEST(Rewrite, AConvOfFewChannelsBetweenPlanesIsOneStep) {
  Random random(1);
  for (const std::int64_t size : {1, 3}) {
    GraphWriter g(17, random);
    const std::int64_t pad = size / 2;
    std::string y = g.node("Conv", {g.feed({1, 3, 6, 40}), g.constant({16, 3, size, size})},
                           {{"pads", ints({pad, pad, pad, pad})}});
    y = g.node("Sigmoid", {g.node("Add", {y, g.feed({1, 16, 6, 40})})});
    EXPECT_EQ(place(g.done({y})).steps, 1u);
    const std::string pooled = g.node("MaxPool", {y}, {{"kernel_shape", ints({2, 2})}});
    // Its other reader wants the channels last.
    EXPECT_GT(place(g.done({y, pooled})).steps, 2u);
  }
}

/// Whether nothing is reordered between the first convolution of the graph and its last one.
bool stays_channels_last(const GraphCase& graph) {
  const std::string order = explain(graph)["order"].dump();
  const std::size_t first = order.find("ToChannelsLast");
  return order.find("ToChannelsFirst") == order.rfind("ToChannelsFirst") &&
         first == order.rfind("ToChannelsLast") && order.find("\"Transpose_") == std::string::npos;
}

TEST(Rewrite, NormalizationBetweenPlainValuesIsOneStep) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string y = g.node("Sigmoid", {normalize(g, g.feed(kImage))});
  const Placement placement = place(g.done({y}));
  EXPECT_EQ(placement.kernels, Names{"cpu:scale_shift"});
  EXPECT_EQ(placement.steps, 1u);
}

TEST(Rewrite, AConvTransposeTakesNormalizationAndActivationOver) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string weights = g.constant({16, 8, 3, 3});
  const std::string y =
      g.node("ConvTranspose", {g.feed(kImage), weights}, {{"strides", ints({2, 2})}, {"group", 2}});
  const Placement placement = place(g.done({g.node("LeakyRelu", {normalize(g, y)})}));
  EXPECT_EQ(placement.kernels, Names{"cpu:conv_transpose_last"});
}

TEST(Rewrite, ANetworkThatNarrowsAndWidensStaysChannelsLast) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string x = conv(g, g.feed(kImage));
  std::string y =
      g.node("MaxPool", {x}, {{"kernel_shape", ints({2, 2})}, {"strides", ints({2, 2})}});
  y = g.node("ConvTranspose", {conv(g, y), g.constant({16, 16, 2, 2})},
             {{"strides", ints({2, 2})}});
  y = g.node("Concat", {x, y}, {{"axis", 1}});
  EXPECT_TRUE(stays_channels_last(g.done({g.node("Conv", {y, g.constant({4, 32, 1, 1})})})));
}

TEST(Rewrite, GatesOfChannelsAndPixelsAreTakenWhereImagesLie) {
  Random random(1);
  GraphWriter g(17, random);
  std::string x = conv(g, g.feed(kImage));
  const std::string mean = g.node("ReduceMean", {x}, {{"axes", ints({2, 3})}});
  const std::string gate = g.node("Conv", {mean, g.constant({16, 16, 1, 1})});
  x = g.node("Mul", {g.node("HardSigmoid", {gate}), x});
  x = g.node("Mul", {x, g.node("Softplus", {g.node("ReduceMax", {x}, {{"axes", ints({1})}})})});
  x = g.node("Mul", {g.constant({6, 6}), g.node("Erf", {x})});
  EXPECT_TRUE(stays_channels_last(g.done({conv(g, x)})));
}

TEST(Rewrite, PartsOfChannelsAndPadsAreTakenWhereImagesLie) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string x = conv(g, g.feed(kImage));
  const std::vector<std::string> parts =
      g.nodes("Split", {x, g.constant(i64({8, 8}))}, 2, {{"axis", 1}});
  const std::string part =
      g.node("Slice", {x, g.constant(i64({0})), g.constant(i64({8})), g.constant(i64({1}))});
  std::string y = g.node("Concat", {parts[1], g.node("Add", {parts[0], part})}, {{"axis", 1}});
  y = g.node("Pad", {y, g.constant(i64({0, 0, 1, 1, 0, 0, 1, 1}))}, {{"mode", "reflect"}});
  EXPECT_TRUE(stays_channels_last(g.done({conv(g, y)})));
}

TEST(Rewrite, AModelsOwnMovesOfTheChannelsAreNoSteps) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string x = conv(g, g.feed(kImage));
  std::string y = g.node("Transpose", {x}, {{"perm", ints({0, 2, 3, 1})}});
  y = g.node("MatMul", {y, g.constant({16, 16})});
  y = g.node("Transpose", {y}, {{"perm", ints({0, 3, 1, 2})}});
  y = g.node("Add", {x, g.node("Mul", {g.constant({16, 1, 1}), y})});
  y = g.node("Transpose", {g.node("Reshape", {y, g.constant(i64({1, 16, 36}))})},
             {{"perm", ints({0, 2, 1})}});
  y = g.node("Transpose", {g.node("Softmax", {y})}, {{"perm", ints({0, 2, 1})}});
  y = g.node("Reshape", {y, g.constant(i64({1, 16, 6, 6}))});
  EXPECT_TRUE(stays_channels_last(g.done({conv(g, y)})));
}

TEST(Rewrite, AGroupNormalizationOfThreeNodesIsOneStepWithItsActivation) {
  Random random(1);
  GraphWriter g(17, random);
  const std::vector<double> ones(4, 1.0), zeros(4, 0.0);
  std::string x = conv(g, g.feed(kImage));
  x = g.node("Reshape", {x, g.constant(i64({1, 4, -1}))});
  x = g.node("InstanceNormalization", {x, g.constant(f32({4}, ones)), g.constant(f32({4}, zeros))});
  x = g.node("Reshape", {x, g.constant(i64({1, 16, 6, 6}))});
  x = g.node("Add", {g.node("Mul", {x, g.constant({16, 1, 1})}), g.constant({16, 1, 1})});
  x = g.node("Mul", {x, g.node("Sigmoid", {x})});
  const Placement placement = place(g.done({conv(g, x)}));
  EXPECT_EQ(placement.kernels,
            (Names{"cpu:conv_last", "cpu:group_normalization_last", "cpu:conv_last"}));
}

TEST(Rewrite, AGateOfItselfIsOneStep) {
  Random random(1);
  for (const bool has_factor : {false, true}) {
    GraphWriter g(17, random);
    const std::string x = g.feed({2, 16});
    const std::string inner = has_factor ? g.node("Mul", {g.constant(f32({}, {1.702})), x}) : x;
    const std::string y = g.node("Mul", {x, g.node("Sigmoid", {inner})});
    EXPECT_EQ(place(g.done({y})).kernels, Names{"cpu:swish_fused"});
  }
}

TEST(Rewrite, AGateThatIsReadApartStaysTwoSteps) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string x = g.feed({2, 16});
  const std::string open = g.node("Sigmoid", {x});
  EXPECT_EQ(place(g.done({g.node("Mul", {x, open}), open})).kernels,
            (Names{"cpu:Sigmoid", "cpu:Mul"}));
}

TEST(Rewrite, ConvTakesSwishOver) {
  Random random(1);
  GraphWriter g(24, random);
  const std::string y = g.node("Swish", {conv(g, g.feed(kImage))});
  EXPECT_EQ(place(g.done({conv(g, y)})).kernels, (Names{"cpu:conv_last", "cpu:conv_last"}));
}

/// x * Clip(x + 3, 0, most) / 6, the sixth by `divides` or a product, taken of the clipped or at last; without x * where
/// `is_gated` is false.
struct HardGate {
  bool is_gated = true, divides = true, is_sixth_last = true;
  double most = 6, shift = 3;
};

std::string hard_gate(GraphWriter& g, const std::string& x, const HardGate& form) {
  const auto sixth = [&](const std::string& of) {
    return g.node(form.divides ? "Div" : "Mul",
                  {of, g.constant(f32({}, {form.divides ? 6 : 1 / 6.0}))});
  };
  const std::string moved = g.node("Add", {g.constant(f32({1}, {form.shift})), x});
  std::string y =
      g.node("Clip", {moved, g.constant(f32({}, {0})), g.constant(f32({}, {form.most}))});
  if (!form.is_sixth_last) y = sixth(y);
  if (form.is_gated) y = g.node("Mul", {x, y});
  return form.is_sixth_last ? sixth(y) : y;
}

TEST(Rewrite, DecomposedHardGatesAreOneStep) {
  for (const HardGate& form :
       {HardGate(), HardGate{true, false, true}, HardGate{true, true, false},
        HardGate{true, false, false}, HardGate{false, true, true}, HardGate{false, false, true}}) {
    Random random(1);
    GraphWriter alone(17, random);
    EXPECT_EQ(place(alone.done({hard_gate(alone, alone.feed({2, 16}), form)})).kernels,
              Names{"cpu:activate"});
    GraphWriter g(17, random);
    const std::string y = hard_gate(g, conv(g, g.feed(kImage)), form);
    EXPECT_EQ(place(g.done({conv(g, y)})).kernels, (Names{"cpu:conv_last", "cpu:conv_last"}));
  }
}

TEST(Rewrite, WhatIsNearlyAHardGateStays) {
  Random random(1);
  for (const HardGate& form : {HardGate{true, true, true, 6.5}, HardGate{true, true, true, 6, 3.5},
                               HardGate{false, true, true, 1}}) {
    GraphWriter g(17, random);
    const std::vector<std::string> kernels =
        place(g.done({hard_gate(g, g.feed({2, 16}), form)})).kernels;
    EXPECT_EQ(std::count(kernels.begin(), kernels.end(), "cpu:Clip"), 1);
  }
  GraphWriter g(17, random);  // with the gate as another output, and of another value
  const std::string x = g.feed({2, 16}), z = g.feed({2, 16});
  const std::string gate = hard_gate(g, x, {false, true, true});
  EXPECT_EQ(place(g.done({g.node("Mul", {z, gate}), gate})).kernels,
            (Names{"cpu:activate", "cpu:Mul"}));
}

TEST(Rewrite, AnActivationTakesArithmeticWithNumbersOver) {
  const auto kernels_of = [](const char* op, const Tensor& number, bool is_first = false) {
    Random random(1);
    GraphWriter g(17, random);
    const std::string x = g.node("HardSwish", {conv(g, g.feed(kImage))}), by = g.constant(number);
    const std::string y = is_first ? g.node(op, {by, x}) : g.node(op, {x, by});
    return place(g.done({conv(g, g.node("Add", {y, g.constant(f32({1}, {0.25}))}))})).kernels;
  };
  const Names all{"cpu:conv_last", "cpu:conv_last"};
  for (const char* op : {"Mul", "Div", "Add", "Sub"})
    EXPECT_EQ(kernels_of(op, f32({1}, {1.5})), all) << op;
  EXPECT_EQ(kernels_of("Mul", f32({1, 1, 1}, {1.5}), true), all);
  const Names apart{"cpu:conv_last", "cpu:Div", "cpu:scale_shift", "cpu:conv_last"};
  EXPECT_EQ(kernels_of("Div", f32({1}, {1.5}), true), apart);
  EXPECT_NE(kernels_of("Div", f32({1}, {0})), all);
  EXPECT_NE(kernels_of("Mul", f32({1}, {std::numeric_limits<double>::infinity()})), all);
  EXPECT_NE(kernels_of("Mul", f32({1, 1, 1, 6}, {1, 2, 3, 4, 5, 6})), all);
}

TEST(Rewrite, GemmTakesReluOver) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string x = g.feed({2, 16});
  const std::string y = g.node("Gemm", {x, g.constant({16, 8}), g.constant({8})});
  EXPECT_EQ(place(g.done({g.node("Relu", {y})})).kernels, Names{"cpu:gemm_fused"});
}

TEST(Rewrite, MatMulTakesBiasAndDecomposedGeluOver) {
  Random random(1);
  GraphWriter g(17, random);
  std::string x = g.node("MatMul", {g.feed({4, 16}), g.constant({16, 8})});
  x = g.node("Add", {x, g.constant({8})});
  const std::string root = g.constant(f32({}, {std::sqrt(2.0)}));
  const std::string erf = g.node("Erf", {g.node("Div", {x, root})});
  const std::string sum = g.node("Add", {erf, g.constant(f32({}, {1}))});
  x = g.node("Mul", {g.node("Mul", {x, sum}), g.constant(f32({}, {0.5}))});
  EXPECT_EQ(place(g.done({x})).kernels, Names{"cpu:matmul_fused"});
}

/// GPT-2's: `factor` is 0.044715 in a Gelu.
std::string gelu_by_tanh(GraphWriter& g, const std::string& x, double factor) {
  const auto number = [&](double value) { return g.constant(f32({}, {value})); };
  const std::string cube = g.node("Mul", {g.node("Pow", {x, number(3)}), number(factor)});
  const std::string inner = g.node("Mul", {g.node("Add", {x, cube}), number(0.7978845608)});
  const std::string sum = g.node("Add", {g.node("Tanh", {inner}), number(1)});
  return g.node("Mul", {g.node("Mul", {x, number(0.5)}), sum});
}

TEST(Rewrite, MatMulTakesBiasAndGeluByTanhOver) {
  Random random(1);
  for (const bool is_one_node : {false, true}) {
    GraphWriter g(20, random);
    std::string x = g.node("MatMul", {g.feed({4, 16}), g.constant({16, 8})});
    x = g.node("Add", {x, g.constant({8})});
    x = is_one_node ? g.node("Gelu", {x}, {{"approximate", std::string("tanh")}})
                    : gelu_by_tanh(g, x, 0.044715);
    EXPECT_EQ(place(g.done({x})).kernels, Names{"cpu:matmul_fused"});
  }
  GraphWriter alone(17, random);
  EXPECT_EQ(place(alone.done({gelu_by_tanh(alone, alone.feed({4, 16}), 0.044715)})).kernels,
            Names{"cpu:activate"});
  GraphWriter other(17, random);
  EXPECT_EQ(place(other.done({gelu_by_tanh(other, other.feed({4, 16}), 0.05)})).kernels.size(), 8u);
}

TEST(Rewrite, DecomposedLayerNormalizationIsOneStep) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string x = g.feed({2, 3, 16});
  const std::string mean = g.node("ReduceMean", {x}, {{"axes", ints({-1})}});
  const std::string centred = g.node("Sub", {x, mean});
  const std::string square = g.node("Pow", {centred, g.constant(f32({}, {2}))});
  const std::string variance = g.node("ReduceMean", {square}, {{"axes", ints({-1})}});
  const std::string epsilon = g.constant(f32({}, {1e-5}));
  const std::string deviation = g.node("Sqrt", {g.node("Add", {variance, epsilon})});
  std::string y = g.node("Div", {centred, deviation});
  y = g.node("Add", {g.node("Mul", {y, g.constant({16})}), g.constant({16})});
  EXPECT_EQ(place(g.done({y})).kernels.size(), 1u);
}

TEST(Rewrite, DecomposedRmsNormalizationIsOneStep) {
  Random random(1);
  GraphWriter g(18, random);
  const std::string x = g.feed({2, 3, 16});
  const std::string square = g.node("Pow", {x, g.constant(f32({}, {2}))});
  const std::string mean = g.node("ReduceMean", {square, g.constant(i64({-1}))});
  const std::string root = g.node("Sqrt", {g.node("Add", {mean, g.constant(f32({}, {1e-5}))})});
  const std::string inverse = g.node("Div", {g.constant(f32({}, {1})), root});
  const std::string y = g.node("Mul", {g.constant({16}), g.node("Mul", {x, inverse})});
  EXPECT_EQ(place(g.done({y})).kernels, Names{"cpu:rms_normalization_fused"});
}

/// The nodes of a normalisation of [2, 3, 16], whose root is a factor 1 / root; `distance` is a difference from a mean, or not.
std::string by_reciprocal(GraphWriter& g, const std::string& distance, const std::string& scale) {
  const std::string square = g.node("Mul", {distance, distance});
  const std::string mean = g.node("ReduceMean", {square, g.constant(i64({2}))});
  const std::string root = g.node("Sqrt", {g.node("Add", {g.constant({1, 1, 1}, 0.1, 1), mean})});
  return g.node("Mul", {g.node("Mul", {g.node("Reciprocal", {root}), distance}), scale});
}

std::string distance_from_mean(GraphWriter& g, const std::string& x) {
  return g.node("Sub", {x, g.node("ReduceMean", {x, g.constant(i64({-1}))})});
}

TEST(Rewrite, DecomposedNormalizationsOfAnyWritingAreOneStep) {
  Random random(1);
  for (const Dims& dims : {Dims{16}, Dims{1, 1, 16}}) {
    for (const bool is_constant : {false, true}) {
      GraphWriter layer(18, random), square(18, random);
      const auto of_dims = [&](GraphWriter& g) {
        return is_constant ? g.constant(dims) : g.feed(dims);
      };
      const std::string distance = distance_from_mean(layer, layer.feed({2, 3, 16}));
      const std::string y = by_reciprocal(layer, distance, of_dims(layer));
      EXPECT_EQ(place(layer.done({layer.node("Add", {of_dims(layer), y})})).kernels,
                Names{"cpu:layer_normalization_fused"});
      const std::string z = by_reciprocal(square, square.feed({2, 3, 16}), of_dims(square));
      EXPECT_EQ(place(square.done({square.node("Add", {z, of_dims(square)})})).kernels,
                Names{"cpu:rms_normalization_fused"});
    }
  }
}

TEST(Rewrite, ADistanceFromTheMeanThatIsReadIsNormalizedByItself) {
  Random random(1);
  GraphWriter g(18, random);
  const std::string distance = distance_from_mean(g, g.feed({2, 3, 16}));
  const Names kernels =
      place(g.done({by_reciprocal(g, distance, g.constant({16})), distance})).kernels;
  EXPECT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels.back(), "cpu:rms_normalization_fused");
}

TEST(Rewrite, RotatedHalvesAreOneStep) {
  Random random(1);
  GraphWriter g(18, random);
  const std::string x = g.feed({1, 2, 5, 16});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return g.node("Slice", {x, g.constant(i64({begin})), g.constant(i64({end})),
                            g.constant(i64({3})), g.constant(i64({1}))});
  };
  const std::string turned =
      g.node("Concat", {g.node("Neg", {part(8, 16)}), part(0, 8)}, {{"axis", -1}});
  const std::string plain = g.node("Mul", {x, g.feed({1, 1, 5, 16})});
  const std::string across = g.node("Mul", {turned, g.feed({1, 1, 5, 16})});
  EXPECT_EQ(place(g.done({g.node("Add", {plain, across})})).kernels, Names{"cpu:rotate"});
  GraphWriter larger(18, random);  // angles of more batches than there are values
  const std::string one = larger.feed({1, 2, 5, 2});
  const auto halves = larger.nodes("Split", {one, larger.constant(i64({1, 1}))}, 2, {{"axis", -1}});
  const std::string other =
      larger.node("Concat", {larger.node("Neg", {halves[1]}), halves[0]}, {{"axis", -1}});
  const std::string sum =
      larger.node("Add", {larger.node("Mul", {one, larger.feed({3, 1, 5, 2})}),
                          larger.node("Mul", {other, larger.feed({3, 1, 5, 2})})});
  EXPECT_GT(place(larger.done({sum})).kernels.size(), 1u);
}

TEST(Rewrite, AttentionScalesAndMasksInItsProductAndSoftmax) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string q = g.feed({1, 2, 4, 8});
  const std::string k = g.feed({1, 2, 8, 4});
  std::string scores = g.node("MatMul", {q, k});
  scores = g.node("Div", {scores, g.constant(f32({}, {2}))});
  scores = g.node("Add", {scores, g.feed({1, 1, 1, 4})});
  scores = g.node("Softmax", {scores}, {{"axis", -1}});
  EXPECT_EQ(place(g.done({scores})).kernels.size(), 2u);
}

/// Attention over cached keys whose heads are shared by two of queries, as exporters write it.
struct WrittenAttention {
  std::string scores, result;
};
WrittenAttention attention(GraphWriter& g) {
  const auto repeated = [&](const std::string& cached) {
    const std::string x = g.node("Concat", {g.feed({1, 2, 4, 8}), cached}, {{"axis", 2}});
    const std::string apart = g.node("Unsqueeze", {x, g.constant(i64({2}))});
    const std::string many = g.node("Expand", {apart, g.constant(i64({1, 2, 2, 5, 8}))});
    return g.node("Reshape", {many, g.constant(i64({1, 4, 5, 8}))});
  };
  const std::string q = g.node("Transpose", {g.feed({1, 1, 4, 8})}, {{"perm", ints({0, 2, 1, 3})}});
  const std::string keys =
      g.node("Transpose", {repeated(g.feed({1, 2, 1, 8}))}, {{"perm", ints({0, 1, 3, 2})}});
  WrittenAttention written;
  written.scores = g.node("Mul", {g.node("MatMul", {q, keys}), g.constant(f32({}, {0.5}))});
  const std::string masked = g.node("Add", {written.scores, g.feed({1, 1, 1, 5})});
  const std::string weights = g.node("Softmax", {masked}, {{"axis", -1}});
  const std::string y = g.node("MatMul", {weights, repeated(g.feed({1, 2, 1, 8}))});
  written.result = g.node("Transpose", {y}, {{"perm", ints({0, 2, 1, 3})}});
  return written;
}

TEST(Rewrite, AttentionIsOneNodeWithItsTranspositionsAndRepeatedHeads) {
  Random random(1);
  GraphWriter g(17, random);
  const WrittenAttention written = attention(g);
  EXPECT_EQ(place(g.done({written.result})).kernels,
            (Names{"cpu:attention_fused", "cpu:concat", "cpu:concat"}));
}

TEST(Rewrite, AttentionWhoseScoresAreReadStaysApart) {
  Random random(1);
  GraphWriter g(17, random);
  const WrittenAttention written = attention(g);
  for (const std::string& kernel : place(g.done({written.result, written.scores})).kernels)
    EXPECT_NE(kernel, "cpu:attention_fused");
}

TEST(Rewrite, AQuantizingPairAfterAConvIsItsActivation) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string y = conv(g, g.feed(kImage));
  const std::string scale = g.constant(f32({}, {0.0625}));
  const std::string zero = g.constant(u8({}, {100}));
  const std::string quantized = g.node("QuantizeLinear", {y, scale, zero});
  const GraphCase graph = g.done({g.node("DequantizeLinear", {quantized, scale, zero})});
  EXPECT_EQ(place(graph).kernels, Names{"cpu:conv_last"});
}

/// A value as bytes, and as floats again.
std::string bytes(GraphWriter& g, const std::string& x, double scale) {
  const std::string s = g.constant(f32({}, {scale}));
  const std::string z = g.constant(u8({}, {100}));
  return g.node("DequantizeLinear", {g.node("QuantizeLinear", {x, s, z}), s, z});
}

std::string byte_weights(GraphWriter& g, Random& random, const Dims& dims) {
  return g.node("DequantizeLinear", {g.constant(random.tensor(ElementType::Int8, dims, -127, 127)),
                                     g.constant(f32({}, {0.0078125})), g.constant(i8({}, {0}))});
}

TEST(Rewrite, NodesBetweenBytesComputeWithBytes) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string x = bytes(g, g.feed(kImage), 0.015625);
  const std::string w = byte_weights(g, random, {16, 16, 3, 3});
  const auto layer = [&](const std::string& from) {
    return bytes(g, g.node("Relu", {g.node("Conv", {from, w}, {{"pads", ints({1, 1, 1, 1})}})}),
                 0.0625);
  };
  std::string y = bytes(g, g.node("Add", {layer(x), layer(layer(x))}), 0.0625);
  y = bytes(g, g.node("MaxPool", {y}, {{"kernel_shape", ints({2, 2})}}), 0.0625);
  y = bytes(g, g.node("Flatten", {y}), 0.0625);
  y = bytes(g, g.node("MatMul", {y, byte_weights(g, random, {400, 8})}), 0.0625);
  Names kernels = place(g.done({y})).kernels;
  std::sort(kernels.begin(), kernels.end());
  // The two layers that read x are one.
  const Names expected = {"cpu:DequantizeLinear", "cpu:QuantizeLinear",    "cpu:flatten",
                          "cpu:quantized_add",    "cpu:quantized_conv",    "cpu:quantized_conv",
                          "cpu:quantized_matmul", "cpu:quantized_max_pool"};
  EXPECT_EQ(kernels, expected);
}

TEST(Rewrite, WeightsAroundAnotherNumberStayFloats) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string w = g.node(
      "DequantizeLinear", {g.constant(random.tensor(ElementType::UInt8, {16, 16, 1, 1}, 0, 255)),
                           g.constant(f32({}, {0.0078125})), g.constant(u8({}, {131}))});
  const std::string y = g.node("Conv", {bytes(g, g.feed(kImage), 0.015625), w});
  for (const std::string& kernel : place(g.done({bytes(g, y, 0.0625)})).kernels)
    EXPECT_NE(kernel, "cpu:quantized_conv");
}

TEST(Rewrite, QLinearConvIsTheSameConvolutionOfBytes) {
  Random random(1);
  for (const double zero : {0, 3}) {
    GraphWriter g(13, random);
    const std::string scale = g.constant(f32({}, {0.015625})), origin = g.constant(u8({}, {100}));
    const std::string x = g.node("QuantizeLinear", {g.feed(kImage), scale, origin});
    const std::string w = g.constant(random.tensor(ElementType::Int8, {16, 16, 3, 3}, -127, 127));
    const std::string bias = g.constant(random.tensor(ElementType::Int32, {16}, -9999, 9999));
    const std::string y = g.node(
        "QLinearConv", {x, scale, origin, w, g.constant(f32({}, {0.0078125})),
                        g.constant(i8({}, {zero})), g.constant(f32({}, {0.0625})), origin, bias});
    const Names kernels = place(g.done({y})).kernels;
    const bool is_fast =
        std::find(kernels.begin(), kernels.end(), "cpu:quantized_conv") != kernels.end();
    EXPECT_EQ(is_fast, zero == 0);
  }
}

TEST(Rewrite, QLinearMatMulIsTheSameProductOfBytes) {
  Random random(1);
  for (const double zero : {0, 3}) {
    GraphWriter g(13, random);
    const std::string scale = g.constant(f32({}, {0.015625})), origin = g.constant(u8({}, {100}));
    const std::string x = g.node("QuantizeLinear", {g.feed({5, 16}), scale, origin});
    const std::string w = g.constant(random.tensor(ElementType::Int8, {16, 8}, -127, 127));
    const std::string y =
        g.node("QLinearMatMul",
               {x, scale, origin, w, g.constant(random.tensor(ElementType::Float, {8}, 0.01, 0.02)),
                g.constant(random.tensor(ElementType::Int8, {8}, zero, zero)),
                g.constant(f32({}, {0.0625})), origin});
    const Names kernels = place(g.done({y})).kernels;
    const bool is_fast =
        std::find(kernels.begin(), kernels.end(), "cpu:quantized_matmul") != kernels.end();
    EXPECT_EQ(is_fast, zero == 0);
  }
}

TEST(Rewrite, AProductWhoseSumsMayNotFitStaysFloat) {
  Random random(1);
  for (const std::int64_t depth : {65000, 66000}) {
    GraphWriter g(13, random);
    const std::string x = bytes(g, g.feed({1, depth}), 0.015625);
    const std::string y = g.node("MatMul", {x, byte_weights(g, random, {depth, 1})});
    const Names kernels = place(g.done({y})).kernels;
    const bool summed_as_bytes =
        std::find(kernels.begin(), kernels.end(), "cpu:quantized_matmul") != kernels.end();
    EXPECT_EQ(summed_as_bytes, depth == 65000) << depth;
  }
}

TEST(Rewrite, AChannelShuffleIsOneStep) {
  Random random(1);
  GraphWriter g(17, random);
  std::string x = conv(g, g.feed(kImage));
  x = g.node("Reshape", {x, g.constant(i64({1, 4, 4, 6, 6}))});
  x = g.node("Transpose", {x}, {{"perm", ints({0, 2, 1, 3, 4})}});
  x = g.node("Reshape", {x, g.constant(i64({1, 16, 6, 6}))});
  const Placement placement = place(g.done({conv(g, x)}));
  EXPECT_EQ(placement.kernels.size(), 3u);
}

/// A dynamically quantized layer; its values on the way are left in `inner`.
std::string dynamic_layer(GraphWriter& g, Random& random, const Names& bytes, Names& inner) {
  const std::string b = g.constant(random.tensor(ElementType::Int8, {16, 24}, -127, 127));
  const std::string zero = g.constant(tensor(ElementType::Int8, {}, {0}));
  inner = {g.node("MatMulInteger", {bytes[0], b, bytes[2], zero})};
  inner.push_back(g.node("Cast", {inner[0]}, {{"to", std::int64_t{1}}}));
  inner.push_back(g.node("Mul", {bytes[1], g.constant({1}, 0.01, 0.02)}));
  inner.push_back(g.node("Mul", {inner[1], inner[2]}));
  inner.push_back(g.node("Add", {inner[3], g.constant({24})}));
  return inner.back();
}

TEST(Rewrite, ADynamicallyQuantizedLayerIsOneStepAfterItsBytes) {
  Random random(1);
  GraphWriter g(17, random);
  const Names bytes = g.nodes("DynamicQuantizeLinear", {g.feed({5, 16})}, 3);
  Names inner;
  const std::string one = g.node("Add", {dynamic_layer(g, random, bytes, inner), g.feed({5, 24})});
  const std::string other = g.node("Relu", {dynamic_layer(g, random, bytes, inner)});
  const Placement placement = place(g.done({one, other}));
  EXPECT_EQ(placement.kernels,
            (Names{"cpu:DynamicQuantizeLinear", "cpu:dynamic_matmul", "cpu:dynamic_matmul"}));
}

TEST(Rewrite, ImagesOfUnknownExtentsStayChannelsLastWhereTheyAreAdded) {
  // The windows' extents have no symbols: nothing proves that both operands have the same.
  Random random(1);
  GraphWriter g(17, random);
  const auto half = [&](const std::string& x) {
    return g.node("Conv", {x, g.constant({16, 16, 3, 3})},
                  {{"pads", ints({1, 1, 1, 1})}, {"strides", ints({2, 2})}});
  };
  const std::string x = g.feed(kImage);
  const GraphCase graph =
      g.done({g.node("Mul", {g.node("Relu", {half(x)}), g.node("Sin", {half(x)})})});
  const SymbolicCase symbolic =
      symbolic_case(graph, {{"1", "16", "6", "w"}}, {{{"w", 6}}, {{"w", 1}}, {{"w", 9}}}, random);
  std::string explanation;
  const Options options = {{"providers", "cpu"}, {"fallback", "forbid"}};
  const Outcome outcome = run_symbolic(symbolic, options, &explanation);
  EXPECT_EQ(outcome.kind, Outcome::Kind::Passed) << outcome.text;
  // The image and the result change their form, no value in between.
  EXPECT_EQ(step_count(explanation), 6u) << explanation;
}

/// As quantizers write a Conv: a bias of floats after the scale, or of integers before it.
std::string dynamic_conv(GraphWriter& g, Random& random, const Names& bytes, bool floats) {
  const std::string w = g.constant(random.tensor(ElementType::UInt8, {8, 8, 3, 3}, 0, 255));
  const std::string zero = g.constant(random.tensor(ElementType::UInt8, {}, 100, 140));
  std::string y =
      g.node("ConvInteger", {bytes[0], w, bytes[2], zero}, {{"pads", ints({1, 1, 1, 1})}});
  if (!floats)
    y = g.node("Add", {y, g.constant(random.tensor(ElementType::Int32, {1, 8, 1, 1}, -99, 99))});
  y = g.node("Cast", {y}, {{"to", std::int64_t{1}}});
  y = g.node("Mul", {y, g.node("Mul", {bytes[1], g.constant({}, 0.01, 0.02)})});
  return floats ? g.node("Add", {y, g.constant({1, 8, 1, 1})}) : y;
}

TEST(Rewrite, DynamicallyQuantizedConvolutionsAreOneStepEachOnImagesThatStayChannelsLast) {
  for (const bool floats : {false, true}) {
    Random random(1);
    GraphWriter g(17, random);
    const std::string x = g.feed({1, 8, 6, 6});
    const std::string first =
        g.node("Relu", {dynamic_conv(g, random, g.nodes("DynamicQuantizeLinear", {x}, 3), floats)});
    const std::string second =
        dynamic_conv(g, random, g.nodes("DynamicQuantizeLinear", {first}, 3), floats);
    const Placement placement = place(g.done({g.node("Add", {second, first})}));
    EXPECT_EQ(placement.kernels, (Names{"cpu:DynamicQuantizeLinear", "cpu:dynamic_conv",
                                        "cpu:DynamicQuantizeLinear", "cpu:dynamic_conv"}));
  }
}

TEST(Rewrite, SumsThatAreAnOutputStay) {
  // The sums, their floats, the product of the scales: the last one can be an input of the fused node.
  const std::vector<std::size_t> steps = {6, 6, 3};
  for (std::size_t kept = 0; kept < steps.size(); ++kept) {
    Random random(1);
    GraphWriter g(17, random);
    Names inner;
    const std::string y =
        dynamic_layer(g, random, g.nodes("DynamicQuantizeLinear", {g.feed({5, 16})}, 3), inner);
    EXPECT_EQ(place(g.done({y, inner[kept]})).steps, steps[kept]) << kept;
  }
}

}  // namespace
}  // namespace backplane::ops_test
