// Row G1 of core/SESSION.md: graphs are built, changed, run, saved, looked at.
#include <cmath>
#include <limits>

#include "session_test.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GraphBuilding, G1BuiltResolvedRunSavedAndLoaded) {
  const Folder folder;
  Graph graph(environment());
  graph.add_value("x", floats({-1, 3}, {"n"}));
  graph.add_initializer("w", tensor({3, 2}, {1, 2, 3, 4, 5, 6}));
  graph.add_node("MatMul", {"x", "w"}, {"m"}, "product");
  graph.add_node("LeakyRelu", {"m"}, {"y"}, "leak").set("alpha", 0.5f);
  const Value x = tensor({2, 3}, {1, 0, 0, -1, 0, 1});
  const std::vector<float> wanted = {1, 2, 4, 4};
  const Session built(environment(), graph);
  EXPECT_EQ(elements(built.run({{"x", x}})[0]), wanted);
  graph.save(folder.file("m.onnx"));
  EXPECT_EQ(folder.file_count(), 1u);
  const Session loaded(environment(), folder.file("m.onnx"));
  EXPECT_EQ(elements(loaded.run({{"x", x}})[0]), wanted);
  EXPECT_EQ(loaded.inputs()[0].symbols[0], "n");
  const std::string bytes = graph.serialize();
  EXPECT_EQ(bytes, contents(folder.file("m.onnx")));
}

TEST(GraphBuilding, G1NodesMayBeAddedAndRemovedBetweenResolves) {
  Graph graph(environment());
  graph.add_value("x", floats({1}));
  std::vector<Graph::Node> chain;
  std::string last = "x";
  for (int i = 0; i < 5; ++i) {
    const std::string next = "v" + std::to_string(i);
    graph.add_initializer("c" + std::to_string(i), tensor({static_cast<float>(1 << i)}));
    chain.push_back(
        graph.add_node("Add", {last, "c" + std::to_string(i)}, {next}, "add" + std::to_string(i)));
    last = next;
  }
  const Value x = tensor({100});
  const auto result = [&] { return elements(Session(environment(), graph).run({{"x", x}})[0])[0]; };
  EXPECT_EQ(result(), 131);
  graph.remove_node(chain[2]);  // and another takes its place
  graph.add_node("Identity", {"v1"}, {"v2"}, "add2");
  EXPECT_EQ(result(), 127);
  graph.remove_node(chain[4]);
  EXPECT_EQ(result(), 111);
  EXPECT_THAT(error_of([&] { graph.remove_node(chain[4]); }), HasSubstr("the graph has no node 4"));
  EXPECT_THAT(error_of([&] { chain[2].set("axis", 1); }), HasSubstr("the graph has no node 2"));
}

TEST(GraphBuilding, G1SessionsDoNotSeeLaterChanges) {
  Graph graph(environment());
  graph.add_value("x", floats({1}));
  const Graph::Node node = graph.add_node("Neg", {"x"}, {"y"});
  const Session session(environment(), graph);
  graph.remove_node(node);
  graph.add_node("Relu", {"x"}, {"y"});
  const Value x = tensor({-3});
  EXPECT_THAT(elements(session.run({{"x", x}})[0]), ElementsAre(3));
  EXPECT_THAT(elements(Session(environment(), graph).run({{"x", x}})[0]), ElementsAre(0));
}

/// The attributes of node `name`, kind by name, of a described graph.
json attributes(Graph& graph, const std::string& name) {
  const json described = json::parse(graph.describe());
  for (const json& node : described["nodes"]) {
    if (node["name"] == name) return node["attributes"];
  }
  return {};
}

TEST(GraphBuilding, G1AttributesOfEveryKind) {
  Graph graph(environment());
  graph.add_value("x", floats({1, 1, 2, 2}))
      .add_value("i", GraphType::tensor(ElementType::Int64, {1}));
  graph.add_node("MaxPool", {"x"}, {"p"}, "pool")
      .set("kernel_shape", std::vector<std::int64_t>{2, 2})
      .set("auto_pad", "VALID");
  graph.add_node("Constant", {}, {"t"}, "tensor").set("value", tensor({1.5f}));
  graph.add_node("Constant", {}, {"f"}, "floats").set("value_floats", std::vector<float>{1, 2});
  graph.add_node("Constant", {}, {"s"}, "strings").set("value_strings", Names{"a", "", "b\n"});
  graph.add_node("Elu", {"x"}, {"e"}, "elu").set("alpha", 2.0f);
  graph.add_node("Optional", {}, {"none"}, "optional").set("type", GraphType("tensor(float)", {2}));
  graph.add_node("Cast", {"i"}, {"c"}, "cast").set("to", 1);
  EXPECT_EQ(attributes(graph, "pool"), json({{"kernel_shape", "ints"}, {"auto_pad", "string"}}));
  EXPECT_EQ(attributes(graph, "tensor"), json({{"value", "tensor"}}));
  EXPECT_EQ(attributes(graph, "strings"), json({{"value_strings", "strings"}}));
  EXPECT_EQ(attributes(graph, "floats"), json({{"value_floats", "floats"}}));
  EXPECT_EQ(attributes(graph, "elu"), json({{"alpha", "float"}}));
  EXPECT_EQ(attributes(graph, "optional"), json({{"type", "type"}}));
  EXPECT_EQ(attributes(graph, "cast"), json({{"to", "int"}}));
  graph.remove_node(graph.find_node("optional"));
  const Session session(environment(), graph);
  const Value x = tensor({1, 1, 2, 2}, {-1, 2, 3, -4});
  const Value i = Value::tensor<std::int64_t>({1}, {7});
  const std::vector<Value> results = session.run({{"x", x}, {"i", i}}, {"p", "t", "f", "s", "c"});
  EXPECT_THAT(elements(results[0]), ElementsAre(3));
  EXPECT_THAT(elements(results[1]), ElementsAre(1.5f));
  EXPECT_THAT(elements(results[2]), ElementsAre(1, 2));
  EXPECT_EQ(results[3].string(2), "b\n");
  EXPECT_THAT(elements(results[4]), ElementsAre(7));
  graph.find_node("elu").remove_attribute("alpha");
  EXPECT_EQ(attributes(graph, "elu"), json::object());
  EXPECT_THAT(error_of([&] { graph.find_node("elu").remove_attribute("alpha"); }),
              HasSubstr("has no attribute 'alpha'"));
}

TEST(GraphBuilding, G1BodiesNestAndAreCopied) {
  Graph inner;
  inner.add_node("Add", {"x", "x"}, {"doubled"});
  Graph inner_else;
  inner_else.add_node("Neg", {"x"}, {"negated"});
  Graph outer_then;
  outer_then.add_node("If", {"second"}, {"chosen"}, "inner")
      .set("then_branch", inner)
      .set("else_branch", inner_else);
  Graph outer_else;
  outer_else.add_node("Identity", {"x"}, {"same"});
  Graph graph(environment());
  graph.add_value("first", GraphType::tensor(ElementType::Bool, {}));
  graph.add_value("second", GraphType::tensor(ElementType::Bool, {}));
  graph.add_value("x", floats({2}));
  graph.add_node("If", {"first"}, {"y"}, "outer")
      .set("then_branch", outer_then)
      .set("else_branch", outer_else);
  inner.add_node("Relu", {"doubled"}, {"not_in_the_graph"});
  graph.resolve();
  EXPECT_THAT(names(graph.inputs()), ElementsAre("first", "x", "second"));
  EXPECT_THAT(graph.outputs()[0].dims, ElementsAre(2));
  const std::string bytes = graph.serialize();
  EXPECT_THAT(bytes, HasSubstr("doubled"));
  EXPECT_THAT(bytes, ::testing::Not(HasSubstr("not_in_the_graph")));
}

TEST(GraphBuilding, G1BodiesMayNotBeNestedForEver) {
  Graph body;
  body.add_initializer("c", Value::tensor<float>({}, {1}));
  body.set_outputs({"c"});
  const std::string message = error_of([&] {
    for (int depth = 0; depth < 100; ++depth) {
      Graph around;
      around.add_node("If", {"cond"}, {"y"}).set("then_branch", body).set("else_branch", body);
      body = std::move(around);
      if (depth > 6) throw Error(BACKPLANE_OK, "deep enough: each copy doubles");
    }
  });
  EXPECT_EQ(message, "deep enough: each copy doubles");
  Graph chain;
  chain.add_node("Neg", {"x"}, {"y"});
  EXPECT_THAT(error_of([&] {
                for (int depth = 0; depth < 100; ++depth) {
                  Graph around;
                  around.add_node("Loop", {"", "cond"}, {"y"}).set("body", chain);
                  chain = std::move(around);
                }
              }),
              HasSubstr("nested more than 64 deep"));
}

TEST(GraphBuilding, G1FilesAreChanged) {
  const Folder folder;
  Graph first(environment());
  first.set_ir_version(8).set_opset("", 17);
  first.add_value("x", floats({2}));
  first.add_initializer("w", tensor({2, 3}));
  first.add_node("Mul", {"x", "w"}, {"m"}, "mul");
  first.add_node("Relu", {"m"}, {"y"}, "relu");
  first.save(folder.file("first.onnx"));
  Graph second = Graph::load(environment(), folder.file("first.onnx"));
  second.remove_node(second.find_node("relu"));
  second.add_node("Neg", {"m"}, {"z"}, "neg");
  EXPECT_THAT(error_of([&] { second.resolve(); }), HasSubstr("graph output 'y' is made by no node"))
      << "a file's outputs stay as they are";
  second.set_outputs({"z"}).add_initializer("w", tensor({10, 10})).save(folder.file("second.onnx"));
  const Session session(environment(), folder.file("second.onnx"));
  const Value x = tensor({1, -1});
  EXPECT_THAT(elements(session.run({{"x", x}})[0]), ElementsAre(-10, 10));
  EXPECT_EQ(session.model_info().ir_version, 8);
  EXPECT_EQ(session.opset(), 17);
}

TEST(GraphBuilding, G1SavingIsAllOrNothing) {
  const Folder folder;
  Graph graph(environment());
  graph.add_value("x", floats({2}));
  graph.add_node("Neg", {"x"}, {"y"});
  graph.save(folder.file("m.onnx"));
  const std::string before = contents(folder.file("m.onnx"));
  graph.add_node("NoSuchOperator", {"y"}, {"z"});
  std::int32_t code = BACKPLANE_OK;
  EXPECT_THAT(error_of([&] { graph.save(folder.file("m.onnx")); }, &code),
              HasSubstr("NoSuchOperator"));
  EXPECT_EQ(code, BACKPLANE_UNSUPPORTED);
  EXPECT_EQ(contents(folder.file("m.onnx")), before);
  EXPECT_EQ(folder.file_count(), 1u) << "nothing half written is left";
  graph.remove_node(graph.find_node("NoSuchOperator_1"));
  EXPECT_THAT(error_of([&] { graph.save(folder.file("no/such/folder/m.onnx")); }),
              HasSubstr("no/such/folder/m.onnx"));
  EXPECT_THAT(error_of([&] { graph.save(folder.file(".")); }), HasSubstr("it is a folder"));
}

TEST(GraphBuilding, G1ExternalDataLieBesideTheModel) {
  const Folder folder;
  std::vector<float> weight(1000);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i);
  Graph graph(environment());
  graph.add_value("x", floats({1000}));
  graph.add_initializer("w", tensor(weight)).add_initializer("small", tensor({1}));
  graph.add_node("Add", {"x", "w"}, {"a"});
  graph.add_node("Mul", {"a", "small"}, {"y"});
  graph.save(folder.file("m.onnx"), BACKPLANE_EXTERNAL_ALWAYS);
  EXPECT_EQ(contents(folder.file("m.onnx.data")).size(), 4000u);
  EXPECT_LT(contents(folder.file("m.onnx")).size(), 1000u);
  const Session session(environment(), folder.file("m.onnx"));
  const Value x = tensor(std::vector<float>(1000, 1));
  EXPECT_EQ(elements(session.run({{"x", x}})[0])[999], 1000);
  // A loaded model's contents are mapped; saving over its own files must not pull them away.
  Graph loaded = Graph::load(environment(), folder.file("m.onnx"));
  loaded.save(folder.file("m.onnx"), BACKPLANE_EXTERNAL_ALWAYS);
  EXPECT_EQ(elements(Session(environment(), folder.file("m.onnx")).run({{"x", x}})[0])[999], 1000);
  graph.save(folder.file("whole.onnx"), BACKPLANE_EXTERNAL_NEVER);
  EXPECT_GT(contents(folder.file("whole.onnx")).size(), 4000u);
  EXPECT_EQ(folder.file_count(), 3u);
}

TEST(GraphBuilding, G1WrongCallsAreErrors) {
  Graph graph(environment());
  graph.add_value("x", floats({2}));
  graph.add_node("Neg", {"x"}, {"y"}, "neg");
  EXPECT_THAT(error_of([&] { graph.add_node("Neg", {"x"}, {"z"}, "neg"); }),
              HasSubstr("a node 'neg' already"));
  EXPECT_THAT(error_of([&] { graph.add_node("Relu", {"x"}, {"y"}); }),
              HasSubstr("its output 'y' is also made by node 'neg' (Neg)"));
  EXPECT_THAT(error_of([&] {
                graph.add_node("Split", {"x"}, {"a", "a"});
              }),
              HasSubstr("stands twice"));
  EXPECT_THAT(error_of([&] { graph.add_initializer("y", tensor({1})); }),
              HasSubstr("the initializer 'y' is also made by node 'neg'"));
  EXPECT_THAT(error_of([&] { graph.add_node("", {"x"}, {"q"}); }), HasSubstr("'op_type' is empty"));
  EXPECT_THAT(error_of([&] { graph.find_node("nobody"); }), HasSubstr("no node 'nobody'"));
  EXPECT_THAT(error_of([&] { graph.remove_initializer("x"); }), HasSubstr("no initializer 'x'"));
  EXPECT_THAT(error_of([&] { GraphType("tensor(flot)"); }), HasSubstr("is no ONNX type"));
  EXPECT_THAT(error_of([&] { floats({-2}); }), HasSubstr("the dimension 0 is -2"));
  EXPECT_THAT(error_of([&] { graph.set_text(99, "?"); }), HasSubstr("no text 99"));
  EXPECT_THAT(error_of([&] { graph.set_ir_version(0); }), HasSubstr("no IR version 0"));
  graph.add_node("Gemm", {"y"}, {"g"}, "short");
  EXPECT_THAT(error_of([&] { graph.resolve(); }), HasSubstr("'short'"));
  graph.remove_node(graph.find_node("short"));
  graph.set_opset("", 0);
  EXPECT_THAT(error_of([&] { graph.resolve(); }), HasSubstr("imports no opset"));
  graph.set_opset("", 21).resolve();
  EXPECT_THAT(names(graph.outputs()), ElementsAre("y"));
}

}  // namespace
}  // namespace backplane::session_test
