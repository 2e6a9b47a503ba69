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
  const auto begin = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 30.0);
  EXPECT_EQ(graph().node_count(), static_cast<std::size_t>(kNodes - (kNodes + 2) / 3));
}

}  // namespace
}  // namespace backplane::core
