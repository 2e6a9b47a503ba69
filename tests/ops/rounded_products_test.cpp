// Products and convolutions of a CPU provider whose `precision` is bf16.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

/// Numbers that bfloat16 holds, so that products are what they are in float.
Tensor held(Random& random, const Dims& dims) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < reference::element_count(dims); ++i)
    values.push_back(static_cast<double>(random.integer(-255, 255)) / 256);
  return f32(dims, values);
}

GraphCase product(Random& random) {
  GraphWriter g(17, random);
  const auto depth = random.pick<std::int64_t>({1, 2, 7, 64, 129, 511, 1300, 2049});
  const auto columns = random.pick<std::int64_t>({1, 15, 16, 33, 64, 129, 200});
  const auto rows = random.pick<std::int64_t>({0, 1, 1, 2, 3, 5, 8, 30, 65, 300});
  const bool gemm = random.one_in(3), turned = gemm && random.one_in(2);
  Tensor weights = held(random, turned ? Dims{columns, depth} : Dims{depth, columns});
  const auto type = random.pick(
      {ElementType::Float, ElementType::Float, ElementType::Float16, ElementType::BFloat16});
  if (type != ElementType::Float) {
    reference::Array numbers = to_array(weights);
    numbers.type = type;
    weights = to_tensor(numbers);
  }
  std::string w = g.constant(weights), y;
  if (type != ElementType::Float) w = g.node("Cast", {w}, {{"to", 1}});
  if (gemm) {
    std::vector<std::string> inputs = {g.feed(held(random, {rows, depth})), w};
    if (random.one_in(2)) inputs.push_back(g.constant({columns}));
    y = g.node("Gemm", inputs,
               {{"transB", turned ? 1 : 0}, {"alpha", random.one_in(4) ? 2.0F : 1.0F}});
  } else {
    const Dims dims = random.one_in(3) ? Dims{2, rows, depth} : Dims{rows, depth};
    y = g.node("MatMul", {g.feed(held(random, dims)), w});
    if (random.one_in(2)) y = g.node("Add", {y, g.constant({columns})});
  }
  if (random.one_in(3)) y = g.node(random.one_in(2) ? "Relu" : "Sigmoid", {y});
  return g.done({y}, {1024, 8192});
}

GraphCase convolution(Random& random) {
  GraphWriter g(17, random);
  const auto axes = random.pick<std::size_t>({1, 2, 2, 2, 3});
  const auto groups = random.pick<std::int64_t>({1, 1, 1, 2, 3});
  const auto channels = random.pick<std::int64_t>({1, 2, 3, 4, 5, 8, 17, 34, 66});
  const auto features = random.pick<std::int64_t>({1, 4, 16, 33});
  Dims image = {random.integer(1, 2), groups * channels}, kernel = {groups * features, channels};
  Dims pads, strides, dilations;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    kernel.push_back(random.pick<std::int64_t>({1, 1, 2, 3, 3, 5}));
    strides.push_back(random.pick<std::int64_t>({1, 1, 2}));
    dilations.push_back(random.pick<std::int64_t>({1, 1, 1, 2}));
    pads.push_back(random.integer(0, kernel.back() / 2));
    image.push_back((kernel.back() - 1) * dilations.back() + random.integer(1, axes == 3 ? 4 : 12));
  }
  pads.insert(pads.end(), pads.begin(), pads.end());
  const std::string x = g.feed(held(random, image));
  std::vector<std::string> inputs = {x, g.constant(held(random, kernel))};
  if (random.one_in(2)) inputs.push_back(g.constant({kernel[0]}));
  std::string y =
      g.node("Conv", inputs,
             {{"group", groups}, {"pads", pads}, {"strides", strides}, {"dilations", dilations}});
  if (random.one_in(3)) y = g.node("Add", {y, y});
  if (random.one_in(3)) y = g.node("Relu", {y});
  return g.done({y}, {256, 4096});
}

GraphCase transposed(Random& random) {
  GraphWriter g(17, random);
  const auto groups = random.pick<std::int64_t>({1, 1, 2});
  const auto channels = random.pick<std::int64_t>({1, 2, 3, 8, 17, 34});
  Dims kernel = {groups * channels, random.pick<std::int64_t>({1, 4, 16, 33})};
  Dims strides, dilations;
  for (int axis = 0; axis < 2; ++axis) {
    kernel.push_back(random.integer(1, 4));
    strides.push_back(random.integer(1, 3));
    dilations.push_back(random.integer(1, 2));
  }
  std::vector<std::string> inputs = {
      g.feed(held(random, {random.integer(1, 2), kernel[0], random.integer(1, 9), 5})),
      g.constant(held(random, kernel))};
  if (random.one_in(2)) inputs.push_back(g.constant({groups * kernel[1]}));
  std::string y = g.node("ConvTranspose", inputs,
                         {{"group", groups}, {"strides", strides}, {"dilations", dilations}});
  if (random.one_in(3)) y = g.node("Relu", {y});
  return g.done({y}, {256, 4096});
}

/// One step, whose states are numbers that are held: those of a step before would be rounded.
GraphCase recurrent(Random& random) {
  GraphWriter g(14, random);
  const auto gates = random.pick<std::int64_t>({1, 3, 4});
  const char* op = gates == 1 ? "RNN" : gates == 3 ? "GRU" : "LSTM";
  const std::int64_t directions = random.integer(1, 2), batch = random.integer(1, 9);
  const auto input = random.pick<std::int64_t>({1, 5, 32, 70});
  const auto hidden = random.pick<std::int64_t>({1, 3, 16, 45});
  std::vector<std::string> inputs = {
      g.feed(held(random, {1, batch, input})),
      g.constant(held(random, {directions, gates * hidden, input})),
      g.constant(held(random, {directions, gates * hidden, hidden})),
      random.one_in(2) ? g.constant({directions, 2 * gates * hidden}) : "",
      "",
      g.feed(held(random, {directions, batch, hidden}))};
  std::vector<reference::Attribute> attributes = {
      {"hidden_size", hidden}, {"direction", directions == 2 ? "bidirectional" : "forward"}};
  // The other form of a GRU multiplies what its gates gave.
  if (gates == 3) attributes.push_back({"linear_before_reset", 1});
  return g.done({g.node(op, inputs, attributes)}, {256, 2048});
}

/// The CPU provider's targets, with this precision.
std::vector<Target> rounding_targets() {
  std::vector<Target> targets;
  for (Target& target : find_targets()) {
    if (target.provider != "cpu") continue;
    target.options.emplace_back("precision", "bf16");
    targets.push_back(target);
  }
  return targets;
}

void run_sweep(GraphCase (*make)(Random&), std::uint64_t cases) {
  for (std::uint64_t seed = 1; seed <= (is_full() ? 10 : 1) * cases; ++seed) {
    Random random(seed);
    const GraphCase graph = make(random);
    const std::vector<reference::Array> expected = expected_of(graph);
    for (const Target& target : rounding_targets()) {
      for (const char* optimization : {"none", "all"}) {
        const Outcome outcome = run_case(graph, expected, target, Form::Fixed, optimization);
        ASSERT_EQ(outcome.kind, Outcome::Kind::Passed)
            << "seed " << seed << " on " << target.name << ", " << optimization << ": "
            << outcome.text << "\n"
            << describe(graph);
      }
    }
  }
}

TEST(RoundedProducts, ProductsOfNumbersThatAreHeldAreExact) { run_sweep(product, 80); }

/// Sizes on both sides of what a tile of 16 rows, 32 of them and 16 pairs hold.
GraphCase product_of_any_size(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t rows = random.integer(5, 70), columns = random.integer(1, 130);
  const std::int64_t depth = random.one_in(5) ? random.integer(900, 1400) : random.integer(1, 130);
  std::string y = g.node(
      "MatMul", {g.feed(held(random, {rows, depth})), g.constant(held(random, {depth, columns}))});
  if (random.one_in(2)) y = g.node("Add", {y, g.constant({columns})});
  if (random.one_in(3)) y = g.node("Add", {y, g.feed(held(random, {rows, columns}))});
  if (random.one_in(3))
    y = g.node("Clip", {y, g.constant(f32({}, {-2})), g.constant(f32({}, {1}))});
  return g.done({y}, {1024, 8192});
}

TEST(RoundedProducts, ProductsOfAnySizeAreExact) { run_sweep(product_of_any_size, 100); }
TEST(RoundedProducts, ConvolutionsOfNumbersThatAreHeldAreExact) { run_sweep(convolution, 120); }

TEST(RoundedProducts, TransposedConvolutionsOfNumbersThatAreHeldAreExact) {
  run_sweep(transposed, 60);
}
TEST(RoundedProducts, RecurrentStepsOfNumbersThatAreHeldAreExact) { run_sweep(recurrent, 40); }

GraphCase matmul(const Tensor& x, const Tensor& w) {
  Random random(3);
  GraphWriter g(17, random);
  return g.done({g.node("MatMul", {g.feed(x), g.constant(w)})});
}

GraphCase conv(const Tensor& x, const Tensor& w) {
  Random random(3);
  GraphWriter g(17, random);
  return g.done({g.node("Conv", {g.feed(x), g.constant(w)}, {{"pads", ints({1, 1, 1, 1})}})});
}

const Options kRounding = {{"providers", "cpu"}, {"precision", "bf16"}};

std::vector<float> run(const GraphCase& graph, const Options& options) {
  Session session(model_of(graph, Form::Fixed), options);
  const std::string bytes = session.run(graph.feeds, graph.outputs)[0].bytes;
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

std::string kernel_of(const GraphCase& graph) {
  const Session session(model_of(graph, Form::Fixed), kRounding);
  return nlohmann::json::parse(session.explain())["nodes"][0]["kernel"];
}

/// Whether both operands are rounded on this machine, or none of a convolution's.
bool rounds_both(const GraphCase& graph) {
  return kernel_of(graph).find("rounded to bfloat16") != std::string::npos;
}

/// To nearest even, by double arithmetic: bfloat16 has 8 bits.
Tensor rounded(const Tensor& tensor) {
  std::vector<double> values;
  for (std::size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
    float number = 0;
    std::memcpy(&number, tensor.bytes.data() + i, sizeof(float));
    int exponent = 0;
    const double part = std::frexp(static_cast<double>(number), &exponent);
    values.push_back(std::ldexp(std::nearbyint(part * 256), exponent - 8));
  }
  return f32(tensor.dims, values);
}

TEST(RoundedProducts, OperandsAreRoundedToNearestEven) {
  Random random(5);
  const auto any = [&](const Dims& dims) { return random.tensor(ElementType::Float, dims, -3, 3); };
  for (const std::int64_t rows : {1, 7, 150}) {
    const Tensor x = any({rows, 301}), w = any({301, 70});
    const GraphCase graph = matmul(x, w);
    if (!rounds_both(graph)) GTEST_SKIP() << "the processor has no products of bfloat16";
    EXPECT_EQ(run(graph, kRounding), run(matmul(rounded(x), rounded(w)), kRounding)) << rows;
  }
  for (const std::int64_t channels : {3, 24}) {
    const Tensor x = any({1, channels, 9, 9}), w = any({20, channels, 2, 3});
    EXPECT_EQ(run(conv(x, w), kRounding), run(conv(rounded(x), rounded(w)), kRounding)) << channels;
  }
}

TEST(RoundedProducts, WeightsAloneAreRoundedWhereProductsOfBFloat16AreNone) {
  Random random(5);
  const Tensor x = random.tensor(ElementType::Float, {3, 40}, -3, 3);
  const Tensor w = random.tensor(ElementType::Float, {40, 70}, -3, 3);
  for (const Target& target : find_targets()) {
    if (target.name != "cpu_avx2") continue;
    Options options = target.options;
    options.emplace_back("providers", "cpu");
    const std::vector<float> floats = run(matmul(x, rounded(w)), options);
    EXPECT_NE(run(matmul(x, w), options), floats);
    options.emplace_back("precision", "bf16");
    EXPECT_EQ(run(matmul(x, w), options), floats);
  }
}

/// What is no number stays where it is: no padding of odd channels or depths meets it.
TEST(RoundedProducts, NanAndInfinityReachNothingElse) {
  Random random(7);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Options plain = {{"providers", "cpu"}, {"disabled_passes", "provider_rewrites"}};
  for (const float odd : {std::nanf(""), kInfinity}) {
    for (const std::int64_t channels : {1, 3, 5, 18}) {
      Tensor x = random.tensor(ElementType::Float, {2, channels, 8, 9}, 0.5, 1);
      const Tensor w = random.tensor(ElementType::Float, {6, channels, 3, 2}, 0.5, 1);
      std::memcpy(x.bytes.data() + x.bytes.size() / 2 - 13 * sizeof(float), &odd, sizeof(float));
      const std::vector<float> got = run(conv(x, w), kRounding);
      const std::vector<float> want = run(conv(x, w), plain);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::isfinite(got[i]), std::isfinite(want[i])) << channels << " at " << i;
    }
  }
}

/// A row that has what is no number: no other one, and no zero behind an odd depth, meets it.
TEST(RoundedProducts, NanAndInfinityOfARowReachNoOther) {
  Random random(7);
  constexpr std::int64_t kRows = 40, kColumns = 20;
  for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t depth : {1, 31, 33, 34, 96}) {
      Tensor x = random.tensor(ElementType::Float, {kRows, depth}, 0.5, 1);
      const Tensor w = random.tensor(ElementType::Float, {depth, kColumns}, 0.5, 1);
      const auto at = static_cast<std::size_t>(17 * depth + depth - 1);
      std::memcpy(x.bytes.data() + at * sizeof(float), &odd, sizeof(float));
      const std::vector<float> got = run(matmul(x, w), kRounding);
      ASSERT_EQ(got.size(), static_cast<std::size_t>(kRows * kColumns));
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::isfinite(got[i]), i / kColumns != 17) << depth << " at " << i;
    }
  }
}

TEST(RoundedProducts, WhatRoundsIsInThePlan) {
  Random random(1);
  const GraphCase product =
      matmul(held(random, {2, 128}), random.tensor(ElementType::Float, {128, 130}, -1, 1));
  const std::string kernel = kernel_of(product);
  if (!rounds_both(product)) {
    EXPECT_TRUE(kernel == "cpu:matmul packed as bfloat16" || kernel == "cpu:matmul packed")
        << kernel;
    return;
  }
  EXPECT_EQ(kernel, "cpu:matmul rounded to bfloat16");
  EXPECT_EQ(kernel_of(conv(held(random, {1, 4, 9, 9}), held(random, {8, 4, 3, 3}))),
            "cpu:conv_last rounded to bfloat16");
}

}  // namespace
}  // namespace backplane::ops_test
