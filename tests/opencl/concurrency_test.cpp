// One prepared node computed by many threads at a time, each on its own stream.
#include <gtest/gtest.h>
#include <thread>

#include "tests/opencl/opencl_device.hpp"

namespace backplane::test_host {
namespace {

TEST(OpenClConcurrency, ManyThreadsComputeOnePreparedNodeOnTheirOwnMemory) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, {{"cache_dir", "off"}});
  constexpr std::size_t kThreads = 8, kRounds = 200, kCount = 37;
  const NegOnDevice neg(device, kCount);
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      const TestStream stream(device);
      const TestBuffer x(device, BP_MEMORY_DEVICE, 4096), y(device, BP_MEMORY_DEVICE, 4096);
      for (std::size_t round = 0; round < kRounds; ++round) {
        const auto value = static_cast<float>(number * 1000 + round);
        const std::uint64_t offset = 128 * ((number + round) % 8);
        upload(device, stream, std::vector<float>(kCount, value), {nullptr, x.raw(), offset});
        check(neg.put(stream, {nullptr, x.raw(), offset}, {nullptr, y.raw(), offset}));
        if (download(device, stream, {nullptr, y.raw(), offset}, kCount) !=
            std::vector<float>(kCount, -value))
          ++wrong[number];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

}  // namespace
}  // namespace backplane::test_host
