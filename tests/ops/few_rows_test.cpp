// Products of few rows with a matrix that is not constant, which the CPU provider reads where it lies.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

/// Sizes around the vectors of all instruction sets, the strips and the blocks.
std::int64_t rows_of(Random& random) {
  return random.pick<std::int64_t>({1, 1, 2, 3, 4, 5, 8, 9, 24, 25});
}
std::int64_t depth_of(Random& random) {
  return random.pick<std::int64_t>({0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 100, 257, 600});
}
std::int64_t columns_of(Random& random) {
  return random.pick<std::int64_t>(
      {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 128, 129, 200, 513});
}

/// Some numbers of a tensor become infinite, or none.
Tensor with_odd_ones(Random& random, Tensor tensor) {
  const std::size_t count = tensor.bytes.size() / sizeof(float);
  if (count == 0 || !random.one_in(4)) return tensor;
  for (int i = 0; i < 3; ++i) {
    const float odd = random.pick<float>({INFINITY, -INFINITY, NAN, -0.0f});
    const std::int64_t at = random.integer(0, static_cast<std::int64_t>(count) - 1);
    std::memcpy(tensor.bytes.data() + static_cast<std::size_t>(at) * sizeof(float), &odd,
                sizeof(float));
  }
  return tensor;
}

Tensor matrices(Random& random, Dims batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return with_odd_ones(random, random.tensor(ElementType::Float, batch, -1, 1));
}

std::string turned(GraphWriter& g, const std::string& x, std::size_t rank) {
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < rank; ++i) order.push_back(static_cast<std::int64_t>(i));
  std::swap(order[rank - 2], order[rank - 1]);
  return g.node("Transpose", {x}, {{"perm", reference::ints(order)}});
}

/// MatMul with what it takes over; B as it is, or turned before.
GraphCase any_form(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t rows = rows_of(random), depth = depth_of(random), columns = columns_of(random);
  const Dims batch = random.pick({Dims{}, Dims{}, Dims{3}, Dims{2, 3}});
  const Dims of_a = random.one_in(3) ? random.broadcastable(batch) : batch;
  const Dims of_b = random.one_in(3) ? random.broadcastable(batch) : batch;
  const bool turns = random.one_in(2);
  const std::string a = g.feed(matrices(random, of_a, rows, depth));
  std::string b = g.feed(turns ? matrices(random, of_b, columns, depth)
                               : matrices(random, of_b, depth, columns));
  if (turns) b = turned(g, b, of_b.size() + 2);
  std::string y = g.node("MatMul", {a, b});
  if (random.one_in(3)) y = g.node("Add", {y, g.constant({columns})});
  if (random.one_in(3)) y = g.node("Add", {y, g.feed(matrices(random, of_a, rows, columns))});
  if (random.one_in(3)) y = g.node(random.one_in(2) ? "Relu" : "Sigmoid", {y});
  return g.done({y});
}
const Sweep kAnyForm("FewRows", "AnyForm", 300, any_form);

GraphCase gemm(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t rows = rows_of(random), depth = depth_of(random), columns = columns_of(random);
  const bool turns_a = random.one_in(3), turns_b = random.one_in(2);
  std::vector<std::string> inputs = {g.feed(turns_a ? Dims{depth, rows} : Dims{rows, depth}),
                                     g.feed(turns_b ? matrices(random, {}, columns, depth)
                                                    : matrices(random, {}, depth, columns))};
  if (random.one_in(2))
    inputs.push_back(g.feed(random.pick({Dims{columns}, Dims{rows, columns}, Dims{rows, 1}})));
  const std::string y = g.node("Gemm", inputs,
                               {{"transA", turns_a ? 1 : 0},
                                {"transB", turns_b ? 1 : 0},
                                {"alpha", random.one_in(2) ? 0.75f : 1.0f},
                                {"beta", random.one_in(3) ? -2.0f : 1.0f}});
  return g.done({random.one_in(3) ? g.node("Tanh", {y}) : y});
}
const Sweep kGemm("FewRows", "Gemm", 80, gemm);

/// Sums over pairs of axes, which tell the matrices by steps.
GraphCase einsum(Random& random) {
  GraphWriter g(17, random);
  const std::int64_t q = random.integer(1, 3), d = random.pick<std::int64_t>({16, 33, 64}),
                     k = random.pick<std::int64_t>({16, 50, 130});
  switch (random.integer(0, 3)) {
    case 0:
      return g.done({g.node("Einsum", {g.feed({2, q, 3, d}), g.feed({2, k, 3, d})},
                            {{"equation", "bqhd,bkhd->bhqk"}})});
    case 1:
      return g.done({g.node("Einsum", {g.feed({2, 3, q, k}), g.feed({2, k, 3, d})},
                            {{"equation", "bhqk,bkhd->bqhd"}})});
    case 2:
      return g.done(
          {g.node("Einsum", {g.feed({q, d}), g.feed({k, d})}, {{"equation", "qd,kd->qk"}})});
    default:
      return g.done(
          {g.node("Einsum", {g.feed({q, k}), g.feed({d, k})}, {{"equation", "qk,dk->qd"}})});
  }
}
const Sweep kEinsum("FewRows", "Einsum", 40, einsum);

/// Columns that are equal have equal results, whatever panel they lie in: a Softmax of large ones would tell them apart.
TEST(FewRows, EqualColumnsOfWeightsGiveEqualResults) {
  constexpr std::int64_t kDepth = 999;
  for (const Target& target : find_targets()) {
    if (target.provider != "cpu") continue;
    Options options = target.options;
    options.emplace_back("providers", target.provider);
    for (const std::int64_t rows : {1, 2, 5}) {
      for (const std::int64_t columns : {3, 24, 40, 72, 200, 1000}) {
        Random random(7);
        GraphWriter g(17, random);
        Tensor column = random.tensor(ElementType::Float, {kDepth, 1}, -1, 1);
        Tensor weights = random.tensor(ElementType::Float, {kDepth, columns}, -1, 1);
        for (std::int64_t i = 0; i < kDepth * columns; ++i) {
          std::memcpy(weights.bytes.data() + i * 4, column.bytes.data() + i / columns * 4, 4);
        }
        const GraphCase graph =
            g.done({g.node("MatMul", {g.feed({rows, kDepth}), g.constant(std::move(weights))})});
        Session session(model_of(graph, Form::Fixed), options);
        const Tensor y = session.run(graph.feeds, graph.outputs).at(0);
        for (std::int64_t i = 0; i < rows * columns; ++i) {
          ASSERT_EQ(
              std::memcmp(y.bytes.data() + i * 4, y.bytes.data() + i / columns * columns * 4, 4), 0)
              << target.name << ", " << rows << " rows, element " << i << " of " << columns;
        }
      }
    }
  }
}

/// The last kernel of a product of `rows` rows whose matrix is [64, 130].
std::string kernel_of(std::int64_t rows, bool turns) {
  Random random(1);
  GraphWriter g(17, random);
  std::string b = g.feed(turns ? Dims{130, 64} : Dims{64, 130});
  if (turns) b = turned(g, b, 2);
  const GraphCase graph = g.done({g.node("MatMul", {g.feed({rows, 64}), b})});
  const Session session(model_of(graph, Form::Fixed), {{"providers", "cpu"}});
  return nlohmann::json::parse(session.explain())["nodes"].back()["kernel"];
}

TEST(FewRows, ReadTheMatrixWhereItLies) {
  EXPECT_EQ(kernel_of(1, false), "cpu:matmul rows");
  EXPECT_EQ(kernel_of(1, true), "cpu:matmul_fused rows");
  EXPECT_EQ(kernel_of(200, false), "cpu:matmul packing");
  EXPECT_EQ(kernel_of(200, true), "cpu:matmul_fused packing");
}

TEST(FewRows, GiveTheSameOnAnyNumberOfThreads) {
  Random random(1);
  for (const Dims& dims : {Dims{700, 1001}, Dims{1001, 700}, Dims{5, 200, 333}}) {
    for (const bool turns : {false, true}) {
      GraphWriter g(17, random);
      const std::string b = g.feed(dims);
      Dims of_a = dims;
      of_a[dims.size() - 1] = dims[dims.size() - (turns ? 1 : 2)];
      of_a[dims.size() - 2] = 3;
      const std::string a = g.feed(of_a);
      const GraphCase graph =
          g.done({g.node("MatMul", {a, turns ? turned(g, b, dims.size()) : b})});
      Session one(model_of(graph, Form::Fixed), {{"providers", "cpu"}, {"threads", "1"}});
      Session two(model_of(graph, Form::Fixed), {{"providers", "cpu"}, {"threads", "2"}});
      EXPECT_EQ(one.run(graph.feeds, graph.outputs)[0].bytes,
                two.run(graph.feeds, graph.outputs)[0].bytes);
    }
  }
}

}  // namespace
}  // namespace backplane::ops_test
