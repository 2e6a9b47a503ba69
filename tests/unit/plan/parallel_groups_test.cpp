// Steps that may run at the same time: which they are, and that memory stays right in every order that is allowed.
#include "core/plan/parallel_groups.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include "core/plan/layout.hpp"
#include "tests/unit/plan/hand_made_plan.hpp"

namespace backplane::core {
namespace {

std::vector<std::vector<int>> groups_of(Plan& plan) {
  plan.find();
  std::vector<std::vector<int>> found;
  for (const ParallelGroup& group : StepOrder(plan.draft(), plan.aliases()).groups())
    found.push_back(group.steps);
  return found;
}

TEST(ParallelGroups, AChainHasNone) {
  Plan plan;
  const int a = plan.make({4});
  const int b = plan.make({4}, {a});
  plan.keep(plan.make({4}, {b}));
  EXPECT_TRUE(groups_of(plan).empty());
}

TEST(ParallelGroups, BranchesBetweenForkAndJoinAreOne) {
  Plan plan;
  const int fork = plan.make({4});                  // 0
  const int left = plan.make({4}, {fork});          // 1
  const int right = plan.make({4}, {fork});         // 2
  const int longer = plan.make({4}, {right});       // 3
  const int join = plan.make({4}, {left, longer});  // 4
  plan.keep(plan.make({4}, {join}));                // 5
  EXPECT_EQ(groups_of(plan), (std::vector<std::vector<int>>{{1, 2, 3}}));
}

TEST(ParallelGroups, TellsWhoWaitsForWhom) {
  Plan plan;
  const int fork = plan.make({4});
  const int left = plan.make({4}, {fork});
  const int right = plan.make({4}, {fork});
  const int longer = plan.make({4}, {right});
  plan.keep(plan.make({4}, {left, longer}));
  plan.find();
  const std::vector<ParallelGroup> groups = StepOrder(plan.draft(), plan.aliases()).groups();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].waits_for, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(groups[0].first_successor, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(groups[0].successors, (std::vector<int>{2}));
}

TEST(ParallelGroups, WorkInPlaceWaitsForOtherReaders) {
  Plan plan;
  const int x = plan.make({4});       // 0
  const int y = plan.make({4}, {x});  // 1 reads x
  const int z = plan.make({4}, {x});  // 2 works in place on x
  plan.last().outputs[0].in_place_of = 0;
  plan.keep(plan.make({4}, {y, z}));  // 3
  plan.find();
  ASSERT_TRUE(plan.share(x, z));
  const StepOrder order(plan.draft(), plan.aliases());
  EXPECT_TRUE(order.precedes(1, 2));
  EXPECT_FALSE(order.precedes(2, 1));
}

TEST(ParallelGroups, WhatReadsAViewWaitsForTheViewedValue) {
  Plan plan;
  const int x = plan.make({2, 2});       // 0
  const int view = plan.make({4}, {x});  // 1, no work
  plan.last().outputs[0].view_of = 0;
  const int y = plan.make({4}, {view});  // 2
  plan.keep(y);
  plan.find();
  ASSERT_TRUE(plan.dropped(1));
  EXPECT_TRUE(StepOrder(plan.draft(), plan.aliases()).precedes(0, 2));
}

TEST(ParallelGroups, StreamsAreLeftInOrder) {
  Plan plan;
  plan.make({4});
  plan.keep(plan.make({4}));
  EXPECT_TRUE(may_run_in_parallel(plan.draft()));
  plan.segment().steps[0].on_stream = true;
  EXPECT_FALSE(may_run_in_parallel(plan.draft()));
}

/// A random graph whose steps may work in place, view, or be produced inside of a concatenation.
Plan random_plan(std::mt19937_64& random) {
  Plan plan;
  std::vector<int> values;
  const std::size_t count = 3 + random() % 30;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<int> inputs;
    for (std::size_t k = random() % 4; k > 0 && !values.empty(); --k)
      inputs.push_back(values[random() % values.size()]);
    const bool concat = inputs.size() == 2 && inputs[0] != inputs[1] && random() % 2 == 0 &&
                        plan[inputs[0]].state->dims == plan[inputs[1]].state->dims;
    const Dims part = inputs.empty() ? Dims{1 + static_cast<std::int64_t>(random() % 6)}
                                     : plan[inputs[0]].state->dims;
    const int made = plan.make(concat ? Dims{2 * part[0]} : part, inputs);
    PrepareResult& wishes = plan.last();
    if (concat) {
      for (std::uint32_t k = 0; k < 2; ++k)
        wishes.insides.push_back({k, 0, k * static_cast<std::uint64_t>(part[0]) * 4, std::nullopt});
    } else if (!inputs.empty()) {
      const auto wish = random() % 3;
      if (wish == 0) wishes.outputs[0].in_place_of = 0;
      if (wish == 1 && inputs.size() == 1) wishes.outputs[0].view_of = 0;
    }
    values.push_back(made);
    if (random() % 5 == 0) plan.keep(made);
  }
  plan.keep(values.back());
  return plan;
}

/// Runs the steps in a random order that is allowed and checks that each finds in memory what its inputs should be.
class Simulation {
 public:
  explicit Simulation(Plan& plan) : plan_(plan), order_(plan.draft(), plan.aliases()) {
    DeviceSet none;
    lay_out(plan_.draft(), plan_.aliases(), none, &order_);
    memory_.assign(plan_.segment().arena_bytes.at(0) / 4 + 1, -1);
  }

  void run(std::mt19937_64& random) {
    const auto& steps = plan_.segment().steps;
    std::vector<int> left;
    for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
      if (!plan_.dropped(i)) left.push_back(i);
    }
    while (!left.empty()) {
      std::vector<int> ready;
      for (const int step : left) {
        if (std::none_of(left.begin(), left.end(),
                         [&](int other) { return order_.precedes(other, step); }))
          ready.push_back(step);
      }
      ASSERT_FALSE(ready.empty());
      const int chosen = ready[random() % ready.size()];
      left.erase(std::find(left.begin(), left.end(), chosen));
      ASSERT_NO_FATAL_FAILURE(do_step(chosen));
    }
  }

 private:
  /// What a slot must hold: the number of the value whose elements these are, seen through views and concatenations.
  std::vector<int> expected(int slot) {
    const auto& segment = plan_.segment();
    for (int i = 0; i < static_cast<int>(segment.steps.size()); ++i) {
      const Step& step = segment.step(i);
      if (step.outputs.at(0) != slot) continue;
      if (plan_.dropped(i)) return expected(step.inputs.at(0));
      std::vector<int> parts;
      for (const InsideWish& wish : plan_.wishes(i).insides) {
        const std::vector<int> part = expected(step.inputs[wish.input]);
        parts.insert(parts.end(), part.begin(), part.end());
      }
      if (!parts.empty()) return parts;
    }
    return std::vector<int>(plan_[slot].state->bytes / 4, slot);
  }
  int* at(int slot) { return memory_.data() + plan_[slot].offset / 4; }

  void do_step(int index) {
    const Step& step = plan_.segment().step(index);
    for (std::size_t k = 0; k < step.inputs.size(); ++k) {
      const std::vector<int> want = expected(step.inputs[k]);
      const std::vector<int> got(at(step.inputs[k]), at(step.inputs[k]) + want.size());
      ASSERT_EQ(got, want) << "step " << index << ", input " << k;
    }
    // Parts first: a concatenation whose parts lie elsewhere copies them.
    const std::vector<int> made = expected(step.outputs.at(0));
    std::copy(made.begin(), made.end(), at(step.outputs.at(0)));
  }

  Plan& plan_;
  StepOrder order_;
  std::vector<int> memory_;
};

TEST(ParallelGroups, EveryAllowedOrderFindsItsInputsInMemory) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    Plan plan = random_plan(random);
    plan.find();
    Simulation simulation(plan);
    for (int order = 0; order < 5; ++order) {
      ASSERT_NO_FATAL_FAILURE(simulation.run(random)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace backplane::core
