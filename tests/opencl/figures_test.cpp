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

const bp_kernel_def* kernel_named(const OpenDevice& device, const std::string& name,
                                  const std::string& op_type) {
  struct Search {
    std::string name, op_type;
    const bp_kernel_def* found = nullptr;
  } search{name, op_type};
  check(
      device->kernels(device.raw(), &search, [](void* to, const bp_kernel_def* def) -> bp_status* {
        auto& wanted = *static_cast<Search*>(to);
        if (wanted.name == def->name && wanted.op_type == def->op_type) wanted.found = def;
        return nullptr;
      }));
  if (search.found == nullptr) throw std::runtime_error("no kernel " + name);
  return search.found;
}

/// A product of matrices that are no constants, so that what is converted for it counts.
class TimedProduct {
 public:
  static constexpr std::int64_t kRows = 256, kDepth = 768, kColumns = 768;
  TimedProduct(const OpenDevice& device, bp_dtype type, const char* op_type, const char* name)
      : node_("", op_type, 13),
        a_(device, BP_MEMORY_DEVICE, kRows * kDepth * 4),
        b_(device, BP_MEMORY_DEVICE, kDepth * kColumns * 4),
        y_(device, BP_MEMORY_DEVICE, kRows * kColumns * 4),
        workspace_(device, BP_MEMORY_DEVICE, 64 << 20) {
    node_.input(type, {kRows, kDepth}).input(type, {kDepth, kColumns}).outputs(1);
    kernel_ = std::make_unique<KernelUnderTest>(kernel_named(device, name, op_type), device.raw(),
                                                node_.raw());
    const auto operand = [&](std::int64_t rows, std::int64_t columns) {
      const auto bytes = static_cast<std::size_t>(rows * columns) * (type == BP_FLOAT ? 4 : 1);
      return HostTensor{type, {rows, columns}, std::vector<std::uint8_t>(bytes)};
    };
    kernel_->prepare({operand(kRows, kDepth), operand(kDepth, kColumns)}, {false, false}, 1);
    if (kernel_->workspace_bytes() > 64 << 20) throw std::runtime_error("a larger workspace");
  }
  void run(const TestStream& stream) const {
    check(kernel_->compute({{nullptr, a_.raw()}, {nullptr, b_.raw()}}, {{nullptr, y_.raw()}}, {},
                           {nullptr, workspace_.raw()}, stream.raw()));
    stream.sync();
  }

 private:
  NodeUnderTest node_;
  TestBuffer a_, b_, y_, workspace_;
  std::unique_ptr<KernelUnderTest> kernel_;
};

TEST(OpenClFigures, ProductsOfIntegersKeepUpWithThoseOfFloats) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, {});
  const TestStream stream(device);
  const TimedProduct floats(device, BP_FLOAT, "MatMul", "opencl:matmul"),
      integers(device, BP_UINT8, "MatMulInteger", "opencl:exact matmul"),
      plain(device, BP_UINT8, "MatMulInteger", "opencl:integer matmul");
  for (const TimedProduct* each : {&floats, &integers, &plain}) each->run(stream);
  double least[3] = {1e300, 1e300, 1e300};
  for (int round = 0; round < 8; ++round) {
    std::size_t i = 0;
    for (const TimedProduct* each : {&floats, &integers, &plain}) {
      least[i] =
          std::min(least[i], least_ns(round < 3 || i < 2 ? 1 : 0, [&] { each->run(stream); }));
      ++i;
    }
  }
  std::cout << "256 x 768 x 768, nothing constant: floats " << least[0] / 1e6 << " ms, integers "
            << least[1] / 1e6 << " ms, integers plainly " << least[2] / 1e6 << " ms\n";
  EXPECT_LT(least[1], least[2]);
}

}  // namespace
}  // namespace backplane::test_host
