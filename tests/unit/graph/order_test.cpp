#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "graph_check.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> order_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const NodeId id : topological_order(graph)) names.push_back(graph.node(id).name);
  return names;
}

std::string order_error(const Graph& graph) {
  try {
    (void)topological_order(graph);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::InvalidArgument);
    return error.message();
  }
  return "no error";
}

TEST(Order, OfNothingIsEmpty) { EXPECT_THAT(order_of(Graph()), ElementsAre()); }

TEST(Order, OfAChainStoredBackwards) {
  Graph graph;
  add(graph, "Op", {"b"}, {"c"}, "third");
  add(graph, "Op", {"a"}, {"b"}, "second");
  add(graph, "Op", {"x"}, {"a"}, "first");
  EXPECT_THAT(order_of(graph), ElementsAre("first", "second", "third"));
}

// Inputs are pushed by index, so the one with the highest index is on top of the stack and is walked first.
TEST(Order, OfADiamond) {
  Graph graph;
  add(graph, "Op", {"x"}, {"a"}, "n0");
  add(graph, "Op", {"a"}, {"b"}, "n1");
  add(graph, "Op", {"a"}, {"c"}, "n2");
  add(graph, "Op", {"c", "b"}, {"d"}, "n3");
  EXPECT_THAT(order_of(graph), ElementsAre("n0", "n2", "n1", "n3"));
}

TEST(Order, OfTwoLeavesIsByIndexToo) {
  Graph graph;
  add(graph, "Op", {"x"}, {"a"}, "n0");
  add(graph, "Op", {"x"}, {"b"}, "n1");
  add(graph, "Op", {"a"}, {"c"}, "n2");
  add(graph, "Op", {"b"}, {"d"}, "n3");
  EXPECT_THAT(order_of(graph), ElementsAre("n1", "n3", "n0", "n2"));
}

// From leaf n5: its input n4 is above n3; n4 takes n2 and n1 before n0; n3 finds n0 done.
TEST(Order, OfALadder) {
  Graph graph;
  add(graph, "Op", {"x"}, {"a"}, "n0");
  add(graph, "Op", {"x"}, {"b"}, "n1");
  add(graph, "Op", {"b"}, {"c"}, "n2");
  add(graph, "Op", {"a"}, {"d"}, "n3");
  add(graph, "Op", {"a", "b", "c"}, {"e"}, "n4");
  add(graph, "Op", {"d", "e"}, {"f"}, "n5");
  EXPECT_THAT(order_of(graph), ElementsAre("n1", "n2", "n0", "n4", "n3", "n5"));
}

TEST(Order, FollowsWhatBodiesCapture) {
  Graph graph;
  const NodeId branch = add(graph, "If", {"cond"}, {"y"}, "branch");
  add(graph, "Op", {"x"}, {"a"}, "maker");
  auto body = std::make_shared<Graph>();
  const ValueId outer = body->value_named("a");
  body->value(outer).is_outer = true;
  add(*body, "Op", {"a"}, {"r"});
  body->add_output(body->find_value("r"));
  add_attribute(graph, branch, "then_branch", body);
  graph.update_captures();
  expect_consistent(graph);
  EXPECT_THAT(order_of(graph), ElementsAre("maker", "branch"));
}

TEST(Order, ReadsOneValueTwice) {
  Graph graph;
  add(graph, "Op", {"a", "a", ""}, {"b"}, "n0");
  add(graph, "Op", {}, {"a"}, "n1");
  EXPECT_THAT(order_of(graph), ElementsAre("n1", "n0"));
}

TEST(Order, CycleIsNamedInItsDirection) {
  Graph graph;
  add(graph, "Op", {"x", "c"}, {"a"}, "first");
  add(graph, "Op", {"a"}, {"b"}, "second");
  add(graph, "Op", {"b"}, {"c"}, "third");
  add(graph, "Op", {"c"}, {"y"}, "outside");
  const std::string message = order_error(graph);
  EXPECT_THAT(message, HasSubstr("'first' -> 'second' -> 'third' -> 'first'"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("outside")));
}

TEST(Order, CycleWithoutLeavesIsFound) {
  Graph graph;
  add(graph, "Op", {"b"}, {"a"}, "one");
  add(graph, "Op", {"a"}, {"b"}, "two");
  EXPECT_THAT(order_error(graph), HasSubstr("cycle"));
  Graph self;
  add(self, "Op", {"a"}, {"a"}, "only");
  EXPECT_THAT(order_error(self), HasSubstr("'only' -> 'only'"));
}

TEST(Order, LongCyclesAreShortened) {
  Graph graph;
  for (int i = 0; i < 100; ++i) {
    add(graph, "Op", {"v" + std::to_string(i)}, {"v" + std::to_string((i + 1) % 100)});
  }
  EXPECT_THAT(order_error(graph), HasSubstr("(100 nodes)"));
  EXPECT_LT(order_error(graph).size(), 400u);
}

TEST(Order, TakesChainsOf200000Nodes) {
  constexpr int kNodes = 200'000;
  Graph graph;
  for (int i = kNodes; i > 0; --i)
    add(graph, "Op", {"v" + std::to_string(i - 1)}, {"v" + std::to_string(i)});
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<NodeId> order = topological_order(graph);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  ASSERT_EQ(order.size(), static_cast<std::size_t>(kNodes));
  EXPECT_EQ(order.front(), NodeId(kNodes - 1));
  EXPECT_EQ(order.back(), NodeId(0));
  EXPECT_LT(taken.count(), 5.0);  // a hundred times what it takes
}

}  // namespace
}  // namespace backplane::core
