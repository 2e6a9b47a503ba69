// Offsets of intervals: what lives at one time never overlaps, whatever the intervals are.
#include "core/plan/memory_plan.hpp"

#include <gtest/gtest.h>
#include <random>

#include "core/plan/layout.hpp"
#include "tests/unit/plan/hand_made_plan.hpp"

namespace backplane::core {
namespace {

bool overlap(const Interval& a, const Interval& b) {
  const bool in_time = a.first <= b.last && b.first <= a.last;
  return in_time && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

std::vector<Interval> random_intervals(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Interval> intervals(random() % 60);
  for (Interval& interval : intervals) {
    interval.first = static_cast<int>(random() % 40);
    interval.last = interval.first + static_cast<int>(random() % (random() % 8 == 0 ? 40 : 5));
    interval.bytes = random() % 10 == 0 ? 0 : 1 + random() % (std::uint64_t{1} << (random() % 16));
    interval.alignment = std::uint64_t{1} << (random() % 10);
  }
  return intervals;
}

TEST(MemoryPlan, NothingAliveTogetherOverlaps) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    std::vector<Interval> intervals = random_intervals(seed);
    const std::uint64_t block = plan_memory(intervals);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      const Interval& interval = intervals[i];
      if (interval.bytes == 0) continue;
      sum += interval.bytes + interval.alignment - 1;
      ASSERT_EQ(interval.offset % interval.alignment, 0u) << "seed " << seed << ", interval " << i;
      ASSERT_LE(interval.offset + interval.bytes, block) << "seed " << seed << ", interval " << i;
      for (std::size_t k = 0; k < i; ++k)
        ASSERT_FALSE(intervals[k].bytes > 0 && overlap(interval, intervals[k]))
            << "seed " << seed << ", intervals " << k << ", " << i;
    }
    ASSERT_LE(block, sum) << "seed " << seed;
  }
}

TEST(MemoryPlan, BlockIsNoSmallerThanWhatLivesAtOnce) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    std::vector<Interval> intervals = random_intervals(seed);
    const std::uint64_t block = plan_memory(intervals);
    for (int step = 0; step < 80; ++step) {
      std::uint64_t alive = 0;
      for (const Interval& interval : intervals)
        alive += interval.first <= step && step <= interval.last ? interval.bytes : 0;
      ASSERT_LE(alive, block) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(MemoryPlan, AChainNeedsTwoBuffers) {
  std::vector<Interval> chain;
  for (int i = 0; i < 20; ++i) chain.push_back({i, i + 1, 1024, 64, 0});
  EXPECT_EQ(plan_memory(chain), 2048u);
}

TEST(MemoryPlan, SmallOnesFillGaps) {
  std::vector<Interval> intervals{
      {0, 9, 1024, 64, 0}, {0, 2, 256, 64, 0}, {3, 5, 256, 64, 0}, {6, 9, 128, 64, 0}};
  EXPECT_EQ(plan_memory(intervals), 1280u);
}

TEST(MemoryPlan, IsDeterministic) {
  std::vector<Interval> first = random_intervals(3), second = random_intervals(3);
  EXPECT_EQ(plan_memory(first), plan_memory(second));
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].offset, second[i].offset);
}

TEST(MemoryPlan, BlocksAreAsLargeAsIsAllowedAndHoldEachIntervalWhole) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const std::vector<Interval> given = random_intervals(seed);
    std::vector<Interval> whole = given;
    const std::uint64_t block = plan_memory(whole);
    std::uint64_t largest = 1;
    for (const Interval& interval : given) largest = std::max(largest, interval.bytes);
    for (const std::uint64_t most : {largest, largest + 1, 2 * largest, block + 1}) {
      std::vector<Interval> intervals = given;
      const MemoryBlocks blocks = plan_memory(intervals, nullptr, most);
      ASSERT_EQ(blocks.bytes.size() > 1, block > most) << "seed " << seed << ", most " << most;
      for (const std::uint64_t bytes : blocks.bytes) ASSERT_LE(bytes, most) << "seed " << seed;
      for (std::size_t i = 0; i < intervals.size(); ++i) {
        const Interval& interval = intervals[i];
        if (interval.bytes == 0) continue;
        const std::uint64_t within = interval.offset % blocks.span;
        ASSERT_EQ(within % interval.alignment, 0u) << "seed " << seed << ", interval " << i;
        ASSERT_LE(within + interval.bytes, blocks.bytes.at(interval.offset / blocks.span))
            << "seed " << seed << ", interval " << i;
        for (std::size_t k = 0; k < i; ++k)
          ASSERT_FALSE(intervals[k].bytes > 0 && overlap(interval, intervals[k]))
              << "seed " << seed << ", intervals " << k << ", " << i;
        if (block <= most) {
          ASSERT_EQ(interval.offset, whole[i].offset) << "what fits one block is planned as ever";
        }
      }
    }
  }
}

TEST(MemoryPlan, WhatIsLargerThanABlockGetsALargerOneToItself) {
  std::vector<Interval> intervals{{0, 9, 1024, 64, 0}, {0, 9, 300, 64, 0}, {3, 5, 128, 64, 0}};
  const MemoryBlocks blocks = plan_memory(intervals, nullptr, 512);
  EXPECT_EQ(blocks.bytes.front(), 1024u);
  EXPECT_EQ(intervals[0].offset, 0u);
  EXPECT_EQ(intervals[1].offset, 1024u);
  EXPECT_EQ(intervals[2].offset, 1024u + 320u) << "the others share a block as before";
}

TEST(MemoryPlan, NothingNeedsNothing) {
  std::vector<Interval> none, empty{{0, 3, 0, 64, 0}};
  EXPECT_EQ(plan_memory(none), 0u);
  EXPECT_EQ(plan_memory(empty), 0u);
}

TEST(MemoryPlan, AWorkspaceIsAlignedAndApartFromWhatItsStepTouches) {
  Plan plan;
  int value = plan.make({75});
  for (const std::uint64_t alignment : {256, 64, 4096}) {
    value = plan.make({75}, {value});
    plan.last().workspace_alignment = alignment;
    Step& step = plan.segment().steps.back();
    step.workspace_arena = kHostSpace;
    step.workspace_bytes = 100;
  }
  plan.keep(value);
  plan.find();
  const DeviceSet none;
  lay_out(plan.draft(), plan.aliases(), none, nullptr);
  for (std::size_t i = 1; i < plan.segment().steps.size(); ++i) {
    const Step& step = plan.segment().steps[i];
    EXPECT_EQ(step.workspace_offset % plan.wishes(static_cast<int>(i)).workspace_alignment, 0u);
    EXPECT_GE(step.workspace_room, 100u);
    for (const int touched : {step.inputs[0], step.outputs[0]}) {
      const Slot& slot = plan[touched];
      EXPECT_TRUE(slot.offset + slot.state->bytes <= step.workspace_offset ||
                  step.workspace_offset + step.workspace_bytes <= slot.offset)
          << i;
    }
  }
}

}  // namespace
}  // namespace backplane::core
