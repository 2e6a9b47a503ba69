#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_graphs.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;

class DeadNodes : public GraphTest {
 protected:
  void SetUp() override { input("x"); }
  void eliminate() { run("eliminate_dead_nodes"); }
};

TEST_F(DeadNodes, GoWithAllThatLedToThem) {
  add("Relu", {"x"}, {"a"}, "live");
  add("Neg", {"a"}, {"b"}, "dead_1");
  add("Random", {"b"}, {"c", "d"}, "dead_2");
  output("a");
  eliminate();
  EXPECT_THAT(nodes(), ElementsAre("live"));
  EXPECT_TRUE(value("a").uses.empty());
}

TEST_F(DeadNodes, OneReadOutputKeepsANode) {
  add("Split", {"x"}, {"a", "y"}, "split");
  output("y");
  eliminate();
  EXPECT_THAT(nodes(), ElementsAre("split"));
}

TEST_F(DeadNodes, WhatBodiesReadIsAlive) {
  add("Relu", {"x"}, {"a"}, "maker");
  auto body = std::make_shared<Graph>();
  body->value(body->value_named("a")).is_outer = true;
  add_to(*body, "Neg", {"a"}, {"dead"});
  body->value(body->value_named("x")).is_outer = true;
  add_to(*body, "Abs", {"x"}, {"r"});
  body->add_output(body->find_value("r"));
  const NodeId id = add("If", {"x"}, {"y"}, "branch");
  set_body(id, body);
  output("y");
  EXPECT_EQ(graph().node(id).captured.size(), 2u);
  eliminate();
  // The body's dead node was all that read it.
  EXPECT_THAT(nodes(), ElementsAre("branch"));
  EXPECT_THAT(graph().node(id).captured, ElementsAre(graph().find_value("x")));
}

TEST_F(DeadNodes, LongDeadChains) {
  for (int i = 0; i < 2 * kManyNodes; ++i)
    add("Neg", {i == 0 ? "x" : "v" + std::to_string(i)}, {"v" + std::to_string(i + 1)});
  output("x");
  eliminate();
  EXPECT_EQ(graph().node_count(), 0u);
}

}  // namespace
}  // namespace backplane::core
