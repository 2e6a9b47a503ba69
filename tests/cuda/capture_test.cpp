// Capture of a plan's work, on the stand-in: what the host calls, one by one.
#include <optional>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "tests/cuda/faulty_gather.hpp"
#include "tests/cuda/neg_and_copy.hpp"

namespace backplane::cuda {
namespace {

using Floats = std::vector<float>;

class CudaCapture : public CudaTest {
 protected:
  static const bp_plan_capture& table(const bp_provider* provider) {
    const void* found = provider->get_interface(provider->self, BP_PLAN_CAPTURE_INTERFACE, 1);
    return *static_cast<const bp_plan_capture*>(found);
  }
};

TEST_F(CudaCapture, ThereIsVersion1OfItAndNothingElse) {
  EXPECT_EQ(provider()->get_interface(provider()->self, BP_PLAN_CAPTURE_INTERFACE, 2), nullptr);
  EXPECT_EQ(provider()->get_interface(provider()->self, "bp.something", 1), nullptr);
}

TEST_F(CudaCapture, WorkIsCapturedOnceAndLaunchedAsOne) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  const NegAndCopy work(device, stream, capture);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  negate();
  test_host::upload(device, stream, {1, 2, 3, 4, 5, 6}, {nullptr, x.raw()});
  test_host::upload(device, stream, Floats(kCount), {nullptr, y.raw()});
  bp_recording* const recording = work.record(x, y);
  EXPECT_EQ(work.result(y), Floats(kCount)) << "nothing is done while it is captured";
  stand_in().calls.clear();
  for (int i = 0; i < 3; ++i) {
    check(capture.replay(device.raw(), stream.raw(), recording));
    EXPECT_EQ(work.result(y), (Floats{-1, -2, -3, -4, -5, -6}));
    test_host::upload(device, stream, Floats(kCount), {nullptr, y.raw()});
  }
  EXPECT_EQ(stand_in().count("launch_graph"), 3u);
  EXPECT_EQ(stand_in().count("launch"), 0u) << "no kernel is launched by itself";
  capture.release(device.raw(), recording);
}

TEST_F(CudaCapture, AReplayMakesOneCallOfTheDriver) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  const NegAndCopy work(device, stream, capture);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  bp_recording* const recording = work.record(x, y);
  stand_in().calls.clear();
  check(capture.replay(device.raw(), stream.raw(), recording));
  EXPECT_EQ(stand_in().calls, (std::vector<std::string>{"launch_graph"}));
  capture.release(device.raw(), recording);
}

TEST_F(CudaCapture, WithOtherMemoryAnOlderRecordingIsUpdatedWhereItsFormAllows) {
  for (const bool updates : {true, false}) {
    stand_in().updates_graphs = updates;
    const OpenDevice device = open();
    const TestStream stream(device);
    const bp_plan_capture& capture = table(provider());
    const NegAndCopy work(device, stream, capture);
    const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64),
        z(device, BP_MEMORY_DEVICE, 64);
    negate();
    test_host::upload(device, stream, {1, 2, 3, 4, 5, 6}, {nullptr, x.raw()});
    bp_recording* const first = work.record(x, y);
    stand_in().calls.clear();
    bp_recording* const second = work.record(x, z, first);
    EXPECT_EQ(second == first, updates);
    EXPECT_EQ(stand_in().count("instantiate"), updates ? 0u : 1u);
    check(capture.replay(device.raw(), stream.raw(), second));
    EXPECT_EQ(work.result(z), (Floats{-1, -2, -3, -4, -5, -6}));
    if (second != first) capture.release(device.raw(), first);
    capture.release(device.raw(), second);
  }
}

TEST_F(CudaCapture, AFailureOnTheWayLeavesTheStreamUsable) {
  for (const char* const call : {"begin_capture", "launch", "copy", "end_capture", "instantiate"}) {
    SCOPED_TRACE(call);
    const OpenDevice device = open();
    const TestStream stream(device);
    const bp_plan_capture& capture = table(provider());
    const NegAndCopy work(device, stream, capture);
    const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
    negate();
    test_host::upload(device, stream, {1, 2, 3, 4, 5, 6}, {nullptr, x.raw()});
    stand_in().failures[call] = {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"};
    std::pair<bp_code, std::string> error = take(capture.begin(device.raw(), stream.raw()));
    if (error.first == BP_OK) {
      try {
        work.put(x, y);
        bp_recording* made = nullptr;
        error = take(capture.end(device.raw(), stream.raw(), nullptr, &made));
      } catch (const test_host::StatusError& failure) {
        capture.abandon(device.raw(), stream.raw());
        error = {failure.code(), failure.what()};
      }
    }
    EXPECT_EQ(error.first, BP_UNSUPPORTED);
    EXPECT_NE(error.second.find("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"), std::string::npos);
    work.put(x, y);
    EXPECT_EQ(work.result(y), (Floats{-1, -2, -3, -4, -5, -6}));
    bp_recording* const recording = work.record(x, y);
    check(capture.replay(device.raw(), stream.raw(), recording));
    stream.sync();
    capture.release(device.raw(), recording);
  }
}

TEST_F(CudaCapture, AWaitWhileItIsCapturedSpoilsItAndIsNamed) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  check(capture.begin(device.raw(), stream.raw()));
  EXPECT_EQ(stream.try_sync().first, BP_UNSUPPORTED);
  bp_recording* made = nullptr;
  const auto [code, text] = take(capture.end(device.raw(), stream.raw(), nullptr, &made));
  EXPECT_EQ(code, BP_CANCELLED);
  EXPECT_NE(text.find("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"), std::string::npos) << text;
  stream.sync();
}

TEST_F(CudaCapture, AStreamThatTheProgramCapturesIsLeftAlone) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  check(capture.begin(device.raw(), stream.raw()));
  const auto [code, text] = take(capture.begin(device.raw(), stream.raw()));
  EXPECT_EQ(code, BP_UNSUPPORTED);
  EXPECT_NE(text.find("capturing it already"), std::string::npos) << text;
  capture.abandon(device.raw(), stream.raw());
}

std::string handle_of(const OpenDevice& device, const TestStream& stream) {
  std::uint64_t handle = 0;
  check(device->native(device.raw(), BP_NATIVE_STREAM, stream.raw(), nullptr, &handle));
  return std::to_string(handle);
}

TEST_F(CudaCapture, OthersWorkOnTheProgramsStreamWhileWorkForItIsCaptured) {
  stand_in().shares_contexts = true;
  const OpenDevice program = open();
  const TestStream users(program);
  const OpenDevice device = open({{"user_stream", handle_of(program, users)}});
  const TestStream stream(device), other(device);
  const bp_plan_capture& capture = table(provider());
  const NegAndCopy work(device, stream, capture);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64),
      z(device, BP_MEMORY_DEVICE, 64);
  const Floats values{1, 2, 3, 4, 5, 6}, negated{-1, -2, -3, -4, -5, -6};
  negate();
  test_host::upload(device, stream, values, {nullptr, x.raw()});
  check(capture.begin(device.raw(), stream.raw()));
  work.put(x, y);
  // Another run of the session, or the program itself.
  check(copy_floats(device, other, {nullptr, x.raw()}, {nullptr, z.raw()}, kCount));
  other.sync();
  EXPECT_EQ(test_host::download(device, other, {nullptr, z.raw()}, kCount), values);
  bp_recording* recording = nullptr;
  check(capture.end(device.raw(), stream.raw(), nullptr, &recording));
  EXPECT_EQ(handle_of(device, stream), handle_of(program, users));
  test_host::upload(device, other, Floats(kCount), {nullptr, z.raw()});
  stand_in().holds = true;
  check(capture.replay(device.raw(), stream.raw(), recording));
  stand_in().holds = false;
  users.sync();
  EXPECT_EQ(work.result(y), negated);
  EXPECT_EQ(test_host::download(device, other, {nullptr, z.raw()}, kCount), Floats(kCount))
      << "what others did is none of the recording's";
  capture.release(device.raw(), recording);
}

TEST_F(CudaCapture, ARunOnAStreamThatTheProgramCapturesFailsAndLeavesTheDeviceUsable) {
  stand_in().shares_contexts = true;
  const OpenDevice program = open();
  const TestStream users(program);
  const OpenDevice device = open({{"user_stream", handle_of(program, users)}});
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  check(capture.begin(program.raw(), users.raw()));
  stand_in().calls.clear();
  const auto refused = [](bp_status* status) {
    const auto [code, text] = take(status);
    EXPECT_EQ(code, BP_UNSUPPORTED);
    EXPECT_NE(text.find("user_stream"), std::string::npos) << text;
  };
  refused(device->run_begin(device.raw(), 1));
  refused(device->stream_sync(device.raw(), stream.raw()));
  bp_stream* another = nullptr;
  refused(device->stream_create(device.raw(), &another));
  EXPECT_EQ(stand_in().calls, std::vector<std::string>())
      << "nothing became the program's graph, or spoiled it";
  bp_fence* raw = nullptr;
  check(device->fence_create(device.raw(), &raw));
  const auto [code, text] = take(device->fence_signal(device.raw(), stream.raw(), raw, 1));
  EXPECT_EQ(code, BP_UNSUPPORTED);
  EXPECT_NE(text.find("capturing"), std::string::npos) << text;
  bp_recording* made = nullptr;
  check(capture.end(program.raw(), users.raw(), nullptr, &made));
  capture.release(program.raw(), made);
  check(device->run_begin(device.raw(), 2));
  for (std::uint64_t value = 2; value < 40; ++value)
    EXPECT_EQ(take(device->fence_signal(device.raw(), stream.raw(), raw, value)).first, BP_OK);
  EXPECT_EQ(take(device->fence_host_wait(device.raw(), raw, 39, 1'000'000)).first, BP_OK);
  device->fence_destroy(device.raw(), raw);
}

TEST_F(CudaCapture, WhatIsInstantiatedGetsTheMemoryThatThePoolKeeps) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  const NegAndCopy work(device, stream, capture);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  { const TestBuffer freed(device, BP_MEMORY_DEVICE, 1024); }
  stand_in().is_full = true;
  bp_recording* const recording = work.record(x, y);
  EXPECT_EQ(stand_in().count("trim"), 1u);
  capture.release(device.raw(), recording);
}

TEST_F(CudaCapture, ThePoolIsNotTrimmedWhileWorkIsCaptured) {
  constexpr std::uint64_t kBytes = std::uint64_t{300} << 20;
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  std::optional<TestBuffer> freed(std::in_place, device, BP_MEMORY_DEVICE, kBytes);
  check(capture.begin(device.raw(), stream.raw()));
  freed.reset();
  EXPECT_EQ(stand_in().count("trim"), 0u);
  capture.abandon(device.raw(), stream.raw());
  freed.emplace(device, BP_MEMORY_DEVICE, 64);
  freed.reset();
  EXPECT_EQ(stand_in().count("trim"), 1u);
}

TEST_F(CudaCapture, ALostDeviceIsLost) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  const NegAndCopy work(device, stream, capture);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  bp_recording* const recording = work.record(x, y);
  stand_in().failures["launch_graph"] = {"CUDA_ERROR_ILLEGAL_ADDRESS"};
  EXPECT_EQ(take(capture.replay(device.raw(), stream.raw(), recording)).first, BP_DEVICE_LOST);
  stand_in().failures["begin_capture"] = {"CUDA_ERROR_LAUNCH_FAILED"};
  EXPECT_EQ(take(capture.begin(device.raw(), stream.raw())).first, BP_DEVICE_LOST);
  capture.release(device.raw(), recording);
}

TEST_F(CudaCapture, AFaultIsReportedByEveryReplayThatMeetsOne) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  const FaultyGather gather(device);
  check(capture.begin(device.raw(), stream.raw()));
  gather.put(stream);
  bp_recording* recording = nullptr;
  check(capture.end(device.raw(), stream.raw(), nullptr, &recording));
  bool reports = true;
  stand_in().kernel = [&](const std::string& source, const Extent&, const Extent&,
                          void** arguments) {
    if (reports) report_fault(source, arguments);
  };
  for (int turn = 0; turn < 3; ++turn) {
    reports = turn != 1;
    check(capture.replay(device.raw(), stream.raw(), recording));
    const auto [code, text] = stream.try_sync();
    EXPECT_EQ(code, reports ? BP_FAILED : BP_OK);
    EXPECT_EQ(text.find("node '") != std::string::npos, reports) << text;
  }
  capture.release(device.raw(), recording);
}

TEST_F(CudaCapture, WhatWasReportedBeforeACaptureIsNotForgotten) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const bp_plan_capture& capture = table(provider());
  const FaultyGather gather(device);
  stand_in().kernel = [](const std::string& source, const Extent&, const Extent&,
                         void** arguments) { report_fault(source, arguments); };
  gather.put(stream);
  check(capture.begin(device.raw(), stream.raw()));
  bp_recording* recording = nullptr;
  check(capture.end(device.raw(), stream.raw(), nullptr, &recording));
  EXPECT_EQ(stream.try_sync().first, BP_FAILED);
  capture.release(device.raw(), recording);
}

}  // namespace
}  // namespace backplane::cuda
