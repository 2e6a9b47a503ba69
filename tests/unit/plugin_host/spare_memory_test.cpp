#include "core/plugin_host/spare_memory.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace backplane::core {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;

struct Taken {
  void* memory = nullptr;
  std::uint64_t capacity = 0;
};

Taken take(SpareMemory& spare, std::uint64_t bytes, std::uint64_t alignment = 64) {
  Taken taken;
  taken.memory = spare.take(bytes, alignment, taken.capacity);
  EXPECT_NE(taken.memory, nullptr);
  EXPECT_GE(taken.capacity, bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(taken.memory) % alignment, 0u);
  return taken;
}

void give(SpareMemory& spare, const Taken& taken) { spare.give(taken.memory, taken.capacity); }

class SpareMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!SpareMemory::is_on()) GTEST_SKIP() << "memory is not handed on under this sanitizer";
  }
  void TearDown() override { spare_.clear(); }
  SpareMemory spare_;
};

TEST_F(SpareMemoryTest, WhatWasGivenServesATensorThatGrewALittle) {
  const Taken first = take(spare_, kMiB + 4096);
  give(spare_, first);
  EXPECT_EQ(spare_.kept_bytes(), first.capacity);
  const Taken second = take(spare_, kMiB + 8192);
  EXPECT_EQ(second.memory, first.memory);
  EXPECT_EQ(second.capacity, first.capacity);
  EXPECT_EQ(spare_.kept_bytes(), 0u);
  give(spare_, second);
}

TEST_F(SpareMemoryTest, AMuchLargerBlockIsLeftForOthers) {
  const Taken large = take(spare_, 8 * kMiB);
  give(spare_, large);
  const Taken small = take(spare_, kMiB);
  EXPECT_NE(small.memory, large.memory);
  EXPECT_LT(small.capacity, 2 * kMiB);
  give(spare_, small);
}

TEST_F(SpareMemoryTest, SmallBlocksAreNotKept) {
  give(spare_, take(spare_, SpareMemory::kLeast - 1));
  give(spare_, take(spare_, 1));
  EXPECT_EQ(spare_.kept_bytes(), 0u);
}

TEST_F(SpareMemoryTest, AlignmentIsKept) {
  for (const std::uint64_t alignment : {64, 4096, 1 << 16}) {
    const Taken taken = take(spare_, kMiB, alignment);
    give(spare_, taken);
  }
}

/// What Linux says of the mapping that an address lies in; "" where it says nothing.
std::string mapping_flags(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &begin, &end) == 2)
      inside = begin <= address && address < end;
    if (inside && line.rfind("VmFlags:", 0) == 0) return line;
  }
  return "";
}

// Else the system would clear a large result anew in pieces of 4 KiB, each of them a fault.
TEST_F(SpareMemoryTest, LargeBlocksAreMarkedForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "this kernel has no huge pages";
  const Taken taken = take(spare_, 64 * kMiB);
  const std::string flags = mapping_flags(taken.memory);
  give(spare_, taken);
  if (flags.empty()) GTEST_SKIP() << "this kernel says nothing of its mappings";
  EXPECT_NE(flags.find(" hg"), std::string::npos) << flags;
}

// What a kernel reads and what it writes are far apart in their pages, and far from where other allocators begin.
TEST_F(SpareMemoryTest, BlocksBeginAtDifferentPlacesOfTheirPages) {
  constexpr std::uint64_t kPage = 4096, kFar = 384;
  std::vector<Taken> blocks;
  std::vector<std::uint64_t> places{16, 64};
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(take(spare_, 4 * kMiB));
    const std::uint64_t place = reinterpret_cast<std::uintptr_t>(blocks.back().memory) % kPage;
    for (const std::uint64_t other : places) {
      const std::uint64_t distance = (place + kPage - other) % kPage;
      EXPECT_GE(std::min(distance, kPage - distance), kFar) << place << " and " << other;
    }
    places.push_back(place);
  }
  for (const Taken& block : blocks) give(spare_, block);
}

TEST_F(SpareMemoryTest, NoMoreIsKeptThanValuesHoldAndALittle) {
  std::vector<Taken> values;
  for (int i = 0; i < 64; ++i) values.push_back(take(spare_, kMiB));
  for (int i = 0; i < 32; ++i) give(spare_, values[static_cast<std::size_t>(i)]);
  EXPECT_EQ(spare_.kept_bytes(), 32 * values[0].capacity);
  for (int i = 32; i < 64; ++i) give(spare_, values[static_cast<std::size_t>(i)]);
  EXPECT_EQ(spare_.kept_bytes(), SpareMemory::kAlwaysKept);
  spare_.clear();
  EXPECT_EQ(spare_.kept_bytes(), 0u);
}

TEST_F(SpareMemoryTest, WhatTheSystemDoesNotHaveIsNull) {
  std::uint64_t capacity = 0;
  give(spare_, take(spare_, kMiB));
  EXPECT_EQ(spare_.take(UINT64_MAX - 100, 64, capacity), nullptr);
  EXPECT_EQ(spare_.take(1ull << 62, 64, capacity), nullptr);
  EXPECT_EQ(spare_.kept_bytes(), 0u) << "it might have been what was missing";
}

TEST_F(SpareMemoryTest, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      std::mt19937 random(seed);
      std::vector<Taken> held;
      for (int i = 0; i < 2000; ++i) {
        if (held.size() > 8 || (!held.empty() && random() % 2 == 0)) {
          const std::size_t which = random() % held.size();
          EXPECT_EQ(*static_cast<unsigned*>(held[which].memory), seed);
          give(spare_, held[which]);
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        } else {
          held.push_back(take(spare_, SpareMemory::kLeast + random() % 100000));
          *static_cast<unsigned*>(held.back().memory) = seed;
        }
      }
      for (const Taken& taken : held) give(spare_, taken);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(spare_.kept_bytes(), SpareMemory::kAlwaysKept);
}

}  // namespace
}  // namespace backplane::core
