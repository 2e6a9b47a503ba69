// What devices say of themselves: when their work began and ended, and how much memory is free.
#include <chrono>
#include <gtest/gtest.h>

#include "backplane/plugin_api/optional/device_state.h"
#include "tests/fixtures/device_times.hpp"
#include "tests/opencl/opencl_device.hpp"

namespace backplane::test_host {
namespace {

template <class Table>
const Table& table_of(const OpenClPlugin& opencl, const char* name) {
  const void* found = opencl.provider->get_interface(opencl.provider->self, name, 1);
  EXPECT_NE(found, nullptr);
  EXPECT_EQ(opencl.provider->get_interface(opencl.provider->self, name, 2), nullptr);
  return *static_cast<const Table*>(found);
}

std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

TEST(OpenClTimes, WorkThatIsRecordedIsShownOnceByTheHostsClock) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const auto& table = table_of<bp_device_times>(opencl, BP_DEVICE_TIMES_INTERFACE);
  const OpenDevice device(opencl.provider, 0, kNoCache);
  const TestStream stream(device);
  constexpr std::size_t kCount = 1 << 20;
  const NegOnDevice neg(device, kCount);
  const TestBuffer x(device, BP_MEMORY_DEVICE, kCount * 4), y(device, BP_MEMORY_DEVICE, kCount * 4);
  check(neg.put(stream, {nullptr, x.raw()}, {nullptr, y.raw()}));
  stream.sync();
  EXPECT_TRUE(take_times(table, device, stream).empty()) << "nobody asked for it";
  check(table.record(device.raw(), stream.raw(), 1));
  const std::uint64_t before = steady_ns();
  upload(device, stream, std::vector<float>(kCount, 3), {nullptr, x.raw()});
  check(neg.put(stream, {nullptr, x.raw()}, {nullptr, y.raw()}));
  stream.sync();
  const std::uint64_t after = steady_ns();
  const std::vector<WorkTime> times = take_times(table, device, stream);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].name, "copy to the device");
  EXPECT_EQ(times[1].name, "kernel");
  std::uint64_t last = before;
  for (const WorkTime& time : times) {
    EXPECT_GE(time.begin_ns + 20'000, last) << "clocks differ by microseconds";
    EXPECT_GT(time.end_ns, time.begin_ns);
    last = time.end_ns;
  }
  EXPECT_LE(last, after + 20'000);
  EXPECT_TRUE(take_times(table, device, stream).empty()) << "it was shown once";
  EXPECT_EQ(download(device, stream, {nullptr, y.raw()}, 1), std::vector<float>{-3});
  check(table.record(device.raw(), stream.raw(), 0));
  EXPECT_EQ(neg.run(stream, std::vector<float>(kCount, 1)).back(), -1);
  EXPECT_TRUE(take_times(table, device, stream).empty());
}

TEST(OpenClTimes, AUsersQueueWithoutTimesIsRefusedWithTheReason) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const auto& table = table_of<bp_device_times>(opencl, BP_DEVICE_TIMES_INTERFACE);
  for (const cl_command_queue_properties properties : {0, CL_QUEUE_PROFILING_ENABLE}) {
    const CallersOpenCl callers(properties);
    const OpenDevice device(opencl.provider, 0, callers.options());
    const TestStream stream(device);
    const auto [code, text] = take(table.record(device.raw(), stream.raw(), 1));
    EXPECT_EQ(code, properties == 0 ? BP_UNSUPPORTED : BP_OK);
    EXPECT_EQ(text.find("user_queue") != std::string::npos, properties == 0) << text;
    EXPECT_EQ(NegOnDevice(device, 1).run(stream, {2}), std::vector<float>{-2});
    EXPECT_EQ(take_times(table, device, stream).empty(), properties == 0);
  }
}

TEST(OpenClStates, FreeMemoryIsKnownAndNoMoreThanThereIs) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const auto& table = table_of<bp_device_states>(opencl, BP_DEVICE_STATES_INTERFACE);
  for (const bp_device_info* info : opencl.infos) {
    Grown<bp_device_state> state{};
    state.base.struct_size = sizeof(bp_device_state);
    check(table.query(opencl.provider->self, info, &state.base));
    EXPECT_GT(state.base.free_bytes, 0u);
    EXPECT_LE(state.base.free_bytes, info->memory_bytes);
  }
  bp_device_state none{};
  none.struct_size = sizeof(bp_device_state);
  const bp_device_info other{};
  EXPECT_EQ(take(table.query(opencl.provider->self, &other, &none)).first, BP_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace backplane::test_host
