// Constant weights that 16 bits hold exactly: products keep them so, and compute what they would with floats.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

/// Numbers k / 512, of which bfloat16 holds those of 8 bits and float16 those of 11, and 1 / 3, which neither does.
enum class Held { BFloat16, Float16, Float };

Tensor weights(Random& random, const Dims& dims, Held held) {
  const std::int64_t most = held == Held::BFloat16 ? 255 : 2047;
  std::vector<double> values;
  for (std::int64_t i = 0; i < reference::element_count(dims); ++i)
    values.push_back(static_cast<double>(random.integer(-most, most)) / 512);
  values[0] = 2047.0 / 512;
  if (held == Held::BFloat16) values[0] = 255.0 / 512;
  if (held == Held::Float) values.back() = 1.0 / 3;
  return f32(dims, values);
}

/// Products of few rows and of many, with what they take over.
GraphCase product(Random& random) {
  GraphWriter g(17, random);
  const Held held = random.pick({Held::BFloat16, Held::Float16, Held::Float});
  const auto depth = random.pick<std::int64_t>({1, 130, 300, 1300});
  const auto columns = depth == 1 ? 20000 : random.pick<std::int64_t>({64, 129, 200, 515});
  const auto rows = random.pick<std::int64_t>({0, 1, 1, 2, 3, 5, 8, 30, 65});
  const bool gemm = random.one_in(3), turned = gemm && random.one_in(2);
  const std::string w =
      g.constant(weights(random, turned ? Dims{columns, depth} : Dims{depth, columns}, held));
  std::string y;
  if (gemm) {
    std::vector<std::string> inputs = {g.feed({rows, depth}), w};
    if (random.one_in(2)) inputs.push_back(g.constant({columns}));
    y = g.node("Gemm", inputs,
               {{"transB", turned ? 1 : 0}, {"alpha", random.one_in(4) ? 2.0f : 1}});
  } else {
    const Dims dims = random.one_in(3) ? Dims{2, rows, depth} : Dims{rows, depth};
    y = g.node("MatMul", {g.feed(dims), w});
    if (random.one_in(2)) y = g.node("Add", {y, g.constant({columns})});
  }
  if (random.one_in(3)) y = g.node(random.one_in(2) ? "Relu" : "Sigmoid", {y});
  return g.done({y}, {1024, 8192});
}
const Sweep kProduct("HalfWeights", "Product", 60, product);

GraphCase one_product(const Tensor& w, std::int64_t rows) {
  Random random(3);
  GraphWriter g(17, random);
  return g.done({g.node("MatMul", {g.feed({rows, w.dims[0]}), g.constant(w)})});
}

const Options kPlain = {{"providers", "cpu"}, {"disabled_passes", "provider_rewrites"}};

std::string kernel_of(const GraphCase& graph) {
  const Session session(model_of(graph, Form::Fixed), {{"providers", "cpu"}});
  const auto explained = nlohmann::json::parse(session.explain());
  return explained["nodes"][0]["kernel"];
}

bool has_vectors() {
  const std::vector<Target> targets = find_targets();
  return std::any_of(targets.begin(), targets.end(),
                     [](const Target& target) { return target.name == "cpu_avx2"; });
}

TEST(HalfWeights, WhatHoldsThemIsInThePlan) {
  if (!has_vectors()) GTEST_SKIP() << "without vectors weights stay floats";
  Random random(1);
  const auto kernel = [&](const Dims& dims, Held held) {
    return kernel_of(one_product(weights(random, dims, held), 2));
  };
  EXPECT_EQ(kernel({128, 130}, Held::BFloat16), "cpu:matmul_fused packed as bfloat16");
  EXPECT_EQ(kernel({128, 130}, Held::Float16), "cpu:matmul_fused packed as float16");
  EXPECT_EQ(kernel({128, 130}, Held::Float), "cpu:matmul packed");
  EXPECT_EQ(kernel({128, 120}, Held::BFloat16), "cpu:matmul packed");  // small: a cache holds it
}

/// Two layers in a type of 16 bits.
GraphCase half_layers(Random& random, ElementType type) {
  GraphWriter g(17, random);
  const auto some = [&](const Dims& dims) { return random.tensor(type, dims, -1, 1); };
  const std::string x = g.feed(some({random.integer(1, 3), 24}));
  const std::string inner =
      g.node("Add", {g.node("MatMul", {x, g.constant(some({24, 40}))}), g.constant(some({40}))});
  return g.done(
      {g.node("Gemm", {g.node("Relu", {inner}), g.constant(some({9, 40})), g.constant(some({9}))},
              {{"transB", 1}})},
      {100000, 1000000});
}

GraphCase any_half_layers(Random& random) {
  return half_layers(random, random.pick({ElementType::Float16, ElementType::BFloat16}));
}
const Sweep kHalfLayers("HalfWeights", "HalfLayers", 20, any_half_layers);

/// Products of what only planning makes known: the node has its private form by then, and is evaluated as one.
GraphCase known_product(Random& random) {
  GraphWriter g(19, random);
  const ElementType type = random.pick({ElementType::Float16, ElementType::BFloat16});
  const std::string x = g.node("DequantizeLinear", {g.constant(i8({2, 3}, {1, -2, 3, 4, 5, -6})),
                                                    g.constant(random.tensor(type, {}, 1, 2))});
  const std::string w = g.constant(random.tensor(type, {3, 5}, -1, 1));
  return g.done({g.node(random.one_in(2) ? "MatMul" : "Gemm", {x, w})}, {100000, 1000000});
}
const Sweep kKnownProduct("HalfWeights", "ProductOfConstants", 8, known_product);

TEST(HalfWeights, ThoseOfModelsInHalvesAreReadAsTheyAre) {
  Random random(1);
  for (const auto& [type, word] : std::vector<std::pair<ElementType, std::string>>{
           {ElementType::Float16, "float16"}, {ElementType::BFloat16, "bfloat16"}}) {
    const Session session(model_of(half_layers(random, type), Form::Fixed), {{"providers", "cpu"}});
    const auto explained = nlohmann::json::parse(session.explain());
    EXPECT_EQ(explained["order"].size(), 4U)
        << explained["order"];  // with casts of input and output
    EXPECT_EQ(explained["nodes"][0]["kernel"], "cpu:matmul_fused packed as " + word);
    EXPECT_EQ(explained["nodes"].back()["kernel"], "cpu:gemm_fused packed as " + word);
  }
}

TEST(HalfWeights, ResultsAreThoseOfFloatsBitByBit) {
  Random random(1);
  for (const Held held : {Held::BFloat16, Held::Float16}) {
    Tensor w = weights(random, {700, 150}, held);
    const std::vector<float> odd = {-0.0F, std::ldexp(1.0F, -24), 57344.0F, -std::ldexp(3.0F, -20)};
    std::memcpy(w.bytes.data() + 1000 * sizeof(float), odd.data(), odd.size() * sizeof(float));
    for (const std::int64_t rows : {1, 2, 5, 17, 64, 65, 150}) {
      const GraphCase graph = one_product(w, rows);
      Session halves(model_of(graph, Form::Fixed), {{"providers", "cpu"}});
      Session floats(model_of(graph, Form::Fixed), kPlain);
      EXPECT_EQ(halves.run(graph.feeds, graph.outputs)[0].bytes,
                floats.run(graph.feeds, graph.outputs)[0].bytes)
          << rows;
    }
  }
}

TEST(HalfWeights, OneWeightThatIsNoHalfKeepsAllInFloat) {
  Random random(1);
  for (const float odd : {1.0F / 3, 65536.0F, std::ldexp(1.0F, -25)}) {
    Tensor w = weights(random, {128, 130}, Held::Float16);
    std::memcpy(w.bytes.data() + w.bytes.size() - sizeof(float), &odd, sizeof(float));
    EXPECT_EQ(kernel_of(one_product(w, 2)), "cpu:matmul packed") << odd;
  }
}

}  // namespace
}  // namespace backplane::ops_test
