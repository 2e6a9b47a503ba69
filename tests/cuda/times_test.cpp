// When the work of a stream began and ended, on the stand-in, whose events know the host's clock.
#include "backplane/plugin_api/optional/device_times.h"
#include "tests/cuda/neg_and_copy.hpp"

namespace backplane::cuda {
namespace {

using Floats = std::vector<float>;

struct Time {
  std::string name;
  std::uint64_t begin_ns, end_ns;
};

class CudaTimes : public CudaTest {
 protected:
  template <class Table>
  const Table& table(const char* name) const {
    return *static_cast<const Table*>(provider()->get_interface(provider()->self, name, 1));
  }
  std::vector<Time> times_of(const OpenDevice& device, const TestStream& stream) const {
    std::vector<Time> times;
    check(times_.take(device.raw(), stream.raw(), &times,
                      [](void* list, const bp_device_time* time) -> bp_status* {
                        static_cast<std::vector<Time>*>(list)->push_back(
                            {time->name, time->begin_ns, time->end_ns});
                        return nullptr;
                      }));
    return times;
  }
  const bp_device_times& times_ = table<bp_device_times>(BP_DEVICE_TIMES_INTERFACE);
  const bp_plan_capture& capture_ = table<bp_plan_capture>(BP_PLAN_CAPTURE_INTERFACE);
};

TEST_F(CudaTimes, WorkIsShownOnceByTheHostsClockAndOnlyWhereItIsWanted) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const NegAndCopy work(device, stream, capture_);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  negate();
  const auto run = [&] {
    test_host::upload(device, stream, {1, 2, 3, 4, 5, 6}, {nullptr, x.raw()});
    work.put(x, y);
    EXPECT_EQ(work.result(y), (Floats{-1, -2, -3, -4, -5, -6}));
  };
  run();
  EXPECT_TRUE(times_of(device, stream).empty());
  EXPECT_EQ(stand_in().count("record"), 0u) << "a stream that was never asked costs nothing";
  check(times_.record(device.raw(), stream.raw(), 1));
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t before = steady_ns();
    run();
    const std::uint64_t after = steady_ns();
    const std::vector<Time> times = times_of(device, stream);
    ASSERT_EQ(times.size(), 4u);
    const std::vector<std::string> names{"copy to the device", "kernel", "copy",
                                         "copy to the host"};
    constexpr std::uint64_t kBetweenClocks = 5'000'000;  // this thread may lose the processor there
    std::uint64_t last = before - kBetweenClocks;
    for (std::size_t k = 0; k < times.size(); ++k) {
      EXPECT_EQ(times[k].name, names[k]);
      EXPECT_GE(times[k].begin_ns, last);
      EXPECT_GE(times[k].end_ns, times[k].begin_ns);
      last = times[k].end_ns;
    }
    EXPECT_LE(last, after + kBetweenClocks);
    EXPECT_TRUE(times_of(device, stream).empty()) << "it was shown once";
  }
  check(times_.record(device.raw(), stream.raw(), 0));
  run();
  EXPECT_TRUE(times_of(device, stream).empty());
}

TEST_F(CudaTimes, CapturedWorkIsOnePieceWhenItIsReplayed) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const NegAndCopy work(device, stream, capture_);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  check(times_.record(device.raw(), stream.raw(), 1));
  stand_in().calls.clear();
  bp_recording* const recording = work.record(x, y);
  EXPECT_EQ(stand_in().count("record"), 0u) << "an event in a graph has no time";
  EXPECT_TRUE(times_of(device, stream).empty());
  check(capture_.replay(device.raw(), stream.raw(), recording));
  stream.sync();
  const std::vector<Time> times = times_of(device, stream);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].name, "captured steps");
  capture_.release(device.raw(), recording);
}

TEST_F(CudaTimes, APieceThatCannotBeNotedDoesNotFailTheRun) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const NegAndCopy work(device, stream, capture_);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  check(times_.record(device.raw(), stream.raw(), 1));
  for (const std::size_t failing : {0u, 1u}) {
    stand_in().failures["record"].assign(failing, "");
    stand_in().failures["record"].emplace_back("CUDA_ERROR_INVALID_VALUE");
    work.put(x, y);
    stream.sync();
    const std::vector<Time> times = times_of(device, stream);
    ASSERT_EQ(times.size(), 1u) << "the kernel could not be noted, the copy could";
    EXPECT_EQ(times[0].name, "copy");
  }
}

}  // namespace
}  // namespace backplane::cuda
