// Small models on the provider on the stand-in: what it makes of them.
#include <gtest/gtest.h>
#include <utility>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/model_writer.hpp"

namespace backplane::ops_test {
namespace {

/// The explanation of a model that has run on the provider, with the outputs of the processor's; they have `rank` axes and may
/// differ by what half types round off.
std::string explain(const GraphCase& graph, std::size_t rank, const Options& options = {}) {
  Model model;
  model.opsets[""] = graph.opset;
  for (const Node& node : graph.nodes) model.nodes.push_back(node);
  for (const auto& [name, tensor] : graph.feeds)
    model.inputs.push_back({name, tensor.type, tensor.dims});
  for (const auto& [name, tensor] : graph.constants) model.initializers.emplace_back(name, tensor);
  for (const std::string& name : graph.outputs)
    model.outputs.push_back({name, ElementType::Float, Dims(rank, -1)});
  Options all{{"providers", "cuda_stand_in:0,cuda_stand_in:1,cpu"}};
  all.insert(all.end(), options.begin(), options.end());
  Session session(write_model(model), all);
  Session processor(write_model(model), {{"providers", "cpu"}});
  const std::vector<Tensor> got = session.run(graph.feeds, graph.outputs),
                            want = processor.run(graph.feeds, graph.outputs);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].dims, want[i].dims);
    const auto values = to_array(got[i]).values, right = to_array(want[i]).values;
    for (std::size_t j = 0; j < right.size(); ++j) EXPECT_NEAR(values[j], right[j], 1e-2) << j;
  }
  return session.explain();
}

/// What the explanation says of a node.
std::string part_of(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find("{\"name\":\"" + name + "\"");
  return begin == std::string::npos ? "" : text.substr(begin, text.find('}', begin) - begin);
}

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
  EXPECT_EQ(exact.find("cuda:attention"), std::string::npos) << exact;
  EXPECT_NE(exact.find("cuDNN's is of fp16 and bf16"), std::string::npos) << exact;
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

}  // namespace
}  // namespace backplane::ops_test
