// Rows L7, D3 and, of L2, the saved optimized model, of core/SESSION.md.
#include "session_test.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ModelInfo, L7IsSetSavedAndRead) {
  Graph graph(environment());
  graph.add_value("x", floats({2}));
  graph.add_node("Neg", {"x"}, {"y"});
  graph.set_ir_version(9).set_opset("", 18).set_model_version(42);
  graph.set_text(BACKPLANE_TEXT_PRODUCER_NAME, "a test");
  graph.set_text(BACKPLANE_TEXT_PRODUCER_VERSION, "1.2");
  graph.set_text(BACKPLANE_TEXT_DOMAIN, "org.example");
  graph.set_text(BACKPLANE_TEXT_DESCRIPTION, "negates");
  graph.set_text(BACKPLANE_TEXT_GRAPH_NAME, "main");
  graph.set_text(BACKPLANE_TEXT_GRAPH_DESCRIPTION, "one node");
  graph.set_metadata("key", "value").set_metadata("other", "");
  const std::string bytes = graph.serialize();
  const Session session(environment(), bytes.data(), bytes.size());
  const ModelInfo info = session.model_info();
  EXPECT_EQ(info.producer_name, "a test");
  EXPECT_EQ(info.producer_version, "1.2");
  EXPECT_EQ(info.domain, "org.example");
  EXPECT_EQ(info.description, "negates");
  EXPECT_EQ(info.graph_name, "main");
  EXPECT_EQ(info.graph_description, "one node");
  EXPECT_EQ(info.version, 42);
  EXPECT_EQ(info.ir_version, 9);
  EXPECT_EQ(info.metadata, (std::map<std::string, std::string>{{"key", "value"}, {"other", ""}}));
  EXPECT_EQ(session.opset(), 18);
  EXPECT_EQ(session.opset("ai.onnx"), 18);
  EXPECT_EQ(session.opset("ai.onnx.ml"), 0);
  const json explained = json::parse(session.explain());
  EXPECT_EQ(explained["producer"]["name"], "a test");
  EXPECT_EQ(explained["model"]["domain"], "org.example");
  EXPECT_EQ(explained["model"]["version"], 42);
  EXPECT_EQ(explained["model"]["description"], "negates");
  EXPECT_EQ(explained["metadata"]["key"], "value");
}

/// q = QuantizeLinear(x), d = DequantizeLinear(q), y = Identity(d) + 1, with annotations.
Graph annotated() {
  Graph graph(environment());
  graph.set_opset("", 13).set_ir_version(8);
  graph.add_value("x", floats({2}));
  graph.add_initializer("scale", Value::tensor<float>({}, {0.5f}));
  graph.add_initializer("zero", Value::tensor<std::uint8_t>({}, {128}));
  graph.add_initializer("only_named", Value::tensor<float>({}, {0.25f}));
  graph.add_node("QuantizeLinear", {"x", "scale", "zero"}, {"q"});
  graph.add_node("DequantizeLinear", {"q", "scale", "zero"}, {"d"});
  graph.add_node("Identity", {"d"}, {"same"});
  graph.add_initializer("one", tensor({1, 1}));
  graph.add_node("Add", {"same", "one"}, {"y"});
  graph.annotate("x", "SCALE_TENSOR", "scale").annotate("x", "ZERO_POINT_TENSOR", "zero");
  graph.annotate("same", "SCALE_TENSOR", "only_named");
  return graph;
}

TEST(QuantizationAnnotations, D3AreReadAndSaved) {
  Graph graph = annotated();
  const std::string bytes = graph.serialize();
  for (const char* level : {"none", "basic", "all"}) {
    const Session session(environment(), bytes.data(), bytes.size(),
                          Options().set("optimization", level));
    EXPECT_EQ(session.quantization("x", "SCALE_TENSOR"), "scale") << level;
    EXPECT_EQ(session.quantization("x", "ZERO_POINT_TENSOR"), "zero") << level;
    EXPECT_EQ(session.quantization("same", "SCALE_TENSOR"), "only_named") << level;
    EXPECT_EQ(session.quantization("q", "SCALE_TENSOR"), "") << level;
    EXPECT_EQ(json::parse(session.explain())["quantization"]["x"]["ZERO_POINT_TENSOR"], "zero")
        << level;
  }
}

TEST(QuantizationAnnotations, D3SurvivePassesIntoTheSavedModel) {
  const Folder folder;
  Graph graph = annotated();
  const Session session(
      environment(), graph,
      Options().set("optimization", "basic").set("optimized_model_path", folder.file("o.onnx")));
  const Session saved(environment(), folder.file("o.onnx"), Options().set("optimization", "none"));
  EXPECT_EQ(saved.quantization("x", "SCALE_TENSOR"), "scale");
  // The Identity is gone, and its annotation went with the value that is left.
  EXPECT_EQ(saved.quantization("d", "SCALE_TENSOR"), "only_named");
  const std::vector<Value> named = saved.run({}, {"only_named"});
  EXPECT_THAT(elements(named[0]), ElementsAre(0.25f)) << "nobody but the annotation names it";
}

TEST(QuantizationAnnotations, D3ValuesAnnotatedDifferentlyStayApart) {
  Graph graph(environment());
  graph.add_value("x", floats({2}));
  for (const char* name : {"s1", "s2"}) graph.add_initializer(name, tensor({1}));
  graph.add_node("Neg", {"x"}, {"a"});
  graph.add_node("Identity", {"a"}, {"b"});
  graph.add_node("Relu", {"b"}, {"y"});
  graph.annotate("a", "SCALE_TENSOR", "s1").annotate("b", "SCALE_TENSOR", "s2");
  const Folder folder;
  const Session session(
      environment(), graph,
      Options().set("optimization", "basic").set("optimized_model_path", folder.file("o.onnx")));
  const Session saved(environment(), folder.file("o.onnx"));
  EXPECT_EQ(saved.quantization("a", "SCALE_TENSOR"), "s1");
  EXPECT_EQ(saved.quantization("b", "SCALE_TENSOR"), "s2");
}

/// A convolution with a bias and an activation: what providers fuse.
Graph convolution() {
  Graph graph(environment());
  graph.set_opset("", 17).set_ir_version(8);
  graph.add_value("x", floats({1, 4, 8, 8}));
  std::vector<float> weight(8 * 4 * 3 * 3);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 7) - 3;
  graph.add_initializer("w", tensor({8, 4, 3, 3}, weight));
  graph.add_initializer("twice", tensor({2}));
  graph.add_initializer("b", tensor({1, 8, 1, 1}, std::vector<float>(8, 1)));
  graph.add_node("Mul", {"b", "twice"}, {"bias"}, "folded");
  graph.add_node("Conv", {"x", "w"}, {"c"}, "conv")
      .set("pads", std::vector<std::int64_t>{1, 1, 1, 1});
  graph.add_node("Add", {"c", "bias"}, {"a"}, "add");
  graph.add_node("Relu", {"a"}, {"y"}, "relu");
  return graph;
}

Value ramp() {
  Value x = Value::tensor<float>({1, 4, 8, 8});
  for (std::uint64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i % 13) - 6;
  return x;
}

TEST(OptimizedModel, L2BasicIsPlainOnnx) {
  const Folder folder;
  Graph graph = convolution();
  const Value x = ramp();
  const Session session(
      environment(), graph,
      Options().set("optimization", "basic").set("optimized_model_path", folder.file("o.onnx")));
  const std::vector<float> wanted = elements(session.run({{"x", x}})[0]);
  const Session saved(environment(), folder.file("o.onnx"), Options().set("optimization", "none"));
  EXPECT_EQ(elements(saved.run({{"x", x}})[0]), wanted);
  Names ops;
  const json explained = json::parse(saved.explain());
  for (const json& node : explained["nodes"]) ops.push_back(node["op"]);
  EXPECT_THAT(ops, ElementsAre("Conv", "Add", "Relu"));
  EXPECT_EQ(saved.model_info().metadata.count("backplane.device"), 0u);
  EXPECT_THAT(contents(folder.file("o.onnx")), Not(HasSubstr("twice")))
      << "what was folded is gone";
}

TEST(OptimizedModel, L2AboveBasicItIsForOneDevice) {
  const Folder folder;
  Graph graph = convolution();
  const Value x = ramp();
  const Session session(environment(), graph,
                        Options().set("optimized_model_path", folder.file("o.onnx")));
  const std::vector<float> wanted = elements(session.run({{"x", x}})[0]);
  const Session saved(environment(), folder.file("o.onnx"));
  EXPECT_EQ(elements(saved.run({{"x", x}})[0]), wanted);
  const std::map<std::string, std::string> metadata = saved.model_info().metadata;
  ASSERT_EQ(metadata.count("backplane.device"), 1u) << "the provider was expected to fuse";
  EXPECT_EQ(metadata.at("backplane.device"), "cpu");
  EXPECT_THAT(metadata.at("backplane.warning"), HasSubstr("only this device"));
  Graph loaded;
  std::int32_t code = BACKPLANE_OK;
  EXPECT_THAT(error_of([&] { loaded = Graph::load(environment(), folder.file("o.onnx")); }, &code),
              HasSubstr("saved after optimization for the device 'cpu'"));
  EXPECT_EQ(code, BACKPLANE_UNSUPPORTED);
}

TEST(OptimizedModel, L2LoadingItElsewhereSaysWhyNot) {
  const Folder folder;
  Graph graph = convolution();
  const Session session(environment(), graph,
                        Options().set("optimized_model_path", folder.file("o.onnx")));
  std::string bytes = contents(folder.file("o.onnx"));
  const std::string key = "backplane.device_identity";
  const std::size_t place = bytes.find(key);
  ASSERT_NE(place, std::string::npos);
  bytes[place + key.size() + 5] ^= 1;  // another device's
  std::int32_t code = BACKPLANE_OK;
  const std::string message =
      error_of([&] { const Session other(environment(), bytes.data(), bytes.size()); }, &code);
  EXPECT_EQ(code, BACKPLANE_UNSUPPORTED);
  EXPECT_THAT(message, HasSubstr("the device 'cpu'"));
  EXPECT_THAT(message, HasSubstr("load the model that it was made from"));
}

TEST(OptimizedModel, L2PlacesThatCannotBeWrittenAreErrors) {
  Graph graph = convolution();
  EXPECT_THAT(error_of([&] {
                const Session session(
                    environment(), graph,
                    Options().set("optimized_model_path", "no/such/folder/o.onnx"));
              }),
              HasSubstr("no/such/folder/o.onnx"));
}

}  // namespace
}  // namespace backplane::session_test
