#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto_models.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

::onnx::NodeProto call(const std::string& function, const std::string& input,
                       const std::string& output, const std::string& name = "") {
  auto proto = node(function, {input}, {output}, name);
  proto.set_domain("local");
  return proto;
}

::onnx::ModelProto with_import(::onnx::ModelProto model) {
  auto* import = model.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  return model;
}

::onnx::FunctionProto& add_function(::onnx::ModelProto& model, const std::string& name,
                                    const std::vector<::onnx::NodeProto>& nodes,
                                    std::int64_t opset = 17) {
  auto& function = *model.add_functions();
  function.set_name(name);
  function.set_domain("local");
  function.add_input("in");
  function.add_output("out");
  for (const auto& proto : nodes) *function.add_node() = proto;
  function.add_opset_import()->set_version(opset);
  auto* local = function.add_opset_import();
  local->set_domain("local");
  local->set_version(1);
  return function;
}

TEST(Functions, AreInlinedAndTheirNodesKnowTheCall) {
  auto model =
      with_import(model_of({node("Relu", {"x"}, {"a"}, "relu"), call("F", "a", "b", "the_call"),
                            node("Neg", {"b"}, {"y"}, "neg")}));
  add_function(model, "F", {node("Abs", {"in"}, {"t"}), call("G", "t", "out")});
  add_function(model, "G", {node("Sqrt", {"in"}, {"u"}), node("Exp", {"u"}, {"out"})});
  const Model imported = import_text(model.SerializeAsString());
  const Graph& graph = imported.graph;
  ASSERT_EQ(graph.node_count(), 5u);
  const char* ops[] = {"Relu", "Abs", "Sqrt", "Exp", "Neg"};
  const int origins[] = {0, 1, 1, 1, 2};
  for (const NodeId id : IdRange<NodeId>(5)) {
    EXPECT_EQ(graph.node(id).op_type, ops[id.index()]);
    EXPECT_THAT(graph.node(id).origins, ElementsAre(origins[id.index()]));
  }
  ASSERT_EQ(imported.original.size(), 3u);
  EXPECT_EQ(imported.original[1].name, "the_call");
  EXPECT_EQ(shape_of(graph, "y"), "tensor(float)[2,3]");
}

TEST(Functions, KeepTheirOpsetVersions) {
  // ReduceSum took its axes as an attribute until opset 12.
  auto model = with_import(model_of({call("F", "x", "y")}));
  auto reduce = node("ReduceSum", {"in"}, {"out"});
  auto* axes = reduce.add_attribute();
  axes->set_name("axes");
  axes->set_type(::onnx::AttributeProto::INTS);
  axes->add_ints(1);
  add_function(model, "F", {reduce}, 11);
  const Model imported = import_text(model.SerializeAsString());
  EXPECT_EQ(imported.graph.node(NodeId(0)).since_version, 11);
  EXPECT_EQ(imported.opsets.at(""), 17);
  EXPECT_EQ(shape_of(imported.graph, "y"), "tensor(float)[2,1]");
}

TEST(Functions, BindAttributes) {
  auto model = with_import(model_of({call("F", "x", "y")}));
  set_int(*model.mutable_graph()->mutable_node(0), "along", 1);
  auto softmax = node("Softmax", {"in"}, {"out"});
  auto* axis = softmax.add_attribute();
  axis->set_name("axis");
  axis->set_type(::onnx::AttributeProto::INT);
  axis->set_ref_attr_name("along");
  add_function(model, "F", {softmax}).add_attribute("along");
  const Model imported = import_text(model.SerializeAsString());
  EXPECT_THAT(imported.graph.node(NodeId(0)).attributes.at("axis").ints, ElementsAre(1));
}

TEST(Functions, CallsThatLeaveAttributesOutGetTheDefaults) {
  auto model = with_import(model_of({call("F", "x", "t"), call("G", "t", "y")}));
  set_int(*model.mutable_graph()->mutable_node(0), "along", 1);
  auto softmax = node("Softmax", {"in"}, {"out"});
  auto* axis = softmax.add_attribute();
  axis->set_name("axis");
  axis->set_type(::onnx::AttributeProto::INT);
  axis->set_ref_attr_name("along");
  auto* along = add_function(model, "F", {softmax}).add_attribute_proto();
  along->set_name("along");
  along->set_type(::onnx::AttributeProto::INT);
  along->set_i(0);
  add_function(model, "G", {call("F", "in", "out")});
  const Model imported = import_text(model.SerializeAsString());
  EXPECT_THAT(imported.graph.node(NodeId(0)).attributes.at("axis").ints, ElementsAre(1));
  EXPECT_THAT(imported.graph.node(NodeId(1)).attributes.at("axis").ints, ElementsAre(0));
}

TEST(Functions, AreInlinedInBodies) {
  ::onnx::GraphProto body;
  *body.add_node() = call("F", "x", "r");
  body.add_output()->set_name("r");
  auto branch = node("If", {"c"}, {"y"}, "branch");
  set_graph(branch, "then_branch", body);
  set_graph(branch, "else_branch", body);
  auto model = with_import(model_of({branch}));
  *model.mutable_graph()->add_input() = value_info("c", {}, ::onnx::TensorProto::BOOL);
  add_function(model, "F", {node("Abs", {"in"}, {"t"}), node("Neg", {"t"}, {"out"})});
  const Model imported = import_text(model.SerializeAsString());
  ASSERT_EQ(imported.graph.node_count(), 1u);
  EXPECT_THAT(imported.graph.node(NodeId(0)).origins, ElementsAre(0));
  EXPECT_EQ(imported.graph.node(NodeId(0)).attributes.at("then_branch").graphs.at(0)->node_count(),
            2u);
}

TEST(Functions, ThatBlowUpAreRefusedAtOnce) {
  auto model = with_import(model_of({call("F60", "x", "y")}));
  add_function(model, "F0", {node("Abs", {"in"}, {"out"})});
  for (int i = 1; i <= 60; ++i) {
    const std::string below = "F" + std::to_string(i - 1);
    add_function(model, "F" + std::to_string(i), {call(below, "in", "t"), call(below, "t", "out")});
  }
  EXPECT_THAT(import_error(model), HasSubstr("1000000 nodes"));
}

TEST(Functions, ThatCallTooDeepAreRefused) {
  auto model = with_import(model_of({call("F20000", "x", "y")}));
  add_function(model, "F0", {node("Abs", {"in"}, {"out"})});
  for (int i = 1; i <= 20000; ++i)
    add_function(model, "F" + std::to_string(i), {call("F" + std::to_string(i - 1), "in", "out")});
  EXPECT_THAT(import_error(model), HasSubstr("calls in one another"));
}

TEST(Functions, MistakesAreNamed) {
  auto model = with_import(model_of({call("F", "x", "y", "the_call")}));
  EXPECT_THAT(import_error(model), HasSubstr("'F'"));
  add_function(model, "F", {call("F", "in", "out")});
  EXPECT_THAT(import_error(model), HasSubstr("calls itself"));
  model.clear_functions();
  add_function(model, "F", {node("Abs", {"in"}, {"t"})});
  EXPECT_THAT(import_error(model), ::testing::AllOf(HasSubstr("'F'"), HasSubstr("'out'")));
  model.clear_functions();
  add_function(model, "F", {node("Abs", {"nobody"}, {"out"})});
  EXPECT_THAT(import_error(model),
              ::testing::AllOf(HasSubstr("the node (Abs) that makes 'y'"), HasSubstr("'nobody'")));
  model.clear_functions();
  add_function(model, "F", {node("Abs", {"in"}, {"out"})});
  model.mutable_graph()->mutable_node(0)->add_input("x");
  EXPECT_THAT(import_error(model),
              ::testing::AllOf(HasSubstr("'the_call'"), HasSubstr("2 inputs")));
  model.mutable_graph()->mutable_node(0)->mutable_input()->RemoveLast();
  *model.add_functions() = model.functions(0);
  EXPECT_THAT(import_error(model), HasSubstr("two functions"));
}

}  // namespace
}  // namespace backplane::core
