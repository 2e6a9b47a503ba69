// What the provider itself costs, measured: the host's work for a launch, and the rate of copies, each beside
// what the driver gives without us. The figures of plugins/opencl/README.md are this program's:
//
//   build/release/tests/opencl_device --gtest_filter='OpenClFigures.*'
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>

#include "tests/opencl/opencl_device.hpp"

namespace backplane::test_host {
namespace {

/// The least of several times, in nanoseconds.
double least_ns(int rounds, const std::function<void()>& work) {
  double least = 1e300;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::nano> passed =
        std::chrono::steady_clock::now() - begin;
    least = std::min(least, passed.count());
  }
  return least;
}

TEST(OpenClFigures, LaunchesCostTheHostLittle) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, {});
  const TestStream stream(device);
  constexpr int kLaunches = 200;
  const NegOnDevice neg(device, 1);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 4), y(device, BP_MEMORY_DEVICE, 4);
  const auto put = [&] { check(neg.put(stream, {nullptr, x.raw()}, {nullptr, y.raw()})); };
  put();
  stream.sync();
  double enqueue = 1e300;
  const double whole = least_ns(20, [&] {
    enqueue = std::min(enqueue, least_ns(1, [&] {
                         for (int i = 0; i < kLaunches; ++i) put();
                       }));
    stream.sync();
  });
  std::cout << "a launch: " << enqueue / kLaunches << " ns of the host to enqueue, "
            << whole / kLaunches << " ns until it is done, " << kLaunches << " in a row\n";
  EXPECT_LT(enqueue / kLaunches, 1e6);
}

TEST(OpenClFigures, CopiesRunAtTheRateOfTheMemory) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, {});
  const TestStream stream(device);
  constexpr std::int64_t kCount = 8 << 20;
  constexpr double kBytes = 4.0 * kCount;
  std::vector<float> host(kCount, 1.0f), other(kCount);
  const TestBuffer buffer(device, BP_MEMORY_DEVICE, 4 * kCount);
  const Place there{nullptr, buffer.raw()};
  const auto rate = [&](const std::function<void()>& work) { return kBytes / least_ns(5, work); };
  const double up = rate([&] {
    check(copy_floats(device, stream, {host.data(), nullptr}, there, kCount));
    stream.sync();
  });
  const double down = rate([&] {
    check(copy_floats(device, stream, there, {other.data(), nullptr}, kCount));
    stream.sync();
  });
  EXPECT_EQ(other, host);
  const double plain = rate([&] { std::memcpy(other.data(), host.data(), 4 * kCount); });
  std::cout << "copies of " << kBytes / 1048576 << " MiB: " << up << " GB/s to the device, " << down
            << " GB/s from it; memcpy " << plain << " GB/s\n";
  EXPECT_GT(up, 0.0);
}

}  // namespace
}  // namespace backplane::test_host
