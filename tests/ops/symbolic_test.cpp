// Values whose dims are symbols: sessions of several sizes on every provider. What a symbol turns out to be, one and nothing
// included, changes no result, whatever was fused before anybody knew.
#include "tests/ops/symbolic.hpp"

#include <gtest/gtest.h>

#include "tests/ops/graph_writer.hpp"

namespace backplane::ops_test {
namespace {

Options options_of(const Target& target) {
  Options options = target.options;
  options.insert(options.end(), {{"providers", target.provider}, {"fallback", "forbid"}});
  return options;
}

/// Providers that compile their kernels have all that is used here; fakegpu has few.
bool may_refuse(const Target& target) { return !target.must_run_all && target.sweep_share == 1; }

void expect_right(const SymbolicCase& symbolic) {
  for (const Target& target : find_targets()) {
    const Outcome outcome = run_symbolic(symbolic, options_of(target));
    if (outcome.kind == Outcome::Kind::Refused && may_refuse(target)) continue;
    EXPECT_EQ(outcome.kind, Outcome::Kind::Passed) << target.name << ": " << outcome.text;
  }
}

/// On the provider that has the rewrites and is there in every build.
void expect_steps(const SymbolicCase& symbolic, std::size_t count) {
  for (const Target& target : find_targets()) {
    if (target.provider != "opencl") continue;
    std::string explanation;
    const Outcome outcome = run_symbolic(symbolic, options_of(target), &explanation);
    ASSERT_EQ(outcome.kind, Outcome::Kind::Passed) << target.name << ": " << outcome.text;
    EXPECT_EQ(step_count(explanation), count) << explanation;
  }
}

TEST(SymbolicDims, RandomGraphsAreRightForAllSizes) {
  constexpr int kGraphs = 40, kFullGraphs = 400;
  for (const Target& target : find_targets()) {
    const int share =
        target.sweep_share > 1 ? 16 : 1;  // most graphs cost runs of the device's compiler
    for (int graph = 0; graph < (is_full() ? kFullGraphs : kGraphs) / share; ++graph) {
      Random random(static_cast<std::uint64_t>(graph));
      const Outcome outcome = run_symbolic(random_symbolic_case(random), options_of(target));
      if (outcome.kind == Outcome::Kind::Refused && may_refuse(target)) continue;
      ASSERT_EQ(outcome.kind, Outcome::Kind::Passed)
          << target.name << ", graph " << graph << ": " << outcome.text;
    }
  }
}

/// Neither operand of the sum has its dims in every run: one that is dear is not computed for each element of the sum.
TEST(SymbolicDims, ASymbolThatTurnsOutToBeOneIsRepeated) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string x = g.feed({1, 4}), y = g.feed({1, 4});
  const std::string cheap = g.node("Mul", {x, g.constant(f32({}, {3}))}),
                    dear = g.node("Tanh", {y});
  const std::string z = g.node("Abs", {g.node("Add", {cheap, dear})});
  const std::vector<Sizes> sizes{{{"n", 3}, {"m", 3}}, {{"n", 1}, {"m", 3}}, {{"n", 3}, {"m", 1}},
                                 {{"n", 1}, {"m", 0}}, {{"n", 0}, {"m", 1}}, {{"n", 1}, {"m", 1}}};
  const SymbolicCase symbolic = symbolic_case(g.done({z}), {{"n", "4"}, {"m", "4"}}, sizes, random);
  expect_right(symbolic);
  expect_steps(symbolic, 2);
}

TEST(SymbolicDims, DimsThatDoNotFitAreAnErrorInARunAndTheNextOneIsRight) {
  Random random(1);
  GraphWriter g(13, random);
  const std::string x = g.feed({1, 4}), y = g.feed({1, 4});
  const std::string z = g.node("Abs", {g.node("Add", {g.node("Neg", {x}), g.node("Neg", {y})})});
  const SymbolicCase symbolic =
      symbolic_case(g.done({z}), {{"n", "4"}, {"m", "4"}}, {{{"n", 3}, {"m", 1}}}, random);
  const GraphCase& good = symbolic.runs.front();
  for (const Target& target : find_targets()) {
    if (may_refuse(target)) continue;
    Session session(symbolic.model, options_of(target));
    NamedTensors bad = good.feeds;
    bad[1].second = random.tensor(ElementType::Float, {2, 4}, -1, 1);
    EXPECT_THROW(session.run(bad, good.outputs), HostError) << target.name;
    EXPECT_EQ(
        difference(session.run(good.feeds, good.outputs)[0], expected_of(good)[0], good.tolerance),
        "");
  }
}

TEST(SymbolicDims, AFeedForwardPartIsFusedBeforeSizesAreKnownAndRightForAll) {
  Random random(1);
  const SymbolicCase symbolic = feed_forward_case(random);
  expect_right(symbolic);
  expect_steps(symbolic, kFeedForwardSteps);
}

TEST(SymbolicDims, RowsOfNothingAndRowsAcrossAreRight) {
  Random random(1);
  const SymbolicCase symbolic = rows_case(random);
  expect_right(symbolic);
  // Four rows with what is before them and, of folds, what numbers alone do after them; the sum of two values; and a softmax
  // across, with what is before it.
  expect_steps(symbolic, 7);
}

/// A convolution's kernel adds what surely has its dims, and nothing else.
TEST(SymbolicDims, AConvolutionTakesOverAnAdditionOfTheSameSymbols) {
  for (const std::string other : {"n", "m"}) {
    Random random(1);
    GraphWriter g(13, random);
    const std::string x = g.feed({1, 3, 5, 5}), y = g.feed({1, 4, 5, 5});
    const std::string z = g.node("Conv", {x, g.constant({4, 3, 3, 3}, -0.3, 0.3)},
                                 {{"kernel_shape", ints({3, 3})}, {"pads", ints({1, 1, 1, 1})}});
    const bool is_same = other == "n";
    std::vector<Sizes> sizes{{{"n", 2}, {"m", 2}}, {{"n", 1}, {"m", 1}}, {{"n", 0}, {"m", 0}}};
    if (!is_same) sizes.insert(sizes.end(), {{{"n", 1}, {"m", 3}}, {{"n", 3}, {"m", 1}}});
    const SymbolicCase symbolic =
        symbolic_case(g.done({g.node("Relu", {g.node("Add", {y, z})})}),
                      {{"n", "3", "5", "5"}, {other, "4", "5", "5"}}, sizes, random);
    expect_right(symbolic);
    expect_steps(symbolic, is_same ? 1 : 2);
  }
}

}  // namespace
}  // namespace backplane::ops_test
