// Streams that are queues out of order: results as if in order, and no more waiting than that takes.
#include <gtest/gtest.h>
#include <random>

#include "tests/fixtures/device_times.hpp"
#include "tests/opencl/opencl_device.hpp"

namespace backplane::test_host {
namespace {

const OpenDevice::Options kOutOfOrder{{"cache_dir", "off"}, {"queue", "out_of_order"}};

/// A device with such queues; a machine without one skips, with what the provider says.
#define NEEDS_OUT_OF_ORDER(plugin)                             \
  NEEDS_OPENCL(plugin);                                        \
  try {                                                        \
    const OpenDevice tried((plugin).provider, 0, kOutOfOrder); \
  } catch (const StatusError& error) {                         \
    ASSERT_EQ(error.code(), BP_UNSUPPORTED) << error.what();   \
    GTEST_SKIP() << error.what();                              \
  }

/// When the work on a stream ran.
class Recorder {
 public:
  Recorder(const OpenClPlugin& opencl, const OpenDevice& device, const TestStream& stream)
      : table_(*static_cast<const bp_device_times*>(
            opencl.provider->get_interface(opencl.provider->self, BP_DEVICE_TIMES_INTERFACE, 1))),
        device_(device),
        stream_(stream) {
    check(table_.record(device.raw(), stream.raw(), 1));
  }
  std::vector<WorkTime> take() const { return take_times(table_, device_, stream_); }

 private:
  const bp_device_times& table_;
  const OpenDevice& device_;
  const TestStream& stream_;
};

/// The product of a row and a column: one work item, which is long at work.
class LongDot {
 public:
  static constexpr std::int64_t kDepth = 1 << 22;
  explicit LongDot(const OpenDevice& device) : node_("", "MatMul", 13) {
    node_.input(BP_FLOAT, {1, kDepth}).input(BP_FLOAT, {kDepth, 1}).outputs(1);
    kernel_ = std::make_unique<KernelUnderTest>(device.kernel("MatMul"), device.raw(), node_.raw());
    const std::vector<float> none(kDepth);
    kernel_->prepare({floats({1, kDepth}, none), floats({kDepth, 1}, none)}, {false, false}, 1);
  }
  void put(const TestStream& stream, const TestBuffer& x, const TestBuffer& y,
           std::uint64_t y_offset) const {
    check(kernel_->compute({{nullptr, x.raw()}, {nullptr, x.raw()}}, {{nullptr, y.raw(), y_offset}},
                           {}, {}, stream.raw()));
  }

 private:
  NodeUnderTest node_;
  std::unique_ptr<KernelUnderTest> kernel_;
};

/// Whether a launch that writes at `offset` began before the end of a row of launches in front of it, which write at 0.
bool last_overtakes(const OpenClPlugin& opencl, const OpenDevice::Options& options,
                    std::uint64_t offset) {
  const OpenDevice device(opencl.provider, 0, options);
  const TestStream stream(device);
  const Recorder recorder(opencl, device, stream);
  const LongDot dot(device);
  const TestBuffer x(device, BP_MEMORY_DEVICE, LongDot::kDepth * 4),
      y(device, BP_MEMORY_DEVICE, 1024);
  upload(device, stream, std::vector<float>(LongDot::kDepth, 1), {nullptr, x.raw()});
  recorder.take();
  // Long enough for the device's threads to wake up on a busy machine.
  constexpr std::size_t kInFront = 40;
  for (std::size_t i = 0; i < kInFront; ++i) dot.put(stream, x, y, 0);
  dot.put(stream, x, y, offset);
  stream.sync();
  const std::vector<WorkTime> spans = recorder.take();
  EXPECT_EQ(spans.size(), kInFront + 1);
  return spans.size() == kInFront + 1 && spans[kInFront].begin_ns < spans[kInFront - 1].begin_ns;
}

TEST(OpenClQueue, LaunchesThatShareNoWrittenMemoryDoNotWaitForEachOther) {
  const OpenClPlugin opencl;
  NEEDS_OUT_OF_ORDER(opencl);
  EXPECT_TRUE(last_overtakes(opencl, kOutOfOrder, 512));
}

TEST(OpenClQueue, LaunchesThatWriteTheSameMemoryWait) {
  const OpenClPlugin opencl;
  NEEDS_OUT_OF_ORDER(opencl);
  EXPECT_FALSE(last_overtakes(opencl, kOutOfOrder, 0));
}

TEST(OpenClQueue, InOrderEveryLaunchWaitsForTheOneBefore) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  EXPECT_FALSE(last_overtakes(opencl, kNoCache, 512));
}

/// Negations and copies between pieces of one buffer, at offsets that overlap in part, and what they give one after the
/// other.
class RandomWork {
 public:
  static constexpr std::size_t kPiece = 256, kPlaces = 24, kStep = 32,
                               kAll = kPlaces * kStep + kPiece;

  RandomWork(const OpenDevice& device, const TestStream& stream)
      : device_(device),
        stream_(stream),
        neg_(device, kPiece),
        memory_(device, BP_MEMORY_DEVICE, kAll * 4),
        expected_(kAll) {
    for (std::size_t i = 0; i < kAll; ++i) expected_[i] = static_cast<float>(i + 1);
    upload(device, stream, expected_, {nullptr, memory_.raw()});
  }
  void step() {
    const std::size_t from = place(), to = place();
    if (from < to + kPiece && to < from + kPiece) return;  // of one command they may not overlap
    const Place source{nullptr, memory_.raw(), from * 4}, target{nullptr, memory_.raw(), to * 4};
    const bool negates = random_() % 2 == 0;
    check(negates ? neg_.put(stream_, source, target)
                  : copy_floats(device_, stream_, source, target, kPiece));
    for (std::size_t i = 0; i < kPiece; ++i)
      expected_[to + i] = negates ? -expected_[from + i] : expected_[from + i];
  }
  void compare() const {
    EXPECT_EQ(download(device_, stream_, {nullptr, memory_.raw()}, kAll), expected_);
  }

 private:
  std::size_t place() { return random_() % (kPlaces + 1) * kStep; }

  const OpenDevice& device_;
  const TestStream& stream_;
  NegOnDevice neg_;
  TestBuffer memory_;
  std::vector<float> expected_;
  std::mt19937 random_{7};
};

TEST(OpenClQueue, GivesResultsAsIfInOrder) {
  const OpenClPlugin opencl;
  NEEDS_OUT_OF_ORDER(opencl);
  const OpenDevice device(opencl.provider, 0, kOutOfOrder);
  const TestStream stream(device);
  RandomWork work(device, stream);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 100; ++i) work.step();
    work.compare();
  }
  // More than what is kept in mind between two waits.
  for (int i = 0; i < 2000; ++i) work.step();
  work.compare();
}

TEST(OpenClQueue, FencesHoldAndPassOnAllThatWasBefore) {
  const OpenClPlugin opencl;
  NEEDS_OUT_OF_ORDER(opencl);
  const OpenDevice device(opencl.provider, 0, kOutOfOrder);
  const TestStream first(device), second(device);
  const TestFence fence(device), done(device);
  constexpr std::size_t kCount = 1 << 16;
  const NegOnDevice neg(device, kCount);
  const TestBuffer x(device, BP_MEMORY_DEVICE, kCount * 4), y(device, BP_MEMORY_DEVICE, kCount * 4);
  upload(device, first, std::vector<float>(kCount, 1), {nullptr, x.raw()});
  // Held by a fence that is signalled later, whatever memory the work touches.
  fence.wait(second, 1);
  check(neg.put(second, {nullptr, x.raw()}, {nullptr, y.raw()}));
  done.signal(second, 1);
  EXPECT_EQ(done.host_wait(1, 2'000'000).first, BP_TIMEOUT);
  fence.signal(first, 1);
  EXPECT_EQ(done.host_wait(1).first, BP_OK);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    check(neg.put(first, {nullptr, x.raw()}, {nullptr, y.raw()}));
    fence.signal(first, 2 * round);
    fence.wait(second, 2 * round);
    check(neg.put(second, {nullptr, y.raw()}, {nullptr, x.raw()}));
    fence.signal(second, 2 * round + 1);
    fence.wait(first, 2 * round + 1);
  }
  EXPECT_EQ(download(device, first, {nullptr, x.raw()}, kCount), std::vector<float>(kCount, 1));
}

TEST(OpenClQueue, CommandsOfOthersOnTheNativeQueueStandBetweenBarriers) {
  const OpenClPlugin opencl;
  NEEDS_OUT_OF_ORDER(opencl);
  const OpenDevice device(opencl.provider, 0, kOutOfOrder);
  const TestStream stream(device);
  constexpr std::size_t kCount = 1 << 20;
  const NegOnDevice neg(device, kCount);
  const TestBuffer x(device, BP_MEMORY_DEVICE, kCount * 4), y(device, BP_MEMORY_DEVICE, kCount * 4);
  for (int round = 0; round < 5; ++round) {
    upload(device, stream, std::vector<float>(kCount, 3), {nullptr, x.raw()});
    check(neg.put(stream, {nullptr, x.raw()}, {nullptr, y.raw()}));
    std::uint64_t queue = 0, source = 0, target = 0;
    check(device->native(device.raw(), BP_NATIVE_STREAM, stream.raw(), nullptr, &queue));
    check(device->native(device.raw(), BP_NATIVE_BUFFER, nullptr, y.raw(), &source));
    check(device->native(device.raw(), BP_NATIVE_BUFFER, nullptr, x.raw(), &target));
    // NOLINTBEGIN(performance-no-int-to-ptr): the interface gives native handles as numbers
    ASSERT_EQ(clEnqueueCopyBuffer(
                  reinterpret_cast<cl_command_queue>(queue), reinterpret_cast<cl_mem>(source),
                  reinterpret_cast<cl_mem>(target), 0, 0, kCount * 4, 0, nullptr, nullptr),
              CL_SUCCESS);
    // NOLINTEND(performance-no-int-to-ptr)
    check(neg.put(stream, {nullptr, x.raw()}, {nullptr, y.raw()}));
    EXPECT_EQ(download(device, stream, {nullptr, y.raw()}, kCount), std::vector<float>(kCount, 3));
  }
}

TEST(OpenClQueue, IsRefusedBesideTheUsersQueue) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const CallersOpenCl callers(0);
  OpenDevice::Options options = callers.options();
  options.emplace_back("queue", "out_of_order");
  try {
    const OpenDevice device(opencl.provider, 0, options);
    FAIL() << "two kinds of queues were accepted";
  } catch (const StatusError& error) {
    EXPECT_EQ(error.code(), BP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("user_queue"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace backplane::test_host
