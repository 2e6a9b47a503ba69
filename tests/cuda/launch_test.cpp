// What nodes put on a stream: arguments, sizes, parts, faults, compiled kernels.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include "tests/cuda/faulty_gather.hpp"

namespace backplane::cuda {
namespace {

using test_host::floats;
using test_host::KernelUnderTest;
using test_host::NodeUnderTest;

/// Neg of `count` floats, ready on a device.
struct Neg {
  NodeUnderTest node{"", "Neg", 13};
  std::unique_ptr<KernelUnderTest> kernel;
  Neg(const OpenDevice& device, std::int64_t count) {
    node.input(BP_FLOAT, {count}).outputs(1);
    kernel = std::make_unique<KernelUnderTest>(device.kernel("Neg"), device.raw(), node.raw());
    kernel->prepare({floats({count}, std::vector<float>(static_cast<std::size_t>(count)))}, {false},
                    1);
  }
};

template <class T>
T argument(void** arguments, std::size_t index) {
  T value{};
  std::memcpy(&value, arguments[index], sizeof(value));
  return value;
}

TEST_F(CudaTest, ALaunchGetsAddressesWithOffsetsAndTheSizes) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const Neg neg(device, 4000);  // of which an item has four
  const TestBuffer x(device, BP_MEMORY_DEVICE, 32768), y(device, BP_MEMORY_DEVICE, 32768);
  std::uint64_t x_at = 0, y_at = 0;
  check(device->native(device.raw(), BP_NATIVE_BUFFER, nullptr, x.raw(), &x_at));
  check(device->native(device.raw(), BP_NATIVE_BUFFER, nullptr, y.raw(), &y_at));
  stand_in().kernel = [&](const std::string& source, const Extent& groups, const Extent& group,
                          void** arguments) {
    EXPECT_NE(source.find("KERNEL run("), std::string::npos);
    EXPECT_EQ(groups, (Extent{4, 1, 1}));
    EXPECT_EQ(group, (Extent{256, 1, 1}));
    EXPECT_EQ(argument<Address>(arguments, 0), x_at + 128);
    EXPECT_EQ(argument<std::int64_t>(arguments, 1), 0) << "the address has the offset already";
    EXPECT_EQ(argument<Address>(arguments, 2), y_at + 516);
    EXPECT_EQ(argument<std::int64_t>(arguments, 4), 4000);
    EXPECT_EQ(argument<unsigned>(arguments, 5), 0u);
    EXPECT_EQ(argument<unsigned>(arguments, 6), 0u);
  };
  check(neg.kernel->compute({{nullptr, x.raw(), 128}}, {{nullptr, y.raw(), 516}}, {}, {},
                            stream.raw()));
  EXPECT_EQ(stand_in().count("launch"), 1u);
}

TEST_F(CudaTest, GroupsPastCudasLimitAreLaunchedInParts) {
  const OpenDevice device = open();
  const TestStream stream(device);
  NodeUnderTest node("", "Transpose", 13);
  // A whole group along the last axis, so one row of y a group.
  node.input(BP_FLOAT, {256, 140000}).outputs(1);
  KernelUnderTest kernel(device.kernel("Transpose"), device.raw(), node.raw());
  kernel.prepare({floats({256, 140000}, {})}, {false}, 1);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  std::vector<std::pair<unsigned, unsigned>> parts;  // first group along y, groups along y
  std::size_t hidden = 0;
  stand_in().kernel = [&](const std::string& source, const Extent& groups, const Extent&,
                          void** arguments) {
    const std::string head = source.substr(source.find("KERNEL run("));
    hidden = static_cast<std::size_t>(std::count(
        head.begin(), head.begin() + static_cast<std::ptrdiff_t>(head.find(") {")), ','));
    // IN(T, x) is written with one comma and means two arguments, as does OUT(T, y).
    parts.emplace_back(argument<unsigned>(arguments, hidden + 1), groups[1]);
  };
  check(kernel.compute({{nullptr, x.raw()}}, {{nullptr, y.raw()}}, {}, {}, stream.raw()));
  EXPECT_EQ(parts, (std::vector<std::pair<unsigned, unsigned>>{
                       {0, 65535}, {65535, 65535}, {131070, 140000 - 131070}}));
}

TEST_F(CudaTest, AFaultIsReportedOnceWithTheNodeWhenTheStreamIsWaitedFor) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const FaultyGather gather(device);
  bool reports = true;
  stand_in().kernel = [&](const std::string& source, const Extent&, const Extent&,
                          void** arguments) {
    if (reports) report_fault(source, arguments);
  };
  const auto run = [&] {
    gather.put(stream);
    return stream.try_sync();
  };
  const auto [code, text] = run();
  EXPECT_EQ(code, BP_FAILED);
  EXPECT_NE(text.find("node '"), std::string::npos) << text;
  reports = false;
  EXPECT_EQ(run().first, BP_OK);
}

TEST_F(CudaTest, AFaultAfterAFenceThatSomebodyWaitedForIsReportedAllTheSame) {
  const OpenDevice device = open();
  const TestStream stream(device), other(device);
  const TestFence fence(device), gate(device);
  const FaultyGather gather(device);
  stand_in().kernel = [](const std::string& source, const Extent&, const Extent&,
                         void** arguments) { report_fault(source, arguments); };
  fence.signal(stream, 1);
  gate.wait(stream, 1);
  gather.put(stream);
  fence.signal(stream, 2);
  EXPECT_EQ(fence.host_wait(1).first, BP_OK) << "the kernel has not run yet";
  gate.signal(other, 1);
  EXPECT_EQ(fence.host_wait(2).first, BP_FAILED);
  EXPECT_EQ(stream.try_sync().first, BP_OK) << "once";
}

TEST_F(CudaTest, AFailedLaunchNamesTheNodeAndTheError) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const Neg neg(device, 8);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64);
  stand_in().failures["launch"] = {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"};
  const auto [code, text] =
      take(neg.kernel->compute({{nullptr, x.raw()}}, {{nullptr, x.raw()}}, {}, {}, stream.raw()));
  EXPECT_EQ(code, BP_INTERNAL);
  EXPECT_NE(text.find("node '"), std::string::npos) << text;
  EXPECT_NE(text.find("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"), std::string::npos) << text;
}

TEST_F(CudaTest, NodesOfOtherSizesShareAKernel) {
  const OpenDevice device = open();
  const Neg small(device, 10), large(device, 100000);
  EXPECT_EQ(stand_in().count("compile"), 1u);
  EXPECT_EQ(stand_in().live_modules, 1);
}

TEST_F(CudaTest, AComputeAllocatesNothingOnTheDevice) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const Neg neg(device, 8);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64);
  stand_in().calls.clear();
  for (int i = 0; i < 3; ++i)
    check(neg.kernel->compute({{nullptr, x.raw()}}, {{nullptr, x.raw()}}, {}, {}, stream.raw()));
  EXPECT_EQ(stand_in().calls, (std::vector<std::string>(3, "launch")));
}

TEST_F(CudaTest, KernelsAreKeptOnDiskByCompilerArchitectureAndSource) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("backplane_cuda_" + std::to_string(::getpid()));
  const auto open_and_prepare = [&] {
    const OpenDevice device(provider(), 0, {{"cache_dir", folder.string()}});
    const Neg neg(device, 8);
    return stand_in().count("compile");
  };
  EXPECT_EQ(open_and_prepare(), 1u);
  EXPECT_EQ(open_and_prepare(), 1u) << "read from the disk";
  for (const auto& entry : fs::directory_iterator(folder))
    fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
  EXPECT_EQ(open_and_prepare(), 2u) << "what is cut off is compiled anew";
  stand_in().failures["load"] = {"CUDA_ERROR_NO_BINARY_FOR_GPU"};
  EXPECT_EQ(open_and_prepare(), 3u) << "and what the driver does not take";
  stand_in().failures["load"] = {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"};
  EXPECT_THROW(open_and_prepare(), test_host::StatusError) << "but not where memory ran out";
  fs::remove_all(folder);
}

}  // namespace
}  // namespace backplane::cuda
