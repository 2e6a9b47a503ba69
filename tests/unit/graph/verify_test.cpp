#include "core/graph/verify.hpp"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "graph_check.hpp"

namespace backplane::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ConstantPtr floats(const std::vector<float>& values) {
  return Constant::copy_of(DataType::Float, {static_cast<std::int64_t>(values.size())},
                           std::as_bytes(std::span<const float>(values)));
}

std::string fault_in(const Graph& graph, const GraphSurroundings& surroundings = {}) {
  try {
    verify_graph(graph, "after the test", surroundings);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Internal);
    EXPECT_THAT(error.message(), HasSubstr("after the test: "));
    return error.message();
  }
  return "nothing";
}

/// x, w -> add -> sum -> relu -> y; choice, a node with a body that reads sum, makes z.
class Verify : public ::testing::Test {
 protected:
  Verify() {
    const ValueId x = graph.value_named("x");
    graph.add_input(x);
    graph.value(x).type = Type::tensor(DataType::Float, {2});
    graph.add_initializer(graph.value_named("w"), floats({1, 2}));
    value("w").type = Type::tensor(DataType::Float, {2});
    sum = add(graph, "Add", {"x", "w"}, {"sum"}, "add");
    value("sum").type = Type::tensor(DataType::Float, {2});
    relu = add(graph, "Relu", {"sum"}, {"y"}, "relu");
    body = std::make_shared<Graph>();
    body->value(body->value_named("sum")).is_outer = true;
    add(*body, "Neg", {"sum"}, {"negative"}, "neg");
    body->add_output(body->value_named("negative"));
    choice = add(graph, "If", {"x"}, {"z"}, "choice");
    add_attribute(graph, choice, "then_branch", body);
    graph.update_captures();
    graph.add_output(graph.value_named("y"));
    graph.add_output(graph.value_named("z"));
  }

  Value& value(const std::string& name) { return graph.value(graph.find_value(name)); }

  /// The words must be in the error.
  void expect(const std::vector<std::string>& words) const {
    const std::string error = fault_in(graph);
    for (const std::string& word : words) EXPECT_THAT(error, HasSubstr(word));
  }

  Graph graph;
  NodeId sum, relu, choice;
  std::shared_ptr<Graph> body;
};

TEST_F(Verify, FindsNothingInAGraphThatIsRight) {
  EXPECT_EQ(fault_in(graph), "nothing");
  EXPECT_EQ(fault_in(Graph()), "nothing");
  EXPECT_EQ(fault_in(Graph(graph)), "nothing");
  graph.remove_node(relu);
  graph.outputs.erase(graph.outputs.begin());
  value("y").is_output = false;
  EXPECT_EQ(fault_in(graph), "nothing");
}

TEST_F(Verify, AnInputOrOutputThatIsNoValue) {
  graph.node(relu).inputs[0] = ValueId(77);
  expect({"'relu'", "input 0", "77"});
  graph.node(relu).inputs[0] = ValueId(123456);
  expect({"'relu'", "input 0", "123456"});
  graph.node(relu).inputs[0] = graph.find_value("sum");
  graph.node(relu).outputs[0] = ValueId(77);
  expect({"'relu'", "output 0", "77"});
}

TEST_F(Verify, ANodeThatIsGone) {
  value("x").uses.push_back({NodeId(99), 0});
  expect({"'x'", "read by", "99"});
  value("x").uses.pop_back();
  graph.node(relu).after = {NodeId(99)};
  expect({"'relu'", "after", "99"});
  graph.node(relu).after.clear();
  value("y").producer = NodeId(99);
  expect({"'y'", "made by", "99"});
}

TEST_F(Verify, IdsThatAreNotTheirPlaces) {
  graph.node(relu).id = sum;
  expect({"'relu'", "its id"});
  graph.node(relu).id = relu;
  value("y").id = graph.find_value("x");
  expect({"'y'", "its id"});
}

TEST_F(Verify, BorderListsOfWhatIsNoValue) {
  graph.outputs.push_back(ValueId(50));
  expect({"output", "50"});
}

TEST_F(Verify, NamesThatFindNothing) {
  graph.node(relu).name = "add";
  expect({"'add'", "name"});
  graph.node(relu).name = "relu";
  value("y").name = "yy";
  expect({"'yy'", "name"});
  value("y").name = "y";
  graph.node(relu).op_type.clear();
  expect({"'relu'", "operator"});
}

TEST_F(Verify, NamesThatAreLeftBehind) {
  const NodeId extra = add(graph, "Abs", {"x"}, {"extra"}, "extra");
  graph.node(extra).name = "renamed";
  graph.remove_node(extra);
  expect({"3 nodes", "names for 4"});
}

TEST_F(Verify, UsesThatDoNotAgree) {
  value("sum").uses.pop_back();
  expect({"'sum'", "2 times", "1 uses"});
  value("sum").uses.push_back({choice, -1});
  EXPECT_EQ(fault_in(graph), "nothing");
  value("sum").uses.push_back({relu, 0});
  expect({"'sum'", "'relu'", "twice"});
  value("sum").uses.back() = {relu, 1};
  expect({"'sum'", "'relu'", "input 1"});
  value("sum").uses.back() = {relu, -1};
  expect({"'sum'", "'relu'", "in a body"});
}

TEST_F(Verify, MakersThatDoNotAgree) {
  value("y").producer_output = 1;
  expect({"'y'", "output 1", "'relu'"});
  value("y").producer = kNone;
  value("y").producer_output = -1;
  expect({"'relu'", "'y'", "nobody"});
  graph.node(relu).outputs[0] = kNone;
  expect({"nothing makes", "'y'"});
  value("y").producer = sum;
  value("y").producer_output = 0;
  expect({"'y'", "output 0", "'add'"});
  value("y").producer = kNone;
  expect({"'y'", "of nobody"});
}

TEST_F(Verify, ValuesOfTwoMakers) {
  value("y").constant = floats({1});
  expect({"'y'", "contents", "node"});
  value("y").constant = nullptr;
  graph.add_input(graph.find_value("y"));
  expect({"'y'", "input", "node"});
  graph.inputs.pop_back();
  value("y").is_input = false;
  value("w").is_outer = true;
  expect({"'w'", "enclosing graph", "this one"});
}

TEST_F(Verify, WhatNothingMakes) {
  graph.remove_node(sum);
  expect({"nothing makes", "'sum'", "'relu'"});
  GraphSurroundings surroundings;
  surroundings.is_given = [this](ValueId id) { return id == graph.find_value("sum"); };
  EXPECT_EQ(fault_in(graph, surroundings), "nothing");
}

TEST_F(Verify, ValuesOfAnEnclosingGraphInAMainGraph) {
  EXPECT_THAT(fault_in(*body), AllOf(HasSubstr("'sum'"), HasSubstr("enclosing")));
  GraphSurroundings surroundings;
  surroundings.is_body = true;
  EXPECT_EQ(fault_in(*body, surroundings), "nothing");
}

TEST_F(Verify, BorderListsThatDoNotAgree) {
  graph.inputs.push_back(graph.inputs[0]);
  expect({"'x'", "twice", "inputs"});
  graph.inputs.clear();
  expect({"'x'", "is_input"});
  graph.inputs = {graph.find_value("x"), graph.find_value("w")};
  expect({"'w'", "is_input"});
  graph.inputs.pop_back();
  value("y").is_output = false;
  expect({"'y'", "is_output"});
  value("y").is_output = true;
  graph.outputs.push_back(graph.outputs[0]);  // an output may stand twice
  EXPECT_EQ(fault_in(graph), "nothing");
  graph.initializers.push_back(graph.initializers[0]);
  expect({"'w'", "twice", "initializers"});
  graph.initializers.pop_back();
  value("w").overridable = true;
  expect({"'w'", "overridable"});
  value("w").overridable = false;
  value("w").constant = nullptr;
  expect({"'w'", "initializers", "no contents"});
}

TEST_F(Verify, Cycles) {
  graph.set_input(sum, 1, graph.find_value("y"));
  expect({"cycle", "'add'", "'relu'"});
}

TEST_F(Verify, ControlEdges) {
  graph.add_control_edge(sum, relu);
  EXPECT_EQ(fault_in(graph), "nothing");
  graph.node(sum).before.push_back(relu);
  expect({"'add'", "'relu'", "twice"});
  graph.node(sum).before.pop_back();
  graph.node(relu).after.clear();
  expect({"'add'", "'relu'", "knows nothing"});
  graph.node(sum).before.clear();
  graph.add_control_edge(relu, sum);
  expect({"cycle"});
}

TEST_F(Verify, Bodies) {
  graph.node(choice).captured.clear();
  value("sum").uses.pop_back();
  expect({"'choice'", "'sum'", "captures"});
  graph.update_captures();
  graph.node(choice).captured.push_back(graph.find_value("x"));
  value("x").uses.push_back({choice, -1});
  expect({"'choice'", "captures", "'x'"});
  graph.update_captures();
  add_attribute(graph, choice, "else_branch", body);
  expect({"'choice'", "another node's"});
  add_attribute(graph, choice, "else_branch", nullptr);
  expect({"'choice'", "'else_branch'", "missing"});
  graph.node(choice).attributes.erase("else_branch");
  body->node(NodeId(0)).inputs[0] = ValueId(9);
  expect({"'choice'", "'then_branch'", "'neg'", "input 0"});
}

TEST_F(Verify, WhatABodyReadsIsAValueAround) {
  body->value(body->value_named("elsewhere")).is_outer = true;
  body->set_input(NodeId(0), 0, body->find_value("elsewhere"));
  expect({"'choice'", "'elsewhere'", "no value here"});
  graph.update_captures();  // it is of a graph further out now
  expect({"'elsewhere'", "enclosing graph", "'choice'"});
}

TEST_F(Verify, WhatABodyReadsHasOneType) {
  body->value(body->find_value("sum")).type = Type::tensor(DataType::Float);
  EXPECT_EQ(fault_in(graph), "nothing");
  body->value(body->find_value("sum")).type = Type::tensor(DataType::Int32);
  expect({"'sum'", "tensor(float)", "tensor(int32)", "'choice'"});
}

TEST_F(Verify, Attributes) {
  Attribute& attribute = graph.node(relu).attributes["alpha"];
  expect({"'relu'", "'alpha'", "0 entries"});
  attribute.ints = {1};
  EXPECT_EQ(fault_in(graph), "nothing");
  attribute.floats = {1};
  expect({"'relu'", "'alpha'", "2 in all"});
  attribute.floats.clear();
  attribute.ints = {1, 2};
  expect({"'relu'", "'alpha'", "2 entries"});
  attribute.type = Attribute::Type::Ints;
  EXPECT_EQ(fault_in(graph), "nothing");
}

TEST_F(Verify, Types) {
  value("sum").type.shape = Shape{{-3, ""}};
  expect({"'sum'", "-3"});
  value("sum").type = Type();
  EXPECT_EQ(fault_in(graph), "nothing");
  value("sum").type.shape = Shape{{2, ""}};
  expect({"'sum'", "shape"});
  value("sum").type = Type::tensor(DataType::Float);
  value("sum").type.inner = std::make_shared<Type>();
  expect({"'sum'", "within"});
}

TEST_F(Verify, ContentsOfAnotherType) {
  value("w").type = Type::tensor(DataType::Float, {3});
  expect({"'w'", "float[2]", "tensor(float)[3]"});
  value("w").type = Type::tensor(DataType::Float, Shape{{-1, "n"}});
  EXPECT_EQ(fault_in(graph), "nothing");
  value("w").type = Type::tensor(DataType::Float, Shape{{2, ""}, {1, ""}});
  expect({"'w'"});
  value("w").type = Type::tensor(DataType::Int64);
  expect({"'w'", "tensor(int64)"});
}

}  // namespace
}  // namespace backplane::core
