// Pinned memory that is kept for later requests, on the stand-in.
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "tests/cuda/faulty_gather.hpp"

namespace backplane::cuda {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// How often pages were pinned and given back.
std::pair<std::size_t, std::size_t> pinned_and_given_back() {
  return {stand_in().count("allocate_pinned"), stand_in().count("free_pinned")};
}

TEST_F(CudaTest, PinnedMemoryThatIsFreedServesTheNextRequestOfItsSize) {
  const OpenDevice device = open();
  for (const std::uint64_t bytes : {1000 * 1000, 1000 * 1000 - 4, 1000 * 1000 + 4}) {
    const TestBuffer staging(device, BP_MEMORY_PINNED, bytes);
    EXPECT_NE(staging.host(), nullptr);
  }
  EXPECT_EQ(pinned_and_given_back(), (std::pair<std::size_t, std::size_t>{1, 0}));
  const TestBuffer small(device, BP_MEMORY_PINNED, 100);
  EXPECT_EQ(stand_in().count("allocate_pinned"), 2u) << "a small one takes no large block";
  const TestBuffer one(device, BP_MEMORY_PINNED, 1000 * 1000),
      two(device, BP_MEMORY_PINNED, 1000 * 1000);
  EXPECT_NE(one.host(), two.host());
  EXPECT_EQ(stand_in().count("allocate_pinned"), 3u);
}

TEST_F(CudaTest, ABlockIsAtLeastAsLargeAsWhatWasAskedFor) {
  const OpenDevice device = open();
  std::uint64_t largest = 0;
  for (std::uint64_t bytes = 1; bytes < 40 * kMiB; bytes = bytes * 5 / 4 + 1) {
    const TestBuffer staging(device, BP_MEMORY_PINNED, bytes);
    std::memset(staging.host(), 1, bytes);
    largest = bytes;
  }
  EXPECT_GT(largest, 20 * kMiB);
}

TEST_F(CudaTest, WhatIsKeptHasALimitAndWhatCameBackFirstGoesFirst) {
  const OpenDevice device = open();
  {
    const TestBuffer first(device, BP_MEMORY_PINNED, 128 * kMiB),
        second(device, BP_MEMORY_PINNED, 100 * kMiB), third(device, BP_MEMORY_PINNED, 64 * kMiB);
  }  // the third one comes back first
  EXPECT_EQ(stand_in().count("free_pinned"), 1u);
  stand_in().calls.clear();
  const TestBuffer first(device, BP_MEMORY_PINNED, 128 * kMiB),
      second(device, BP_MEMORY_PINNED, 100 * kMiB);
  EXPECT_EQ(stand_in().count("allocate_pinned"), 0u);
  const TestBuffer third(device, BP_MEMORY_PINNED, 64 * kMiB);
  EXPECT_EQ(stand_in().count("allocate_pinned"), 1u);
}

TEST_F(CudaTest, ABlockThatIsLargerThanAllThatIsKeptGoesBackAtOnce) {
  const OpenDevice device = open();
  { const TestBuffer large(device, BP_MEMORY_PINNED, 300 * kMiB); }
  EXPECT_EQ(pinned_and_given_back(), (std::pair<std::size_t, std::size_t>{1, 1}));
}

TEST_F(CudaTest, WherePinnedMemoryRunsOutWhatIsKeptGoesBackFirst) {
  const OpenDevice device = open();
  { const TestBuffer kept(device, BP_MEMORY_PINNED, 8 * kMiB); }
  stand_in().calls.clear();
  stand_in().failures["allocate_pinned"] = {"CUDA_ERROR_OUT_OF_MEMORY"};
  const TestBuffer more(device, BP_MEMORY_PINNED, 64 * kMiB);
  EXPECT_EQ(pinned_and_given_back(), (std::pair<std::size_t, std::size_t>{2, 1}));
  stand_in().failures["allocate_pinned"] = {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"};
  bp_buffer* raw = nullptr;
  EXPECT_EQ(take(device->buffer_alloc(device.raw(), BP_MEMORY_PINNED, 128 * kMiB, 256, &raw)).first,
            BP_OUT_OF_MEMORY);
}

TEST_F(CudaTest, WhatTakesDeviceMemoryBesideThePoolIsTriedOnceMoreWithoutWhatThePoolKeeps) {
  const OpenDevice device = open();
  { const TestBuffer freed(device, BP_MEMORY_DEVICE, kMiB); }
  EXPECT_EQ(stand_in().kept_bytes, kMiB);
  stand_in().is_full = true;
  const FaultyGather gather(device);
  EXPECT_EQ(stand_in().count("trim"), 1u);
  EXPECT_EQ(stand_in().count("load"), 2u);
}

TEST_F(CudaTest, ManyFreedBytesGoBackToTheDeviceWhenLittleIsInUse) {
  const OpenDevice device = open();
  const TestBuffer stays(device, BP_MEMORY_DEVICE, 100 * kMiB);
  const auto take_and_free = [&](std::uint64_t bytes) {
    const TestBuffer freed(device, BP_MEMORY_DEVICE, bytes);
  };
  take_and_free(90 * kMiB);
  for (int i = 0; i < 10; ++i) take_and_free(50 * kMiB);
  EXPECT_EQ(stand_in().count("trim"), 0u) << "more than half of the most is in use";
  take_and_free(250 * kMiB);
  EXPECT_EQ(stand_in().count("trim"), 1u);
  EXPECT_EQ(stand_in().kept_bytes, 0u);
  take_and_free(220 * kMiB);
  EXPECT_EQ(stand_in().count("trim"), 1u) << "rarely";
  take_and_free(100 * kMiB);
  EXPECT_EQ(stand_in().count("trim"), 2u);
}

TEST_F(CudaTest, StreamsShareAPageOfWords) {
  const OpenDevice device = open();
  for (int i = 0; i < 1000; ++i) const TestStream stream(device);
  EXPECT_EQ(pinned_and_given_back(), (std::pair<std::size_t, std::size_t>{1, 0}));
  std::vector<std::unique_ptr<TestStream>> many;
  for (int i = 0; i < 100; ++i) many.push_back(std::make_unique<TestStream>(device));
  EXPECT_EQ(stand_in().count("allocate_pinned"), 2u);
}

TEST_F(CudaTest, AWordThatAStreamStillWaitsForIsNobodyElses) {
  const OpenDevice device = open();
  const TestStream first(device), second(device);
  stand_in().holds = true;
  for (const TestStream* const stream : {&first, &second}) {
    const TestFence fence(device);
    fence.wait(*stream, 1);
  }
  const std::set<const void*> words(stand_in().awaited_words.begin(),
                                    stand_in().awaited_words.end());
  EXPECT_EQ(words.size(), 2u);
  stand_in().holds = false;
  first.sync();
  second.sync();
}

}  // namespace
}  // namespace backplane::cuda
