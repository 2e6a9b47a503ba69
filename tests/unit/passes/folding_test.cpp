#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_graphs.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;

class Folding : public GraphTest {};

TEST_F(Folding, ReplacesChainsOfConstants) {
  initializer("a", {1, 2});
  initializer("b", {10, 20});
  input("x");
  add("Sum", {"a", "b"}, {"c"});
  add("Sum", {"c", "b"}, {"d"});
  add("Sum", {"x", "d"}, {"y"}, "stays");
  output("y");
  run("fold_constants");
  EXPECT_THAT(nodes(), ElementsAre("stays"));
  EXPECT_EQ(values_of(*value("d").constant), (Ints{21, 42}));
  EXPECT_EQ(value("c").constant, nullptr);  // nobody reads it any more
  EXPECT_NE(value("a").constant, nullptr);  // the model's own
  EXPECT_TRUE(value("d").type.is_static());
}

TEST_F(Folding, OutputsBecomeConstants) {
  initializer("a", {1});
  add("Sum", {"a", "a"}, {"y"});
  output("y");
  run("fold_constants");
  EXPECT_EQ(graph().node_count(), 0u);
  EXPECT_EQ(values_of(*value("y").constant), (Ints{2}));
}

TEST_F(Folding, LeavesWhatMayDiffer) {
  initializer("a", {1});
  initializer("overridable", {1});
  value("overridable").overridable = true;
  input("overridable");
  input("x");
  add("Sum", {"overridable", "a"}, {"p"}, "reads_overridable");
  add("Random", {"a"}, {"q"}, "random");
  add("Unknown", {"a"}, {"r"}, "nobody_can");
  add("Fails", {"a"}, {"s"}, "fails");
  add("Sum", {"x", "a"}, {"t"}, "reads_input");
  for (const char* name : {"p", "q", "r", "s", "t"}) output(name);
  run("fold_constants");
  EXPECT_EQ(graph().node_count(), 5u);
  EXPECT_EQ(evaluations_, 2);  // what cannot be folded is tried once
}

TEST_F(Folding, LevelsDecideAboutLargeResults) {
  options_.max_folded_bytes = 1000;
  const auto build = [&] {
    model_ = Model();
    initializer("size", {500});
    initializer("small", {10});
    add("Fill", {"size"}, {"large"}, "fill_large");
    add("Fill", {"small"}, {"little"}, "fill_small");
    input("x");
    add("Sum", {"x", "large"}, {"y"}, "a");
    add("Sum", {"x", "little"}, {"z"}, "b");
    output("y");
    output("z");
  };
  build();
  run("fold_constants", OptimizationLevel::Basic);
  EXPECT_THAT(nodes(), ::testing::UnorderedElementsAre("fill_large", "a", "b"));
  build();
  run("fold_constants", OptimizationLevel::Extended);
  EXPECT_THAT(nodes(), ::testing::UnorderedElementsAre("a", "b"));
}

TEST_F(Folding, SizesThatAreKnownAreNotComputed) {
  options_.max_folded_bytes = 1000;
  initializer("size", {500});
  add("Fill", {"size"}, {"large"}, "fill");
  type("large", DataType::Int64, {std::int64_t{1} << 40});
  output("large");
  run("fold_constants");
  EXPECT_THAT(nodes(), ElementsAre("fill"));
  EXPECT_EQ(evaluations_, 0);
}

TEST_F(Folding, ShrinkingLargeConstantsIsAlwaysGood) {
  options_.max_folded_bytes = 8;
  initializer("a", Ints(100, 1));
  initializer("b", Ints(100, 2));
  add("Sum", {"a", "b"}, {"y"});
  output("y");
  run("fold_constants", OptimizationLevel::Basic);
  EXPECT_EQ(graph().node_count(), 0u);
}

TEST_F(Folding, AnInputThatIsReadTwiceCountsOnce) {
  options_.max_folded_bytes = 8;
  initializer("a", Ints(100, 1));
  add("Sum", {"a", "a"}, {"y"}, "doubles");
  type("y", DataType::Int64, {200});
  output("y");
  run("fold_constants", OptimizationLevel::Basic);
  EXPECT_THAT(nodes(), ElementsAre("doubles"));
  EXPECT_EQ(evaluations_, 0);
}

TEST_F(Folding, ConstantsGoIntoBodies) {
  initializer("a", {1});
  add("Sum", {"a", "a"}, {"c"});
  input("x");
  auto body = std::make_shared<Graph>();
  for (const char* name : {"c", "x"}) body->value(body->value_named(name)).is_outer = true;
  add_to(*body, "Sum", {"c", "c"}, {"d"});
  add_to(*body, "Sum", {"d", "x"}, {"r"});
  body->add_output(body->find_value("r"));
  const NodeId id = add("If", {"x"}, {"y"}, "branch");
  set_body(id, body);
  output("y");
  run();
  EXPECT_THAT(graph().node(id).captured, ElementsAre(graph().find_value("x")));
  const Graph& inner = *graph().node(id).attributes.at("body").graphs.at(0);
  EXPECT_EQ(inner.node_count(), 1u);
  EXPECT_EQ(values_of(*inner.value(inner.find_value("d")).constant), (Ints{4}));
}

}  // namespace
}  // namespace backplane::core
