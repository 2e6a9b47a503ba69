// A graph in the place of a node: names, values of enclosing graphs, control edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/graph/graph_check.hpp"

namespace backplane::core {
namespace {

NodeId add_to(Graph& graph, const std::string& op, const std::vector<std::string>& inputs,
              const std::string& output, const std::string& name) {
  Node node;
  node.op_type = op;
  node.name = name;
  node.since_version = 13;
  for (const std::string& input : inputs) node.inputs.push_back(graph.value_named(input));
  node.outputs.push_back(graph.value_named(output));
  return graph.add_node(std::move(node));
}

const Node& maker_of(const Graph& graph, const std::string& value) {
  return graph.node(graph.value(graph.find_value(value)).producer);
}

class SpliceTest : public ::testing::Test {
 protected:
  SpliceTest() {
    graph_.add_input(graph_.value_named("x"));
    before_ = add_to(graph_, "Abs", {"x"}, "t", "before");
    place_ = add_to(graph_, "Place", {"x"}, "y", "place");
    graph_.node(place_).origins = {7};
    after_ = add_to(graph_, "Neg", {"y"}, "z", "after");
    graph_.add_output(graph_.value_named("z"));
  }
  Graph graph_;
  NodeId before_, place_, after_;
};

TEST_F(SpliceTest, NamesThatAreTakenChangeAndOuterNamesAreOnes) {
  Graph body;
  body.add_input(body.value_named("in"));
  body.value(body.value_named("x")).is_outer = true;
  add_to(body, "Exp", {"in"}, "t", "before");  // both names are taken
  add_to(body, "Add", {"t", "x"}, "result", "sum");
  body.add_output(body.value_named("result"));
  graph_.splice(place_, body, {graph_.find_value("t")});
  expect_consistent(graph_);
  const Node& sum = maker_of(graph_, "y");
  EXPECT_EQ(sum.op_type, "Add");
  EXPECT_THAT(sum.origins, ::testing::ElementsAre(7));
  EXPECT_EQ(graph_.value(sum.inputs[1]).name, "x");
  const Value& inner = graph_.value(sum.inputs[0]);
  EXPECT_NE(inner.name, "t");
  EXPECT_EQ(graph_.node(inner.producer).op_type, "Exp");
  EXPECT_EQ(graph_.value(graph_.node(inner.producer).inputs[0]).name, "t");
}

TEST_F(SpliceTest, OutputsThatTheBodyDoesNotMakeAreHandedOn) {
  Graph body;
  body.add_input(body.value_named("in"));
  body.add_output(body.value_named("in"));
  graph_.splice(place_, body, {graph_.find_value("t")});
  expect_consistent(graph_);
  EXPECT_EQ(maker_of(graph_, "y").op_type, "Identity");
  EXPECT_EQ(graph_.value(maker_of(graph_, "y").inputs[0]).name, "t");
}

TEST_F(SpliceTest, BodiesInTheBodySeeTheNewNames) {
  auto inner = std::make_shared<Graph>();
  inner->value(inner->value_named("t")).is_outer = true;
  add_to(*inner, "Relu", {"t"}, "r", "relu");
  inner->add_output(inner->value_named("r"));
  Graph body;
  body.add_input(body.value_named("in"));
  add_to(body, "Exp", {"in"}, "t", "exp");
  const NodeId holder = add_to(body, "If", {"in"}, "result", "holder");
  Attribute& attribute = body.node(holder).attributes["then_branch"];
  attribute.type = Attribute::Type::Graph;
  attribute.graphs = {inner};
  body.add_output(body.value_named("result"));
  body.update_captures();
  graph_.splice(place_, body, {graph_.find_value("x")});
  expect_consistent(graph_);
  const Node& made = maker_of(graph_, "y");
  ASSERT_EQ(made.captured.size(), 1u);
  EXPECT_EQ(graph_.node(graph_.value(made.captured[0]).producer).op_type, "Exp");
}

TEST_F(SpliceTest, ControlEdgesHoldForWhatTakesThePlace) {
  graph_.add_control_edge(before_, place_);
  Graph body;
  body.add_input(body.value_named("in"));
  const NodeId first = add_to(body, "Exp", {"in"}, "a", "first");
  const NodeId second = add_to(body, "Neg", {"in"}, "b", "second");
  add_to(body, "Add", {"a", "b"}, "result", "sum");
  body.add_control_edge(second, first);
  body.add_output(body.value_named("result"));
  graph_.splice(place_, body, {graph_.find_value("x")});
  const Node& sum = maker_of(graph_, "y");
  const Node& exp = graph_.node(graph_.value(sum.inputs[0]).producer);
  const Node& neg = graph_.node(graph_.value(sum.inputs[1]).producer);
  EXPECT_THAT(exp.after, ::testing::UnorderedElementsAre(before_, neg.id));
  EXPECT_THAT(neg.after, ::testing::ElementsAre(before_));
  EXPECT_THAT(sum.after, ::testing::ElementsAre(before_));
}

}  // namespace
}  // namespace backplane::core
