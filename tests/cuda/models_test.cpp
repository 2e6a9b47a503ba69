// Small models on the provider on the stand-in: what it makes of them.
#include <gtest/gtest.h>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/model_writer.hpp"

namespace backplane::ops_test {
namespace {

/// The explanation of a model that is loaded with the provider alone.
std::string explain(const GraphCase& graph) {
  Model model;
  model.opsets[""] = graph.opset;
  for (const Node& node : graph.nodes) model.nodes.push_back(node);
  for (const auto& [name, tensor] : graph.feeds)
    model.inputs.push_back({name, tensor.type, tensor.dims});
  for (const auto& [name, tensor] : graph.constants) model.initializers.emplace_back(name, tensor);
  for (const std::string& name : graph.outputs)
    model.outputs.push_back({name, ElementType::Float, {}});
  Session session(write_model(model), {{"providers", "cuda_stand_in,cpu"}});
  NamedTensors feeds = graph.feeds;
  session.run(feeds, graph.outputs);
  return session.explain();
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
  const std::string text = explain(g.done({g.node("DequantizeLinear", {quantized, scale, zero})}));
  EXPECT_NE(text.find("QuantizedMatMul"), std::string::npos) << text;
  EXPECT_NE(text.find("cublaslt, int8"), std::string::npos) << text;
  EXPECT_EQ(text.find("\"op_type\": \"Relu\""), std::string::npos) << text;
}

}  // namespace
}  // namespace backplane::ops_test
