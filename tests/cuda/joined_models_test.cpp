// Products of constant weights that read one value, in models: which of them are one, and that all else stays as it was.
#include <algorithm>

#include "tests/cuda/models.hpp"
#include "tests/ops/explained.hpp"
#include "tests/ops/symbolic.hpp"

namespace backplane::ops_test {
namespace {

constexpr std::int64_t kDepth = 24;

/// "1 3 5, 2 4": the products that are one, each time, by the numbers at the ends of their names.
std::string groups_of(const Explained& made) {
  std::vector<std::string> groups;
  for (const auto& [node, parts] : made.fused) {
    if (node.rfind("Joined", 0) != 0) continue;
    std::string& group = groups.emplace_back();
    for (const std::string& part : parts) {
      if (part.rfind("MatMul", 0) != 0 && part.rfind("Gemm", 0) != 0) continue;
      group += (group.empty() ? "" : " ") + part.substr(part.rfind('_') + 1);
    }
  }
  std::sort(groups.begin(), groups.end());
  std::string text;
  for (const std::string& group : groups) text += (text.empty() ? "" : ", ") + group;
  return text;
}

/// What the provider alone made of a graph, whose outputs have `rank` axes and are right.
Explained run(const GraphCase& graph, std::size_t rank, const Options& more = {}) {
  Options options{{"providers", "cuda_stand_in:0"}, {"fallback", "forbid"}};
  options.insert(options.end(), more.begin(), more.end());
  Session session(model_of(graph, rank), options);
  Session processor(model_of(graph, rank), {{"providers", "cpu"}});
  const bool is_half = std::any_of(more.begin(), more.end(), [](const auto& option) {
    return option.second.find("f16") != std::string::npos ||
           option.second.find("fp16") != std::string::npos;
  });
  const std::vector<Tensor> want = processor.run(graph.feeds, graph.outputs);
  // What the second run records the third one replays.
  for (int turn = 0; turn < 3; ++turn)
    expect_same(session.run(graph.feeds, graph.outputs), want, is_half ? 5e-2 : 1e-4);
  Explained made = explained(session);
  EXPECT_EQ(made.remarks, std::vector<std::string>());
  return made;
}

/// Products of one value, which a node makes.
class Projections {
 public:
  explicit Projections(std::uint64_t seed = 1, const Dims& dims = {2, 5, kDepth})
      : random_(seed), g_(20, random_), x_(g_.node("Tanh", {g_.feed(dims)})) {}

  GraphWriter& graph() { return g_; }
  const std::string& x() const { return x_; }
  std::string weights(std::int64_t columns, std::int64_t depth = kDepth) {
    return g_.constant({depth, columns}, -0.4, 0.4);
  }
  /// A product and, perhaps, a row that is added to it.
  std::string linear(std::int64_t columns, bool has_row = true) {
    return linear_by(weights(columns), has_row ? g_.constant({columns}) : "");
  }
  std::string linear_by(const std::string& matrix, const std::string& row) {
    const std::string y = g_.node("MatMul", {x_, matrix});
    return row.empty() ? y : g_.node("Add", {y, row});
  }
  /// The same by Gemm, of a matrix whose rows are columns.
  std::string gemm(std::int64_t columns, const Dims& row) {
    const std::string matrix = g_.constant({columns, kDepth}, -0.4, 0.4);
    return g_.node("Gemm", {x_, matrix, g_.constant(row)}, {{"transB", std::int64_t{1}}});
  }
  Explained made(const std::vector<std::string>& outputs, std::size_t rank = 3,
                 const Options& options = {}) {
    return run(g_.done(outputs), rank, options);
  }

 private:
  Random random_;
  GraphWriter g_;
  std::string x_;
};

TEST(CudaJoinedModels, QueriesKeysAndValuesAreOneProductInEveryPrecision) {
  for (const std::string precision : {"fp32", "tf32", "fp16", "bf16"}) {
    const bool is_half = precision == "fp16" || precision == "bf16";
    Projections p;
    // One is an output itself, one has other readers, and the value that all read has another one, too.
    const std::string q = p.linear(7), k = p.linear(7), v = p.linear(7);
    const std::string y = p.graph().node("Mul", {p.graph().node("Mul", {q, k}), v});
    const Explained made =
        p.made({q, y, p.graph().node("Neg", {p.x()})}, 3, {{"precision", precision}});
    EXPECT_EQ(groups_of(made), "1 3 5") << made.text;
    for (const char* const name : {"MatMul_1", "MatMul_3", "MatMul_5"}) {
      const std::string said = made.said.at(name);
      EXPECT_NE(said.find(", which multiply the same value"), std::string::npos) << said;
      EXPECT_EQ(said.find(name), std::string::npos) << said;
      EXPECT_EQ(said.find("makes ") != std::string::npos, is_half) << said;
    }
    EXPECT_NE(made.text.find("3 products in a call"), std::string::npos) << made.text;
  }
}

TEST(CudaJoinedModels, EachWeightIsOnTheDeviceOnce) {
  Projections p;
  const Explained made = p.made({p.linear(8), p.linear(8), p.linear(8)});
  EXPECT_EQ(made.device_weight_bytes, 3 * (kDepth + 1) * 8 * 4);
  Projections half;
  EXPECT_EQ(
      half.made({half.linear(8), half.linear(8)}, 3, {{"precision", "fp16"}}).device_weight_bytes,
      2 * (kDepth + 1) * 8 * 2);
}

TEST(CudaJoinedModels, ProductsOfUnequalSizesJoinWhereTheyAreEqual) {
  Projections p;
  const Explained made = p.made({p.linear(16), p.linear(6), p.linear(6)});
  EXPECT_EQ(groups_of(made), "3 5") << made.text;
  Projections rows;
  const Explained mixed =
      rows.made({rows.linear(6), rows.linear(6, false), rows.linear(6), rows.linear(6, false),
                 rows.graph().node("Relu", {rows.linear(6)})});
  EXPECT_EQ(groups_of(mixed), "1 4, 3 6") << mixed.text;
}

TEST(CudaJoinedModels, AGateIsOneProductWithWhatItGates) {
  Projections p;
  const std::string gate = p.linear(20, false), up = p.linear(20, false);
  const std::string swish = p.graph().node("Mul", {gate, p.graph().node("Sigmoid", {gate})});
  const std::string inner = p.graph().node("Mul", {swish, up});
  const Explained made =
      p.made({p.graph().node("MatMul", {inner, p.graph().constant({20, kDepth}, -0.4, 0.4)})});
  EXPECT_EQ(groups_of(made), "1 2") << made.text;
  EXPECT_EQ(made.steps, 4u) << made.text;
}

TEST(CudaJoinedModels, ActivationsThatProductsTakeOverAreTheJoinedOnes) {
  Projections p;
  const auto gelu = [&](const std::string& x) {
    return p.graph().node("Gelu", {x}, {{"approximate", std::string("tanh")}});
  };
  const Explained made = p.made({gelu(p.linear(9)), p.graph().node("Relu", {p.linear(9)}),
                                 gelu(p.linear(9)), p.graph().node("Relu", {p.linear(9)})});
  EXPECT_EQ(groups_of(made), "1 7, 4 10") << made.text;
}

TEST(CudaJoinedModels, GemmsJoinWithTheirRows) {
  Projections p(1, {5, kDepth});
  const Explained made =
      p.made({p.gemm(7, {7}), p.gemm(7, {1, 7}), p.gemm(7, {5, 7}), p.gemm(7, {1})}, 2,
             {{"precision", "bf16"}});
  EXPECT_EQ(groups_of(made), "1 2") << made.text;
}

TEST(CudaJoinedModels, WeightsThatOthersNeedStayApart) {
  Projections p;
  GraphWriter& g = p.graph();
  const std::string tied = p.weights(6), own = p.weights(6);
  const Explained made = p.made({p.linear_by(tied, ""), p.linear_by(own, ""), p.linear(6, false),
                                 g.node("MatMul", {g.feed({1, 2, kDepth}), tied})});
  EXPECT_EQ(groups_of(made), "2 3") << made.text;
  Projections output(1, {5, kDepth});
  const std::string weights = output.weights(6);
  const Explained given =
      output.made({output.linear_by(weights, ""), output.linear(6, false), weights}, 2);
  // The output is what the host has.
  EXPECT_EQ(groups_of(given), "1 2") << given.text;
  EXPECT_EQ(given.device_weight_bytes, 2 * kDepth * 6 * 4) << given.text;
}

TEST(CudaJoinedModels, RowsMayBeSharedAndWeightsFed) {
  Projections p;
  const std::string row = p.graph().constant({6});
  const std::string y = p.linear_by(p.weights(6), row), z = p.linear_by(p.weights(6), row),
                    fed = p.linear_by(p.graph().feed({kDepth, 6}), row),
                    other = p.linear_by(p.weights(6), p.graph().feed({6}));
  const Explained made = p.made({y, z, fed, other});
  EXPECT_EQ(groups_of(made), "1 3") << made.text;
}

TEST(CudaJoinedModels, AProductThatAddsAMatrixKeepsIt) {
  Projections p;
  const std::string y = p.linear(kDepth), z = p.linear(kDepth), v = p.linear(kDepth);
  const std::string sum = p.graph().node("Add", {y, z});
  const Explained made = p.made({p.graph().node("Add", {v, p.x()}), sum});
  EXPECT_EQ(groups_of(made), "") << made.text;
  EXPECT_EQ(made.steps, 4u) << made.text;
}

TEST(CudaJoinedModels, NodesOfOtherPrecisionsStayApart) {
  Projections p;
  const Explained made = p.made({p.linear(6, false), p.linear(6, false), p.linear(6, false)}, 3,
                                {{"provider.cuda_stand_in.precision_of", "MatMul_2=fp16"}});
  EXPECT_EQ(groups_of(made), "1 3") << made.text;
  Projections all;
  const Explained half = all.made({all.linear(6, false), all.linear(6, false)}, 3,
                                  {{"provider.cuda_stand_in.precision_of", "op:MatMul=fp16"}});
  EXPECT_EQ(groups_of(half), "1 2") << half.text;
  EXPECT_NE(half.said.at("MatMul_2").find("makes fp16"), std::string::npos) << half.text;
}

/// A product of x by weights that stay packed; inputs are as MatMulNBits has them.
struct Packed {
  std::int64_t columns = 6, depth = 32, bits = 4, block = 32;
  bool has_zeros = false, has_bias = false;
  ElementType type = ElementType::Float;
};
std::string packed_product(GraphWriter& g, Random& random, const std::string& x,
                           const Packed& form) {
  const std::int64_t blocks = (form.depth + form.block - 1) / form.block;
  const auto bytes = [&](const Dims& dims) {
    return g.constant(random.tensor(ElementType::UInt8, dims, 0, 255));
  };
  const double most = 0.8 / static_cast<double>(1 << form.bits);
  std::vector<std::string> inputs{
      x, bytes({form.columns, blocks, form.block * form.bits / 8}),
      g.constant(random.tensor(form.type, {form.columns, blocks}, -most, most)),
      form.has_zeros ? bytes({form.columns, (blocks * form.bits + 7) / 8}) : "", ""};
  if (form.has_bias) inputs.push_back(g.constant(random.tensor(form.type, {form.columns}, -1, 1)));
  while (inputs.back().empty()) inputs.pop_back();
  std::string y = g.node(
      "MatMulNBits", inputs,
      {{"K", form.depth}, {"N", form.columns}, {"bits", form.bits}, {"block_size", form.block}});
  g.last().domain = "com.microsoft";
  g.last().opset = 1;
  return y;
}

TEST(CudaJoinedModels, PackedWeightsJoinAmongThemselvesAndStayWhereTheyAre) {
  Projections p(1, {3, 32});
  GraphWriter& g = p.graph();
  Random random(3);
  Packed other;
  other.block = 16;
  const std::string q = packed_product(g, random, p.x(), {}), k = p.linear_by(p.weights(6, 32), ""),
                    v = packed_product(g, random, p.x(), {9}),
                    apart = packed_product(g, random, p.x(), other),
                    l = p.linear_by(p.weights(6, 32), "");
  const Explained made = run(g.done({q, k, v, apart, l}), 2);
  EXPECT_EQ(groups_of(made), "1 3, 2 5") << made.text;
  EXPECT_NE(made.text.find("packed, 2 products in a launch"), std::string::npos) << made.text;
  // Numbers and a scale: of two blocks each where it stays apart.
  EXPECT_EQ(made.device_weight_bytes, (6 + 9) * 20 + 6 * 24 + 2 * 6 * 32 * 4) << made.text;
}

TEST(CudaJoinedModels, PackedProductsOfOtherFormsStayApart) {
  Random random(1);
  GraphWriter g(20, random);
  const std::string x = g.node("Tanh", {g.feed({2, 64})}), y = g.node("Neg", {x});
  Packed form{6, 64};
  std::vector<std::string> outputs{packed_product(g, random, x, form),
                                   packed_product(g, random, y, form)};
  const auto with = [&](auto change) {
    Packed changed = form;
    change(changed);
    outputs.push_back(packed_product(g, random, x, changed));
  };
  with([](Packed& each) { each.has_bias = true; });
  with([](Packed& each) { each.has_zeros = true; });
  with([](Packed& each) { each.bits = 8; });
  with([](Packed& each) { each.block = 64; });
  EXPECT_EQ(groups_of(run(g.done(outputs), 2)), "");
}

/// Of few rows and of many, columns that fill no group, and in each type.
TEST(CudaJoinedModels, PackedProductsAreRight) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    GraphWriter g(21, random);
    Packed form;
    form.type = random.pick({ElementType::Float, ElementType::Float16, ElementType::Float16});
    form.bits = random.pick<std::int64_t>({2, 4, 4, 4, 8});
    form.block = random.pick<std::int64_t>({16, 32, 64});
    form.depth = form.block * random.integer(1, 9) - random.pick<std::int64_t>({0, 0, 5});
    form.has_zeros = random.one_in(2);
    form.has_bias = random.one_in(2);
    const auto rows = random.pick<std::int64_t>({1, 1, 1, 2, 3, 8, 11, 40});
    const std::string x =
        g.node("Neg", {g.feed(random.tensor(form.type, {rows, form.depth}, -1, 1))});
    std::vector<std::string> outputs;
    for (std::int64_t i = random.integer(2, 4); i > 0; --i) {
      form.columns = random.pick<std::int64_t>({1, 3, 16, 33, 130, 517});
      outputs.push_back(packed_product(g, random, x, form));
      if (form.type != ElementType::Float)
        outputs.back() = g.node("Cast", {outputs.back()}, {{"to", std::int64_t{1}}});
    }
    const bool is_half = form.type == ElementType::Float16;
    const GraphCase graph = g.done(outputs);
    Session session(model_of(graph, 2), {{"providers", "cuda_stand_in:0"}, {"fallback", "forbid"}});
    Session processor(model_of(graph, 2), {{"providers", "cpu"}});
    const std::vector<Tensor> want = processor.run(graph.feeds, graph.outputs);
    for (int turn = 0; turn < 3; ++turn)
      expect_same(session.run(graph.feeds, graph.outputs), want, is_half ? 5e-2 : 1e-4);
    EXPECT_NE(explained(session).text.find(std::to_string(outputs.size()) + " products"),
              std::string::npos);
  }
}

TEST(CudaJoinedModels, ANodeThatGoesElsewhereLeavesTheOthersJoined) {
  Projections p;
  const GraphCase graph =
      p.graph().done({p.linear(6, false), p.linear(6, false), p.linear(6, false)});
  const std::string text = explain(graph, 3, {{"place", "MatMul_2=cpu"}});
  EXPECT_NE(text.find("joined with 'MatMul_3'"), std::string::npos) << text;
  EXPECT_NE(text.find("joined with 'MatMul_1'"), std::string::npos) << text;
  EXPECT_NE(part_of(text, "MatMul_2").find("cpu:"), std::string::npos) << text;
  const std::string plain = explain(graph, 3, {{"provider.cuda_stand_in.fusion", "false"}});
  EXPECT_EQ(plain.find("joined"), std::string::npos) << plain;
}

TEST(CudaJoinedModels, ManyProductsOfOneValueAreSeveral) {
  Projections p;
  std::vector<std::string> outputs;
  for (int i = 0; i < 6; ++i) outputs.push_back(p.linear(5, false));
  const std::string groups = groups_of(p.made(outputs));
  EXPECT_EQ(std::count(groups.begin(), groups.end(), ','), 1) << groups;
}

/// Rows of any number, 0 and 1 among them, of a value that broadcasts in nothing.
TEST(CudaJoinedModels, RowsOfUnknownNumberAreRight) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string x = g.feed({1, 1, kDepth});
  std::vector<std::string> parts;
  for (int i = 0; i < 3; ++i)
    parts.push_back(g.node(
        "Add", {g.node("MatMul", {x, g.constant({kDepth, 9}, -0.4, 0.4)}), g.constant({9})}));
  const std::string y = g.node("Mul", {g.node("Sub", {parts[0], parts[1]}), parts[2]});
  const SymbolicCase symbolic =
      symbolic_case(g.done({y, parts[1]}, {1024, 8192}), {{"n", "s", std::to_string(kDepth)}},
                    {{{"n", 2}, {"s", 5}},
                     {{"n", 1}, {"s", 1}},
                     {{"n", 0}, {"s", 3}},
                     {{"n", 3}, {"s", 0}},
                     {{"n", 7}, {"s", 100}}},
                    random);
  std::string explanation;
  const Outcome outcome = run_symbolic(
      symbolic, {{"providers", "cuda_stand_in:0"}, {"fallback", "forbid"}}, &explanation);
  ASSERT_EQ(outcome.kind, Outcome::Kind::Passed) << outcome.text;
  EXPECT_NE(explanation.find("3 products in calls of their own: each fills the device"),
            std::string::npos)
      << explanation;
}

/// A layer of BERT: attention of three products, and what stands around it.
GraphCase encoder_layer(Random& random, std::int64_t positions) {
  constexpr std::int64_t kHeads = 3, kWidth = 8;
  GraphWriter g(20, random);
  const std::string x = g.feed({1, positions, kDepth});
  const auto linear = [&](const std::string& value, std::int64_t from, std::int64_t to) {
    return g.node("Add",
                  {g.node("MatMul", {value, g.constant({from, to}, -0.4, 0.4)}), g.constant({to})});
  };
  const auto heads = [&](const Dims& perm) {
    const std::string apart = g.node(
        "Reshape", {linear(x, kDepth, kDepth), g.constant(i64({4}, {0, 0, kHeads, kWidth}))});
    return g.node("Transpose", {apart}, {{"perm", perm}});
  };
  const auto normal = [&](const std::string& value) {
    return g.node("LayerNormalization", {value, g.constant({kDepth}), g.constant({kDepth})});
  };
  const std::string q = heads({0, 2, 1, 3}), k = heads({0, 2, 3, 1}), v = heads({0, 2, 1, 3});
  const std::string scores = g.node("Div", {g.node("MatMul", {q, k}), g.constant(f32({}, {2.5}))});
  const std::string mixed = g.node("MatMul", {g.node("Softmax", {scores}, {{"axis", -1}}), v});
  const std::string rows =
      g.node("Reshape", {g.node("Transpose", {mixed}, {{"perm", Dims{0, 2, 1, 3}}}),
                         g.constant(i64({3}, {0, 0, kDepth}))});
  const std::string seen = normal(g.node("Add", {linear(rows, kDepth, kDepth), x}));
  const std::string inner =
      g.node("Gelu", {linear(seen, kDepth, 40)}, {{"approximate", std::string("tanh")}});
  return g.done({normal(g.node("Add", {linear(inner, 40, kDepth), seen}))});
}

TEST(CudaJoinedModels, ALayerOfBertHasTwoCallsLess) {
  Random random(1);
  const GraphCase graph = encoder_layer(random, 12);
  const Explained made = run(graph, 3);
  EXPECT_EQ(groups_of(made), "0 4 8") << made.text;
  // The products, attention, its product, the sum and its normalisation, two products, normalisation: parts and heads are views.
  EXPECT_EQ(made.steps, 7u) << made.text;
  const Explained apart =
      run(graph, 3, {{"provider.cuda_stand_in.precision_of", "MatMul_0=tf32,MatMul_4=fp32"}});
  EXPECT_EQ(groups_of(apart), "4 8") << apart.text;
  EXPECT_EQ(apart.steps, 8u) << apart.text;
  const Explained half = run(graph, 3, {{"precision", "fp16"}});
  EXPECT_EQ(groups_of(half), "0 4 8") << half.text;
  EXPECT_NE(half.text.find("cuda:attention cudnn, float16"), std::string::npos) << half.text;
  EXPECT_NE(half.text.find("\"state\":\"replayed\""), std::string::npos) << half.text;
}

/// Products of several values, chained, of sizes and rows that fit or do not.
GraphCase random_products(Random& random) {
  GraphWriter g(20, random);
  std::vector<std::string> values{g.feed({random.integer(0, 3), random.integer(1, 6), 8})};
  std::vector<std::string> matrices, outputs;
  for (std::int64_t i = random.integer(4, 12); i > 0; --i) {
    const std::string x = values[static_cast<std::size_t>(
        random.integer(0, static_cast<std::int64_t>(values.size()) - 1))];
    const std::int64_t columns = random.pick<std::int64_t>({8, 8, 8, 5, 16});
    std::string matrix = g.constant({8, columns}, -0.4, 0.4);
    if (columns == 8 && !matrices.empty() && random.one_in(5)) matrix = matrices.back();
    if (columns == 8) matrices.push_back(matrix);
    std::string y = g.node("MatMul", {x, matrix});
    if (random.one_in(6)) outputs.push_back(y);
    if (random.one_in(2)) y = g.node("Add", {y, g.constant({columns})});
    if (random.one_in(4)) y = g.node("Relu", {y});
    if (columns == 8 && random.one_in(4)) y = g.node("Add", {values.back(), y});
    if (columns == 8) values.push_back(y);
    if (columns != 8 || random.one_in(3)) outputs.push_back(y);
  }
  outputs.push_back(values.back() == values.front() ? g.node("Neg", {values[0]}) : values.back());
  std::sort(outputs.begin(), outputs.end());
  outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
  return g.done(outputs);
}

TEST(CudaJoinedModels, RandomProductsAreRight) {
  std::size_t joined = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const GraphCase graph = random_products(random);
    joined += groups_of(run(graph, 3)).empty() ? 0 : 1;
    run(graph, 3, {{"precision", "fp16"}});
    ASSERT_FALSE(HasFailure()) << seed;
  }
  EXPECT_GT(joined, 5u);
}

}  // namespace
}  // namespace backplane::ops_test
