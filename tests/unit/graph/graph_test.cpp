#include "core/graph/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "graph_check.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConstantPtr one() {
  const float value = 1;
  return Constant::copy_of(DataType::Float, {}, std::as_bytes(std::span<const float>(&value, 1)));
}

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TEST(Graph, NamesNodesThatHaveNoneOrATakenOne) {
  Graph graph;
  EXPECT_EQ(graph.node(add(graph, "Relu", {"x"}, {"a"})).name, "Relu_0");
  EXPECT_EQ(graph.node(add(graph, "Relu", {"x"}, {"b"}, "mine")).name, "mine");
  EXPECT_EQ(graph.node(add(graph, "Neg", {"x"}, {"c"}, "mine")).name, "Neg_2");
  add(graph, "Op", {}, {}, "Abs_4");
  EXPECT_EQ(graph.node(add(graph, "Abs", {"x"}, {"d"})).name, "Abs_4_1");
  expect_consistent(graph);
}

TEST(Graph, RefusesASecondMakerOfAValue) {
  Graph graph;
  add(graph, "Relu", {"x"}, {"y"}, "first");
  EXPECT_THAT(error_of([&] { add(graph, "Neg", {"x"}, {"y"}, "second"); }),
              ::testing::AllOf(HasSubstr("'second'"), HasSubstr("'y'"), HasSubstr("'first'")));
  graph.add_input(graph.value_named("x"));
  EXPECT_THAT(error_of([&] { add(graph, "Neg", {}, {"x"}, "n"); }),
              HasSubstr("input of the graph"));
  graph.add_initializer(graph.value_named("w"), one());
  EXPECT_THAT(error_of([&] { add(graph, "Neg", {}, {"w"}, "n"); }), HasSubstr("initializer"));
  EXPECT_THAT(error_of([&] { add(graph, "Neg", {}, {"z", "z"}, "n"); }), HasSubstr("twice"));
  EXPECT_EQ(graph.node_count(), 1u);
  expect_consistent(graph);
}

TEST(Graph, FailedAddLeavesNothingBehind) {
  Graph graph;
  add(graph, "Relu", {"x"}, {"y"}, "first");
  EXPECT_THROW(add(graph, "Neg", {"x"}, {"fresh", "y"}, "second"), Error);
  EXPECT_EQ(graph.value(graph.find_value("fresh")).producer, kNone);
  expect_consistent(graph);
  add(graph, "Neg", {"x"}, {"fresh"}, "second");
  expect_consistent(graph);
}

TEST(Graph, NewValuesHaveNewNames) {
  Graph graph;
  EXPECT_EQ(graph.value(graph.new_value("v")).name, "v");
  EXPECT_EQ(graph.value(graph.new_value("v")).name, "v_1");
  graph.value_named("v_2");
  EXPECT_EQ(graph.value(graph.new_value("v")).name, "v_3");
  EXPECT_THROW(graph.value_named(""), Error);
}

TEST(Graph, ReplaceUsesMovesOutputsOnlyWhenAsked) {
  Graph graph;
  add(graph, "Relu", {"x"}, {"a"});
  const NodeId reader = add(graph, "Add", {"a", "a"}, {"y"});
  const ValueId a = graph.find_value("a");
  const ValueId b = graph.value_named("b");
  graph.add_output(a);
  graph.add_output(graph.find_value("y"));
  graph.add_output(a);
  graph.replace_uses(a, b, false);
  EXPECT_THAT(graph.node(reader).inputs, ElementsAre(b, b));
  EXPECT_EQ(graph.outputs.front(), a);
  expect_consistent(graph);
  graph.replace_uses(a, b, true);
  EXPECT_THAT(graph.outputs, ElementsAre(b, graph.find_value("y"), b));
  expect_consistent(graph);
}

/// A graph whose node has a body that reads `a`, with a body in it that reads `a` and `b`, which the body makes.
Graph nested() {
  Graph graph;
  add(graph, "Relu", {"x"}, {"a"}, "maker");
  auto inner = std::make_shared<Graph>();
  for (const char* name : {"a", "b"}) inner->value(inner->value_named(name)).is_outer = true;
  add(*inner, "Add", {"a", "b"}, {"r"});
  inner->add_output(inner->find_value("r"));
  auto middle = std::make_shared<Graph>();
  middle->value(middle->value_named("a")).is_outer = true;
  add(*middle, "Neg", {"a"}, {"b"});
  add_attribute(*middle, add(*middle, "If", {"b"}, {"s"}, "inner_if"), "then_branch", inner);
  middle->add_output(middle->find_value("s"));
  add_attribute(graph, add(graph, "If", {"cond"}, {"y"}, "outer_if"), "then_branch", middle);
  graph.add_output(graph.find_value("y"));
  graph.update_captures();
  return graph;
}

Graph& body_of(Graph& graph, NodeId id) {
  return *graph.node(id).attributes.at("then_branch").graphs.at(0);
}

TEST(Graph, CapturesGoThroughNestedBodies) {
  Graph graph = nested();
  const ValueId a = graph.find_value("a");
  EXPECT_THAT(graph.node(NodeId(1)).captured, ElementsAre(a));
  Graph& middle = body_of(graph, NodeId(1));
  EXPECT_THAT(middle.node(NodeId(1)).captured,
              ::testing::UnorderedElementsAre(middle.find_value("a"), middle.find_value("b")));
  expect_consistent(graph);
  expect_consistent(middle);
}

TEST(Graph, ReplaceUsesReachesIntoBodiesAndRenamesWhatHidesTheName) {
  Graph graph = nested();
  // "b" of the outer graph is another value than the "b" that the middle body makes.
  const ValueId b = graph.value_named("b");
  graph.replace_uses(graph.find_value("a"), b, false);
  EXPECT_THAT(graph.node(NodeId(1)).captured, ElementsAre(b));
  expect_consistent(graph);
  Graph& middle = body_of(graph, NodeId(1));
  expect_consistent(middle);
  const Value& read = middle.value(middle.node(NodeId(0)).inputs[0]);
  EXPECT_EQ(read.name, "b");
  EXPECT_TRUE(read.is_outer);
  const std::string renamed = middle.value(middle.node(NodeId(0)).outputs[0]).name;
  EXPECT_NE(renamed, "b");
  Graph& inner = body_of(middle, NodeId(1));
  expect_consistent(inner);
  EXPECT_EQ(inner.value(inner.node(NodeId(0)).inputs[0]).name, "b");
  EXPECT_EQ(inner.value(inner.node(NodeId(0)).inputs[1]).name, renamed);
  // Nothing changes when captures are computed anew.
  graph.update_captures();
  EXPECT_THAT(graph.node(NodeId(1)).captured, ElementsAre(b));
  expect_consistent(graph);
}

TEST(Graph, CopiesAreDeep) {
  Graph graph = nested();
  graph.add_initializer(graph.value_named("w"), one());
  Graph copy(graph);
  EXPECT_EQ(copy.value(copy.find_value("w")).constant, graph.value(graph.find_value("w")).constant);
  add(body_of(copy, NodeId(1)), "Neg", {"b"}, {"extra"});
  copy.remove_node(NodeId(0));
  EXPECT_EQ(body_of(graph, NodeId(1)).node_count(), 2u);
  EXPECT_TRUE(graph.has_node(NodeId(0)));
  expect_consistent(graph);
  expect_consistent(copy);
}

TEST(Graph, SetOutputMovesTheName) {
  Graph graph;
  const NodeId node = add(graph, "Relu", {"x"}, {"a"});
  const ValueId y = graph.value_named("y");
  graph.set_output(node, 0, y);
  EXPECT_EQ(graph.value(y).producer, node);
  EXPECT_EQ(graph.value(graph.find_value("a")).producer, kNone);
  expect_consistent(graph);
  graph.add_input(graph.find_value("x"));
  EXPECT_THROW(graph.set_output(node, 0, graph.find_value("x")), Error);
  expect_consistent(graph);
}

}  // namespace
}  // namespace backplane::core
