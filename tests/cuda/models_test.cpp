// Small models on the provider on the stand-in: what it makes of them.
#include "tests/cuda/models.hpp"

#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <utility>

#include "tests/ops/symbolic.hpp"

namespace backplane::ops_test {
namespace {

TEST(CudaModels, AProductBetweenQuantizersIsOneNodeOfInt8) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string scale = g.constant(f32({}, {0.0625})), zero = g.constant(u8({}, {128}));
  const std::string bytes = g.node("QuantizeLinear", {g.feed({4, 32}), scale, zero});
  const std::string x = g.node("DequantizeLinear", {bytes, scale, zero});
  const std::string w = g.node(
      "DequantizeLinear", {g.constant(random.tensor(ElementType::Int8, {32, 8}, -9, 9)), scale});
  const std::string y = g.node("Relu", {g.node("MatMul", {x, w})});
  const std::string quantized = g.node("QuantizeLinear", {y, scale, zero});
  const std::string text =
      explain(g.done({g.node("DequantizeLinear", {quantized, scale, zero})}), 2);
  EXPECT_NE(text.find("cuda:int8 matmul cublaslt, int8"), std::string::npos) << text;
  for (const char* const name :
       {"DequantizeLinear_1", "DequantizeLinear_2", "Relu_4", "QuantizeLinear_5"})
    EXPECT_NE(part_of(text, name).find("\"fused_into\":\"MatMul_3\""), std::string::npos) << text;
}

TEST(CudaModels, AProductOfValuesWhoseTypesARunAloneTellsIsOneOfFloats) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string y = g.node("MatMul", {g.feed({3, 4}), g.feed({4, 5})});
  const std::string text = explain(g.done({y}), 2, {{"precision", "fp16"}});
  EXPECT_NE(part_of(text, "MatMul_0").find("cuda:matmul cublaslt"), std::string::npos) << text;
}

TEST(CudaModels, SeveralDevicesOfAGraphCopyToEachOtherDirectly) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string x = g.feed({4, 5});
  const std::string y = g.node("Neg", {g.node("MatMul", {g.node("Exp", {x}), g.constant({5, 3})})});
  const std::string text = explain(g.done({y}), 2, {{"place", "op:MatMul=cuda_stand_in:1"}});
  for (const char* const copy : {R"("from":"cuda_stand_in:0","to":"cuda_stand_in:1")",
                                 R"("from":"cuda_stand_in:1","to":"cuda_stand_in:0")"}) {
    const std::size_t at = text.find(copy);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_NE(text.substr(at, text.find('}', at) - at).find(R"("route":"peer")"),
              std::string::npos);
  }
}

/// BERT's: heads beside the positions, keys transposed, scores divided, a mask for each image's positions.
GraphCase attention_graph(Random& random) {
  GraphWriter g(13, random);
  const Dims dims{2, 5, 3, 8};
  const auto rows = [&](const Dims& perm) {
    return g.node("Transpose", {g.feed(dims)}, {{"perm", perm}});
  };
  const std::string q = rows({0, 2, 1, 3}), k = rows({0, 2, 3, 1}), v = rows({0, 2, 1, 3});
  std::string scores = g.node("Div", {g.node("MatMul", {q, k}), g.constant(f32({}, {2.5}))});
  scores = g.node("Add", {scores, g.feed({2, 1, 1, 5}, -2, 0)});
  const std::string y = g.node("MatMul", {g.node("Softmax", {scores}, {{"axis", -1}}), v});
  return g.done({g.node("Transpose", {y}, {{"perm", ints({0, 2, 1, 3})}})});
}

TEST(CudaModels, AttentionIsOneNodeWhereThePrecisionAllowsAndElseTheReasonIsGiven) {
  Random random(1);
  const GraphCase graph = attention_graph(random);
  const std::string half = explain(graph, 4, {{"precision", "fp16"}});
  EXPECT_NE(half.find("cuda:attention cudnn, float16"), std::string::npos) << half;
  for (const char* const name : {"Transpose_0", "Transpose_1", "Transpose_2", "MatMul_3", "Div_4",
                                 "Add_5", "MatMul_7", "Transpose_8"})
    EXPECT_NE(part_of(half, name).find("\"fused_into\":\"Softmax_6\""), std::string::npos) << half;
  const std::string some =
      explain(graph, 4, {{"provider.cuda_stand_in.precision_of", "op:MatMul=fp16"}});
  EXPECT_NE(some.find("cuda:attention cudnn, float16"), std::string::npos) << some;
  const std::string exact = explain(graph, 4);
  EXPECT_NE(exact.find("cuda:attention by parts: float32 with precision fp32; cuDNN's is of fp16"),
            std::string::npos)
      << exact;
  const std::string apart = explain(
      graph, 4, {{"precision", "fp16"}, {"provider.cuda_stand_in.precision_of", "MatMul_7=fp32"}});
  EXPECT_EQ(apart.find("cuda:attention"), std::string::npos) << apart;
  EXPECT_NE(part_of(apart, "Softmax_6").find("its products are of different precisions; makes"),
            std::string::npos)
      << apart;
}

TEST(CudaModels, AttentionOfEinsumsIsOneNodeWhereTheirPrecisionsAreTheSame) {
  Random random(1);
  GraphWriter g(13, random);
  const Dims dims{2, 5, 3, 8};
  std::string scores =
      g.node("Einsum", {g.feed(dims), g.feed(dims)}, {{"equation", "bnhd,bmhd->bhnm"}});
  scores = g.node("Mul", {scores, g.constant(f32({}, {0.4}))});
  scores = g.node("Add", {scores, g.feed({2, 1, 1, 5}, -2, 0)});
  const std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  const GraphCase graph =
      g.done({g.node("Einsum", {weights, g.feed(dims)}, {{"equation", "bhnm,bmhd->bnhd"}})});
  const std::string half = explain(graph, 4, {{"precision", "fp16"}});
  EXPECT_NE(half.find("cuda:attention cudnn, float16"), std::string::npos) << half;
  for (const char* const name : {"Einsum_0", "Mul_1", "Add_2", "Einsum_4"})
    EXPECT_NE(part_of(half, name).find("\"fused_into\":\"Softmax_3\""), std::string::npos) << half;
  EXPECT_NE(explain(graph, 4).find("cuda:attention by parts"), std::string::npos);
  const std::string apart = explain(
      graph, 4, {{"precision", "fp16"}, {"provider.cuda_stand_in.precision_of", "Einsum_4=fp32"}});
  EXPECT_EQ(apart.find("cuda:attention"), std::string::npos) << apart;
}

/// As PyTorch's later exporters write it: keys transposed by way of three axes, and weights of rows without any position
/// made 0. Of the mask's rows the first is such a one.
GraphCase guarded_attention_graph(Random& random, std::int64_t positions) {
  GraphWriter g(18, random);
  const Dims dims{2, 3, positions, 8}, flat{6, positions, 8}, turned{2, 3, 8, positions};
  const auto shaped = [&](const std::string& x, const Dims& to) {
    return g.node("Reshape", {x, g.constant(i64({static_cast<std::int64_t>(to.size())}, to))});
  };
  const std::string scale = g.constant(f32({}, {0.6}));
  const std::string q = g.node("Mul", {g.feed(dims), scale});
  const std::string turn =
      g.node("Transpose", {shaped(g.feed(dims), flat)}, {{"perm", ints({0, 2, 1})}});
  const std::string k = g.node("Mul", {shaped(turn, turned), scale});
  const double none = -std::numeric_limits<double>::infinity();
  std::vector<double> allowed;
  for (std::int64_t i = 0; i < positions * positions; ++i)
    allowed.push_back(i < positions || i % 5 == 0 ? none : 0);
  const std::string mask = g.constant(f32({positions, positions}, allowed));
  const std::string scores = g.node("Add", {g.node("MatMul", {q, k}), mask});
  const std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  const std::string kept =
      g.node("Where", {g.node("IsNaN", {weights}), g.constant(f32({}, {0})), weights});
  return g.done({g.node("MatMul", {kept, g.feed(dims)})});
}

TEST(CudaModels, AnAttentionWhoseEmptyRowsAreMadeZeroIsOneNodeAndMakesThemZero) {
  Random random(2);
  const GraphCase graph = guarded_attention_graph(random, 6),
                  few = guarded_attention_graph(random, 3);
  const std::string half = explain(graph, 4, {{"precision", "fp16"}});
  EXPECT_NE(half.find("cuda:attention cudnn, float16"), std::string::npos) << half;
  EXPECT_NE(explain(few, 4).find("cuda:attention by rows"), std::string::npos);
  const std::string exact = explain(graph, 4);
  EXPECT_NE(exact.find("cuda:attention by parts"), std::string::npos) << exact;
  for (const char* const name : {"Reshape_1", "Transpose_2", "Reshape_3", "IsNaN_8", "Where_9"})
    EXPECT_NE(part_of(exact, name).find("\"fused_into\":\"Softmax_7\""), std::string::npos)
        << exact;
}

/// How an attention is written.
struct Writing {
  std::int64_t positions = 6;
  bool is_flat = false;  ///< of three axes
  float softcap = 0;
  std::optional<bool>
      chosen{};          ///< scores are chosen where a mask of bools is this; none: a mask is added
  bool is_read = false;  ///< the scores are an output, too
};

GraphCase written_attention(Random& random, const Writing& w) {
  GraphWriter g(18, random);
  const Dims dims = w.is_flat ? Dims{6, w.positions, 8} : Dims{2, 3, w.positions, 8};
  const std::string k = g.node("Transpose", {g.feed(dims)},
                               {{"perm", w.is_flat ? ints({0, 2, 1}) : ints({0, 1, 3, 2})}});
  std::string scores =
      g.node("Mul", {g.node("MatMul", {g.feed(dims), k}), g.constant(f32({}, {0.6}))});
  if (w.softcap != 0) {
    const std::string cap = g.constant(f32({}, {static_cast<double>(w.softcap)}));
    scores = g.node("Mul", {cap, g.node("Tanh", {g.node("Div", {scores, cap})})});
  }
  const Dims mask{w.is_flat ? 6 : 2, 1, w.positions};
  if (w.chosen) {
    const std::string choice = g.feed(
        random.tensor(ElementType::Bool, w.is_flat ? mask : Dims{2, 1, 1, w.positions}, 0, 1));
    const std::string other = g.constant(f32({}, {-1e4}));
    scores = *w.chosen ? g.node("Where", {choice, scores, other})
                       : g.node("Where", {choice, other, scores});
  } else {
    scores = g.node("Add", {scores, g.feed({w.positions}, -2, 0)});
  }
  const std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  std::vector<std::string> outputs{g.node("MatMul", {weights, g.feed(dims)})};
  if (w.is_read) outputs.push_back(scores);
  return g.done(outputs);
}

void expect_one_step(const Writing& w) {
  Random random(3);
  const GraphCase graph = written_attention(random, w);
  for (const std::string precision : {"fp32", "fp16"}) {
    const std::string text = explain(graph, w.is_flat ? 3 : 4, {{"precision", precision}});
    const bool is_librarys = precision == "fp16" && w.softcap == 0 && !w.chosen;
    const std::string how = w.positions == 3 ? "by rows" : is_librarys ? "cudnn" : "by parts";
    EXPECT_NE(text.find("cuda:attention " + how), std::string::npos) << text;
    EXPECT_LE(step_count(text), precision == "fp32" ? 1u : 6u) << text;
  }
}

TEST(CudaModels, AttentionIsOneStepHoweverItsScoresAreMade) {
  for (const bool is_flat : {false, true}) {
    for (const float softcap : {0.0f, 1.5f}) {
      for (const std::optional<bool> chosen : {std::optional<bool>(), {false}, {true}}) {
        for (const std::int64_t positions : {3, 6})
          expect_one_step({positions, is_flat, softcap, chosen});
      }
    }
  }
  Random random(3);
  GraphCase read = written_attention(random, {.chosen = true, .is_read = true});
  EXPECT_EQ(explain(read, 4).find("cuda:attention"), std::string::npos);
}

/// A layer of BERT as PyTorch writes it where neither batch nor length is known: its reshapes compute their shapes.
class EncoderLayer {
 public:
  EncoderLayer(std::int64_t heads, std::int64_t width)
      : g_(13, random_), heads_(heads), width_(width) {
    const std::int64_t all = heads * width;
    x_ = g_.feed({1, 1, all});
    const std::string mask = g_.feed({1, 1, 1, 1});
    const std::string q = part({0, 2, 1, 3}), k = part({0, 2, 3, 1}), v = part({0, 2, 1, 3});
    const std::string scores =
        g_.node("Div", {g_.node("MatMul", {q, k}), g_.constant(f32({}, {2.5}))});
    const std::string weights =
        g_.node("Softmax", {g_.node("Add", {scores, mask})}, {{"axis", -1}});
    const std::string mixed =
        g_.node("Transpose", {g_.node("MatMul", {weights, v})}, {{"perm", ints({0, 2, 1, 3})}});
    const std::string y = reshape(mixed, mixed, {all});
    graph_ = g_.done({g_.node("MatMul", {y, g_.constant({all, all})})});
    model_.opsets[""] = graph_.opset;
    for (const Node& node : graph_.nodes) model_.nodes.push_back(node);
    for (const auto& [name, tensor] : graph_.constants)
      model_.initializers.emplace_back(name, tensor);
    model_.inputs = {{graph_.feeds[0].first, ElementType::Float, {-1, -1, all}},
                     {graph_.feeds[1].first, ElementType::Float, {-1, 1, -1, -1}}};
    model_.outputs = {{graph_.outputs[0], ElementType::Float, {-1, -1, all}}};
  }
  std::string text() const { return write_model(model_); }
  const std::vector<std::string>& outputs() const { return graph_.outputs; }
  NamedTensors feeds(std::int64_t batch, std::int64_t length, const Dims& mask) {
    return {{graph_.feeds[0].first,
             random_.tensor(ElementType::Float, {batch, length, heads_ * width_}, -1, 1)},
            {graph_.feeds[1].first, random_.tensor(ElementType::Float, mask, -3, 0)}};
  }

 private:
  /// [batch, length, `rest`], of the batch and length of `like`.
  std::string reshape(const std::string& x, const std::string& like,
                      const std::vector<std::int64_t>& rest) {
    std::vector<std::string> dims;
    for (const std::int64_t axis : {0, 1}) {
      const std::string size =
          g_.node("Gather", {g_.node("Shape", {like}), g_.constant(i64({}, {axis}))});
      dims.push_back(g_.node("Unsqueeze", {size, g_.constant(i64({0}))}));
    }
    for (const std::int64_t size : rest) dims.push_back(g_.constant(i64({size})));
    return g_.node("Reshape", {x, g_.node("Concat", dims, {{"axis", 0}})});
  }
  std::string part(const Dims& perm) {
    const std::int64_t all = heads_ * width_;
    const std::string made =
        g_.node("Add", {g_.node("MatMul", {x_, g_.constant({all, all})}), g_.constant({all})});
    return g_.node("Transpose", {reshape(made, x_, {heads_, width_})}, {{"perm", perm}});
  }

  Random random_{1};
  GraphWriter g_;
  std::int64_t heads_, width_;
  std::string x_;
  GraphCase graph_;
  Model model_;
};

/// Runs of several shapes of one session, one after the other, and the same ones again, which are captured.
void expect_all_shapes(EncoderLayer& layer, const Options& options, double limit,
                       const std::string& kernel) {
  Session session(layer.text(), with(options));
  Session processor(layer.text(), {{"providers", "cpu"}});
  struct Shape {
    std::int64_t batch, length;
    Dims mask;
  };
  for (const Shape& shape :
       {Shape{2, 5, {2, 1, 1, 5}}, Shape{1, 1, {1, 1, 1, 1}}, Shape{5, 3, {1, 1, 3, 3}},
        Shape{0, 4, {0, 1, 1, 4}}, Shape{1, 7, {1, 1, 1, 7}}, Shape{2, 5, {2, 1, 1, 5}}}) {
    for (int turn = 0; turn < 3; ++turn) {
      const NamedTensors feeds = layer.feeds(shape.batch, shape.length, shape.mask);
      expect_same(session.run(feeds, layer.outputs()), processor.run(feeds, layer.outputs()),
                  limit);
    }
  }
  const std::string text = session.explain();
  EXPECT_NE(part_of(text, "Softmax_36").find("cuda:attention"), std::string::npos) << text;
  EXPECT_NE(text.find(kernel), std::string::npos) << text;
  EXPECT_NE(text.find("\"state\":\"replayed\""), std::string::npos) << text;
  // The rows that are added are part of the products; values change their form at the ends alone.
  EXPECT_NE(part_of(text, "Add_12").find("\"fused_into\":\"JoinedMatMul"), std::string::npos)
      << text;
  const std::size_t order = text.find("\"order\":[");
  ASSERT_NE(order, std::string::npos);
  const std::string nodes = text.substr(order, text.find(']', order) - order);
  std::size_t changes = 0;
  for (std::size_t at = nodes.find("Reformat"); at != std::string::npos;
       at = nodes.find("Reformat", at + 1))
    ++changes;
  EXPECT_EQ(changes, options.empty() ? 0u : 3u) << nodes;
}

TEST(CudaModels, AttentionOfUnknownDimsIsOneNodeForEveryShape) {
  EncoderLayer layer(3, 8);
  expect_all_shapes(layer, {{"precision", "fp16"}}, 2e-2, "cuda:attention cudnn, float16");
  expect_all_shapes(layer, {}, 1e-4, "cuda:attention by parts: float32");
  EncoderLayer odd(5, 6);
  expect_all_shapes(odd, {{"precision", "bf16"}}, 2e-1, "cuda:attention by parts: heads of 6");
}

/// Scores that are scaled and masked before Softmax, and a sum that is normalised and read by others too.
GraphCase rows_graph(Random& random) {
  GraphWriter g(17, random);
  const std::string x = g.feed({2, 3, 5, 24});
  std::string scores = g.node("MatMul", {x, g.constant({24, 24})});
  scores = g.node("Mul", {scores, g.constant(f32({}, {0.25}))});
  scores = g.node("Add", {g.feed({2, 1, 1, 24}, -2, 0), scores});
  const std::string y = g.node("Softmax", {scores}, {{"axis", -1}});
  const std::string sum = g.node("Add", {g.node("Tanh", {y}), x});
  const std::string normal =
      g.node("LayerNormalization", {sum, g.constant({24}), g.constant({24})});
  const std::string most = g.node("ReduceMax", {g.node("Abs", {normal})}, {{"axes", ints({3})}});
  return g.done({g.node("Sub", {sum, most})});
}

TEST(CudaModels, RowsTakeOverWhatIsElementWiseBeforeThem) {
  Random random(1);
  const GraphCase graph = rows_graph(random);
  for (const bool is_half : {false, true}) {
    const std::string text = explain(graph, 4, {{"precision", is_half ? "fp16" : "fp32"}});
    for (const auto& [name, row] :
         {std::pair("Mul_1", "Softmax_3"), std::pair("Add_2", "Softmax_3"),
          std::pair("Tanh_4", "LayerNormalization_6"), std::pair("Add_5", "LayerNormalization_6"),
          std::pair("Abs_7", "ReduceMax_8")})
      EXPECT_NE(part_of(text, name).find("\"fused_into\":\"" + std::string(row)), std::string::npos)
          << text;
    for (const char* const row : {"Softmax_3", "LayerNormalization_6", "ReduceMax_8"})
      EXPECT_EQ(part_of(text, row).find("makes fp16") != std::string::npos, is_half) << text;
  }
  const std::string plain = explain(graph, 4, {{"provider.cuda_stand_in.fusion", "false"}});
  EXPECT_EQ(plain.find("\"fused_into\":\""), std::string::npos) << plain;
}

TEST(CudaModels, NodesOfSymbolicDimsAreFusedAndRightForAllSizes) {
  Random random(1);
  const SymbolicCase symbolic = feed_forward_case(random);
  std::string explanation;
  const Outcome outcome = run_symbolic(symbolic, with({}), &explanation);
  ASSERT_EQ(outcome.kind, Outcome::Kind::Passed) << outcome.text;
  EXPECT_EQ(step_count(explanation), kFeedForwardSteps) << explanation;
}

/// Heads between two products, turned by angles that are fed.
TEST(CudaModels, HalvesThatAreTurnedStayIn16BitsWhereTheirMakerIs) {
  Random random(1);
  GraphWriter g(18, random);
  const std::string rows = g.node("MatMul", {g.feed({1, 5, 32}), g.constant({32, 32}, -0.3, 0.3)});
  const std::string apart = g.node("Reshape", {rows, g.constant(i64({1, 5, 2, 16}))});
  const std::string x = g.node("Transpose", {apart}, {{"perm", ints({0, 2, 1, 3})}});
  const auto parts = g.nodes("Split", {x, g.constant(i64({8, 8}))}, 2, {{"axis", -1}});
  const std::string turned =
      g.node("Concat", {g.node("Neg", {parts[1]}), parts[0]}, {{"axis", -1}});
  const std::string y = g.node(
      "Add", {g.node("Mul", {x, g.feed({5, 16})}), g.node("Mul", {turned, g.feed({5, 16})})});
  const std::string z = g.node("MatMul", {y, g.constant({16, 16}, -0.3, 0.3)});
  const std::string text = explain(g.done({z}), 4, {{"precision", "fp16"}});
  EXPECT_NE(part_of(text, "Add_8").find("cuda:rotation"), std::string::npos) << text;
  EXPECT_NE(part_of(text, "Transpose_2").find("\"fused_into\":\"Add_8\""), std::string::npos)
      << text;
  EXPECT_NE(part_of(text, "Add_8").find("makes fp16"), std::string::npos) << text;
}

/// Nothing goes to another provider.
const Options kAlone{{"providers", "cuda_stand_in:0"}, {"fallback", "forbid"}};

TEST(CudaModels, RowsOfNothingAndRowsAcrossAreRight) {
  Random random(1);
  const Outcome outcome = run_symbolic(rows_case(random), kAlone);
  EXPECT_EQ(outcome.kind, Outcome::Kind::Passed) << outcome.text;
}

TEST(CudaModels, RandomGraphsOfSymbolicDimsAreRightForAllSizes) {
  const bool is_full = std::getenv("BACKPLANE_TEST_FULL") != nullptr;
  for (std::uint64_t graph = 0; graph < (is_full ? 100 : 6); ++graph) {
    Random random(graph);
    const Outcome outcome = run_symbolic(random_symbolic_case(random), kAlone);
    ASSERT_EQ(outcome.kind, Outcome::Kind::Passed) << "graph " << graph << ": " << outcome.text;
  }
}

TEST(CudaModels, NodesOfSymbolicDimsAreFusedIn16BitsToo) {
  Random random(1);
  SymbolicCase symbolic = feed_forward_case(random);
  constexpr double kRounded =
      0.05 / 1.1920928955078125e-07;  // of sums of products whose operands are rounded
  for (GraphCase& run : symbolic.runs) run.tolerance = {kRounded, kRounded};
  for (const char* const precision : {"fp16", "bf16"}) {
    std::string explanation;
    const Outcome outcome = run_symbolic(symbolic, with({{"precision", precision}}), &explanation);
    ASSERT_EQ(outcome.kind, Outcome::Kind::Passed) << precision << ": " << outcome.text;
    // What is between the products is made in 16 bits; of the nodes before them, only what they read.
    EXPECT_LE(step_count(explanation), kFeedForwardSteps + 3) << explanation;
  }
}

}  // namespace
}  // namespace backplane::ops_test
