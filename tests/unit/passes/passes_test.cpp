#include "core/passes/passes.hpp"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_graphs.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Passes : public GraphTest {
 protected:
  /// Something for each pass.
  void build() {
    input("x");
    initializer("a", {1});
    add("Sum", {"a", "a"}, {"folded"}, "to_fold");
    add("Identity", {"x"}, {"same"}, "to_eliminate");
    add("Relu", {"same"}, {"p"}, "keep");
    add("Relu", {"x"}, {"q"}, "to_merge");
    add("Sum", {"p", "q", "folded"}, {"y"}, "sum");
    add("Neg", {"q"}, {"unread"}, "dead");
    output("y");
  }
};

TEST_F(Passes, RunByLevel) {
  build();
  run("", OptimizationLevel::None);
  EXPECT_EQ(graph().node_count(), 6u);
  run("", OptimizationLevel::Basic);
  EXPECT_THAT(nodes(), ::testing::UnorderedElementsAre("keep", "to_merge", "sum"));
  run("", OptimizationLevel::All);
  EXPECT_THAT(nodes(), ElementsAre("keep", "sum"));
}

TEST_F(Passes, RunUntilNothingChanges) {
  input("x");
  initializer("a", {5});
  // Only once the count is folded are the two sums equal; only then is their maker's copy dead.
  add("Count", {"a"}, {"one"});
  initializer("b", {1});
  add("Sum", {"x", "one"}, {"p"});
  add("Sum", {"x", "b"}, {"q"});
  add("Identity", {"q"}, {"r"});
  add("Mul", {"p", "r"}, {"y"}, "mul");
  output("y");
  run();
  EXPECT_EQ(graph().node_count(), 2u);
}

TEST_F(Passes, AnIfOfAConstantIsItsBranchUnlessCallersMaySetIt) {
  input("x");
  Node choice;
  choice.name = "choice";
  choice.op_type = "If";
  for (const char* const op : {"Neg", "Relu"}) {
    auto branch = std::make_shared<Graph>();
    branch->value(branch->value_named("x")).is_outer = true;
    add_to(*branch, op, {"x"}, {"result"}, op);
    branch->add_output(branch->value_named("result"));
    Attribute& body = choice.attributes[op == std::string("Neg") ? "then_branch" : "else_branch"];
    body.type = Attribute::Type::Graph;
    body.graphs = {branch};
  }
  graph().add_initializer(
      graph().value_named("which"),
      Constant::copy_of(DataType::Bool, {}, std::vector<std::byte>{std::byte{0}}));
  input("which");
  value("which").overridable = true;
  choice.inputs = {graph().value_named("which")};
  choice.outputs = {graph().value_named("y")};
  graph().add_node(std::move(choice));
  graph().update_captures();
  output("y");
  run("inline_constant_if");
  EXPECT_THAT(nodes(), ElementsAre("choice"));
  value("which").overridable = false;
  run("inline_constant_if");
  ASSERT_EQ(graph().node_count(), 1u);
  EXPECT_EQ(graph().node(value("y").producer).op_type, "Relu");
}

/// A weight that many layers share, each by an Identity, is in memory once at all times.
TEST_F(Passes, AWeightThatIsHandedOnIsNotCopied) {
  input("x");
  initializer("weight", {1, 2});
  const Constant* const weight = value("weight").constant.get();
  for (const char* name : {"a", "b"}) {
    add("Identity", {"weight"}, {name});
    add("Sum", {"x", name}, {std::string(name) + "_sum"}, name);
    output(std::string(name) + "_sum");
  }
  run("", OptimizationLevel::Basic);
  EXPECT_EQ(evaluations_, 0);
  EXPECT_THAT(nodes(), ::testing::UnorderedElementsAre("a", "b"));
  for (const NodeId node : topological_order(graph()))
    EXPECT_EQ(graph().value(graph().node(node).inputs[1]).constant.get(), weight);
}

TEST_F(Passes, SwitchOffByName) {
  build();
  options_.level = OptimizationLevel::All;
  options_.disabled = {"eliminate_dead_nodes", "fold_constants"};
  run_passes(model_, options_, nullptr);
  EXPECT_THAT(nodes(), ::testing::UnorderedElementsAre("to_fold", "keep", "sum", "dead"));
}

TEST_F(Passes, UnknownNamesAreErrors) {
  options_.disabled = {"fold_constant"};
  try {
    run_passes(model_, options_, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), ::testing::AllOf(HasSubstr("'fold_constant'"),
                                                  HasSubstr("did you mean 'fold_constants'")));
  }
}

TEST_F(Passes, LargeGraphsTakeLinearTime) {
  input("x");
  initializer("one", {1});
  constexpr int kNodes = 100'000;
  for (int i = 0; i < kNodes; ++i) {
    const std::string from = i == 0 ? "x" : "v" + std::to_string(i);
    add(i % 3 == 0 ? "Identity" : "Sum",
        i % 3 == 0 ? std::vector<std::string>{from} : std::vector<std::string>{from, "one"},
        {"v" + std::to_string(i + 1)});
  }
  output("v" + std::to_string(kNodes));
  options_.verify = false;  // what the passes themselves take
  const auto begin = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 30.0);
  EXPECT_EQ(graph().node_count(), static_cast<std::size_t>(kNodes - (kNodes + 2) / 3));
}

/// Each pass of its own, nodes of bodies among them; a node that gave way to an equal one is not removed.
TEST_F(Passes, WhatRemovesANodeIsLogged) {
  initializer("a", {1, 2});
  input("x");
  add("Sum", {"a", "a"}, {"b"});                       // 0
  add("Sum", {"x", "b"}, {"c"});                       // 1
  const NodeId no_op = add("Identity", {"c"}, {"d"});  // 2
  add("Sum", {"x", "b"}, {"e"});                       // 3, as 1
  add("Other", {"x"}, {"nobody"});                     // 4
  add("Other", {"d", "e"}, {"y"});                     // 5
  output("y");
  ASSERT_EQ(graph().node(no_op).origins, std::vector<std::int32_t>{2});
  run();
  const RemovalLog want = {
      {0, "fold_constants"}, {2, "eliminate_identities"}, {4, "eliminate_dead_nodes"}};
  EXPECT_EQ(model_.removed, want);
  run();
  EXPECT_EQ(model_.removed, RemovalLog()) << "of the last run alone";
}

TEST_F(Passes, WhatRemovesANodeOfABodyIsLogged) {
  auto body = std::make_shared<Graph>();
  const ValueId constant = body->value_named("k");
  body->add_initializer(constant, ints({3}));
  add_to(*body, "Sum", {"k", "k"}, {"twice"});
  body->node(NodeId(0)).origins = {7};
  body->add_output(body->value_named("twice"));
  input("x");
  set_body(add("Loop", {"x"}, {"y"}), std::move(body));
  output("y");
  run();
  EXPECT_EQ(model_.removed, (RemovalLog{{7, "fold_constants"}}));
}

}  // namespace
}  // namespace backplane::core
