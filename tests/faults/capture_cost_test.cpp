// What the core itself does for a replay, the device's call aside: its time, and that it allocates nothing.
#include <chrono>
#include <cstdio>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "core/runtime/plan_capture.hpp"
#include "tests/control_flow/counted_new.hpp"
#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

class CaptureCost : public FaultTest {};

/// The memory of a plan with two bound values in devices' memory.
void fill(MemoryKey& key, const std::shared_ptr<void>& owner, bp_tensor& place) {
  key.clear();
  key.add(42);
  for (const std::uint64_t offset : {0u, 512u}) {
    place.offset = offset;
    key.add(place, owner);
  }
}

TEST_F(CaptureCost, OfAReplayIsBelowAMicrosecondWithoutAllocation) {
  MixedSession session(
      ModelMaker().input("x", {2}).node("n", "Neg", {"x"}, "y").output("y").bytes(), {},
      {{"delay_us", "0"}});
  const DevicePtr device = session.core().devices().devices[0].device;
  const bp_plan_capture& table = *device->plan_capture();
  Stream stream(device);
  CaptureRange range;
  CaptureTally tally;
  RangeCapture capture(range, tally);
  const std::shared_ptr<void> owner = std::make_shared<int>(1);
  bp_tensor place{};
  MemoryKey key;
  fill(key, owner, place);
  EXPECT_EQ(capture.find(key), nullptr);
  EXPECT_FALSE(capture.should_record(key));
  EXPECT_TRUE(capture.should_record(key)) << "the second time it may be";
  bp_recording* made = nullptr;
  device->check(table.begin(device->raw(), stream.raw()), "begin");
  device->check(table.end(device->raw(), stream.raw(), capture.oldest(), &made), "end");
  capture.keep(key, *device, made);

  constexpr int kTurns = 200'000;
  int found = 0;
  const std::uint64_t before = flow::allocation_count();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTurns; ++i) {
    fill(key, owner, place);
    found += capture.find(key) == made ? 1 : 0;
    tally.replayed.fetch_add(1, std::memory_order_relaxed);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(flow::allocation_count(), before);
  EXPECT_EQ(found, kTurns);
  std::printf("a replay costs the core %.0f ns beside the device's call\n", took.count() / kTurns);
#if defined(NDEBUG)
  EXPECT_LT(took.count() / kTurns, 1000);
#endif
}

TEST_F(CaptureCost, MemoryThatTookADeadOnesPlaceIsOtherMemory) {
  MemoryKey first, second;
  bp_tensor place{};
  auto owner = std::make_shared<int>(1);
  fill(first, owner, place);
  owner = std::make_shared<int>(2);
  fill(second, owner, place);
  EXPECT_FALSE(first == second);
  fill(first, owner, place);
  EXPECT_TRUE(first == second);
}

}  // namespace
}  // namespace backplane::core::faults
