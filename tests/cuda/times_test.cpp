// When the work of a stream began and ended, on the stand-in, whose events know the host's clock.
#include "tests/cuda/neg_and_copy.hpp"
#include "tests/fixtures/device_times.hpp"

namespace backplane::cuda {
namespace {

using Floats = std::vector<float>;
using test_host::take_times;
using test_host::WorkTime;

class CudaTimes : public CudaTest {
 protected:
  template <class Table>
  const Table& table(const char* name) const {
    return *static_cast<const Table*>(provider()->get_interface(provider()->self, name, 1));
  }
  void record(bool on) const { check(times_.record(device_.raw(), stream_.raw(), on ? 1 : 0)); }
  std::vector<WorkTime> take() const { return take_times(times_, device_, stream_); }

  const bp_device_times& times_ = table<bp_device_times>(BP_DEVICE_TIMES_INTERFACE);
  const bp_plan_capture& capture_ = table<bp_plan_capture>(BP_PLAN_CAPTURE_INTERFACE);
  const OpenDevice device_ = open();
  const TestStream stream_{device_};
  const NegAndCopy work_{device_, stream_, capture_};
  const TestBuffer x_{device_, BP_MEMORY_DEVICE, 64}, y_{device_, BP_MEMORY_DEVICE, 64};
};

TEST_F(CudaTimes, WorkIsShownOnceByTheHostsClockAndOnlyWhereItIsWanted) {
  negate();
  const auto run = [&] {
    test_host::upload(device_, stream_, {1, 2, 3, 4, 5, 6}, {nullptr, x_.raw()});
    work_.put(x_, y_);
    EXPECT_EQ(work_.result(y_), (Floats{-1, -2, -3, -4, -5, -6}));
  };
  run();
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(stand_in().count("record"), 0u) << "a stream that was never asked costs nothing";
  record(true);
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t before = steady_ns();
    run();
    const std::uint64_t after = steady_ns();
    const std::vector<WorkTime> times = take();
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
    EXPECT_TRUE(take().empty()) << "it was shown once";
  }
  record(false);
  run();
  EXPECT_TRUE(take().empty());
}

TEST_F(CudaTimes, CapturedWorkIsOnePieceWhenItIsReplayed) {
  record(true);
  stand_in().calls.clear();
  bp_recording* const recording = work_.record(x_, y_);
  EXPECT_EQ(stand_in().count("record"), 0u) << "an event in a graph has no time";
  EXPECT_TRUE(take().empty());
  check(capture_.replay(device_.raw(), stream_.raw(), recording));
  stream_.sync();
  const std::vector<WorkTime> times = take();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].name, "captured steps");
  capture_.release(device_.raw(), recording);
}

TEST_F(CudaTimes, APieceThatCannotBeNotedDoesNotFailTheRun) {
  record(true);
  for (const std::size_t failing : {0u, 1u}) {
    stand_in().failures["record"].assign(failing, "");
    stand_in().failures["record"].emplace_back("CUDA_ERROR_INVALID_VALUE");
    work_.put(x_, y_);
    stream_.sync();
    const std::vector<WorkTime> times = take();
    ASSERT_EQ(times.size(), 1u) << "the kernel could not be noted, the copy could";
    EXPECT_EQ(times[0].name, "copy");
  }
}

}  // namespace
}  // namespace backplane::cuda
