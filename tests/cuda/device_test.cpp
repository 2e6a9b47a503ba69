// Devices, memory, streams, fences and copies of the CUDA provider, on the stand-in.
#include "backplane/plugin_api/optional/import_memory.h"
#include "tests/cuda/cuda_test.hpp"

namespace backplane::cuda {
namespace {

using Floats = std::vector<float>;

std::pair<bp_code, std::string> open_error(const bp_provider* provider,
                                           const OpenDevice::Options& options = {}) {
  try {
    const OpenDevice device(provider, 0, options);
  } catch (const test_host::StatusError& error) {
    return {error.code(), error.what()};
  }
  return {BP_OK, ""};
}

TEST_F(CudaTest, CopiesThroughPinnedMemoryAndBackKeepOffsets) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const TestBuffer one(device, BP_MEMORY_DEVICE, 64), two(device, BP_MEMORY_DEVICE, 64);
  EXPECT_EQ(one.host(), nullptr);
  test_host::upload(device, stream, {1, 2, 3, 4, 5}, {nullptr, one.raw(), 8});
  check(copy_floats(device, stream, {nullptr, one.raw(), 8}, {nullptr, two.raw(), 4}, 5));
  EXPECT_EQ(test_host::download(device, stream, {nullptr, two.raw(), 4}, 5),
            (Floats{1, 2, 3, 4, 5}));
}

TEST_F(CudaTest, ACopyBetweenTwoHostBuffersIsRefused) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const TestBuffer one(device, BP_MEMORY_PINNED, 64), two(device, BP_MEMORY_PINNED, 64);
  const auto [code, text] =
      take(copy_floats(device, stream, {nullptr, one.raw()}, {nullptr, two.raw()}, 4));
  EXPECT_EQ(code, BP_INVALID_ARGUMENT);
  EXPECT_NE(text.find("neither end"), std::string::npos) << text;
}

TEST_F(CudaTest, AStreamWaitsForAFenceThatIsSignalledLater) {
  const OpenDevice device = open();
  const TestStream first(device), second(device);
  const TestFence fence(device), done(device);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  test_host::upload(device, first, {1, 2}, {nullptr, x.raw()});
  fence.wait(second, 3);
  EXPECT_EQ(stand_in().count("wait_value"), 1u);
  check(copy_floats(device, second, {nullptr, x.raw()}, {nullptr, y.raw()}, 2));
  done.signal(second, 1);
  EXPECT_EQ(done.host_wait(1, 1'000'000).first, BP_TIMEOUT);
  fence.signal(first, 2);
  EXPECT_EQ(done.host_wait(1, 1'000'000).first, BP_TIMEOUT) << "2 is less than 3";
  test_host::upload(device, first, {7, 8}, {nullptr, x.raw()});
  fence.signal(first, 3);
  EXPECT_EQ(done.host_wait(1).first, BP_OK);
  EXPECT_EQ(test_host::download(device, second, {nullptr, y.raw()}, 2), (Floats{7, 8}));
}

TEST_F(CudaTest, AFenceThatEndsUnsignalledLetsItsStreamsGoOn) {
  const OpenDevice device = open();
  const TestStream first(device), second(device);
  {
    const TestFence fence(device);
    stand_in().holds = true;
    fence.wait(first, 1);
    fence.wait(second, 7);
  }
  stand_in().holds = false;
  first.sync();
  second.sync();
}

TEST_F(CudaTest, AFenceThatIsSignalledFirstIsWaitedForByItsEvent) {
  const OpenDevice device = open();
  const TestStream first(device), second(device);
  const TestFence fence(device);
  fence.signal(first, 5);
  fence.wait(second, 4);
  EXPECT_EQ(stand_in().count("wait"), 1u);
  EXPECT_EQ(stand_in().count("wait_value") + stand_in().count("write_value"), 0u);
  EXPECT_EQ(fence.host_wait(5).first, BP_OK);
}

TEST_F(CudaTest, ManySignalsMakeFewEvents) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const TestFence fence(device);
  for (std::uint64_t value = 1; value <= 1000; ++value) fence.signal(stream, value);
  EXPECT_LE(stand_in().count("create_event"), 17u);
  EXPECT_EQ(fence.host_wait(1000).first, BP_OK);
  EXPECT_EQ(fence.host_wait(1001, 1000).first, BP_TIMEOUT);
}

TEST_F(CudaTest, ADeviceWithoutStreamWaitsRefusesToWaitForALaterSignal) {
  stand_in().devices[0].has_stream_values = false;
  const OpenDevice device = open();
  const TestStream stream(device);
  bp_fence* fence = nullptr;
  check(device->fence_create(device.raw(), &fence));
  EXPECT_EQ(take(device->fence_wait(device.raw(), stream.raw(), fence, 1)).first, BP_UNSUPPORTED);
  device->fence_destroy(device.raw(), fence);
}

TEST_F(CudaTest, TheMemoryLimitIsOutOfMemoryAndNamesTheOption) {
  const OpenDevice device = open({{"memory_limit_mb", "1"}});
  const TestBuffer first(device, BP_MEMORY_DEVICE, 600 * 1024);
  bp_buffer* raw = nullptr;
  const auto [code, text] =
      take(device->buffer_alloc(device.raw(), BP_MEMORY_DEVICE, 600 * 1024, 256, &raw));
  EXPECT_EQ(code, BP_OUT_OF_MEMORY);
  EXPECT_NE(text.find("memory_limit_mb"), std::string::npos) << text;
  const TestBuffer second(device, BP_MEMORY_DEVICE, 400 * 1024);
}

TEST_F(CudaTest, MemoryThatRanOutIsTrimmedAndAskedForOnceMore) {
  const OpenDevice device = open();
  stand_in().failures["allocate"] = {"CUDA_ERROR_OUT_OF_MEMORY"};
  const TestBuffer got(device, BP_MEMORY_DEVICE, 64);
  EXPECT_EQ(stand_in().count("trim"), 1u);
  stand_in().failures["allocate"] = {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"};
  bp_buffer* raw = nullptr;
  const auto [code, text] =
      take(device->buffer_alloc(device.raw(), BP_MEMORY_DEVICE, 99, 256, &raw));
  EXPECT_EQ(code, BP_OUT_OF_MEMORY);
  EXPECT_NE(text.find("CUDA_ERROR_OUT_OF_MEMORY, 99 bytes"), std::string::npos) << text;
  const TestBuffer again(device, BP_MEMORY_DEVICE, 64);
}

TEST_F(CudaTest, AContextThatCannotBeMadeCurrentIsNothingToFreeIn) {
  const std::unique_ptr<Context> context = load_stand_in()->open(0);
  stand_in().failures["enter"] = {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_DEINITIALIZED"};
  EXPECT_THROW(EnteredContext{*context}, sdk::Error);
  {
    const EnteredContext entered(*context, std::nothrow);
    EXPECT_FALSE(entered);
  }
  EXPECT_EQ(stand_in().count("leave"), 0u) << "nothing was changed";
  const EnteredContext entered(*context, std::nothrow);
  EXPECT_TRUE(entered);
}

TEST_F(CudaTest, AnIllegalAddressIsALostDevice) {
  const OpenDevice device = open();
  const TestStream stream(device);
  stand_in().failures["synchronize"] = {"CUDA_ERROR_ILLEGAL_ADDRESS"};
  const auto [code, text] = stream.try_sync();
  EXPECT_EQ(code, BP_DEVICE_LOST);
  EXPECT_NE(text.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
}

TEST_F(CudaTest, FailuresWhileOpeningLeaveNothingBehind) {
  for (const char* const call : {"open", "create_stream", "allocate_pinned", "create_event"}) {
    stand_in().failures[call] = {"CUDA_ERROR_UNKNOWN"};
    try {
      const OpenDevice device = open();
      const TestStream stream(device);
      TestFence(device).signal(stream, 1);
      ADD_FAILURE() << call;
    } catch (const test_host::StatusError& error) {
      EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_UNKNOWN"), std::string::npos);
    }
  }
}

TEST_F(CudaTest, PeersCopyDirectlyWhereTheyCan) {
  stand_in().devices.push_back(stand_in_device());
  const OpenDevice one = open(), two = open({}, 1);
  bp_copy_caps caps = sdk::abi_struct<bp_copy_caps>();
  const auto mode = [&](bp_memory_kind from) {
    check(one->copy_caps(one.raw(), from, BP_MEMORY_DEVICE, two.raw(), &caps));
    return caps.mode;
  };
  stand_in().peers = false;
  EXPECT_EQ(mode(BP_MEMORY_DEVICE), BP_COPY_NONE);
  stand_in().peers = true;
  EXPECT_EQ(mode(BP_MEMORY_DEVICE), BP_COPY_ASYNC);
  EXPECT_EQ(mode(BP_MEMORY_DEVICE), BP_COPY_ASYNC);
  EXPECT_EQ(stand_in().count("enable_peer"), 2u) << "enabled once";
  EXPECT_EQ(mode(BP_MEMORY_PINNED), BP_COPY_ASYNC);
  EXPECT_EQ(mode(BP_MEMORY_HOST), BP_COPY_NONE);
  const TestStream stream(one), other(two);
  const TestBuffer x(two, BP_MEMORY_DEVICE, 64), y(one, BP_MEMORY_DEVICE, 64);
  test_host::upload(two, other, {3, 4}, {nullptr, x.raw()});
  check(copy_floats(one, stream, {nullptr, x.raw()}, {nullptr, y.raw()}, 2));
  EXPECT_EQ(test_host::download(one, stream, {nullptr, y.raw()}, 2), (Floats{3, 4}));
}

TEST_F(CudaTest, AccessToAPeerThatIsOpenedAnewIsEnabledAnew) {
  stand_in().devices.push_back(stand_in_device());
  const OpenDevice one = open();
  bp_copy_caps caps = sdk::abi_struct<bp_copy_caps>();
  // Mostly the second one lies where the first was.
  for (int turn = 0; turn < 2; ++turn) {
    const OpenDevice two = open({}, 1);
    check(one->copy_caps(one.raw(), BP_MEMORY_DEVICE, BP_MEMORY_DEVICE, two.raw(), &caps));
    EXPECT_EQ(caps.mode, BP_COPY_ASYNC);
    EXPECT_EQ(stand_in().peer_memory.size(), 1u) << turn;
  }
}

TEST_F(CudaTest, ADeviceThatIsOpenTwiceIsNoPeerOfItself) {
  stand_in().shares_contexts = true;
  const OpenDevice one = open(), same = open();
  bp_copy_caps caps = sdk::abi_struct<bp_copy_caps>();
  check(one->copy_caps(one.raw(), BP_MEMORY_DEVICE, BP_MEMORY_DEVICE, same.raw(), &caps));
  EXPECT_EQ(caps.mode, BP_COPY_ASYNC);
}

TEST(CudaErrors, SayWhetherTheContextIsOfAnyUse) {
  for (const char* const name :
       {"CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_CONTAINED", "CUDA_ERROR_MPS_CLIENT_TERMINATED"})
    EXPECT_EQ(error_code(name), BP_DEVICE_LOST) << name;
  EXPECT_EQ(error_code("CUDA_ERROR_CAPTURED_EVENT"), BP_UNSUPPORTED);
  EXPECT_EQ(error_code("CUDA_ERROR_STREAM_CAPTURE_UNJOINED"), BP_UNSUPPORTED);
  EXPECT_EQ(error_code("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"), BP_CANCELLED);
  EXPECT_EQ(error_code("CUDA_ERROR_INVALID_VALUE"), BP_INTERNAL);
}

TEST_F(CudaTest, AUserStreamTakesTheWorkAndStaysTheUsers) {
  stand_in().shares_contexts = true;
  const OpenDevice program = open();
  const TestStream users(program);
  const auto handle_of = [](const OpenDevice& device, const TestStream& stream) {
    std::uint64_t handle = 0;
    check(device->native(device.raw(), BP_NATIVE_STREAM, stream.raw(), nullptr, &handle));
    return handle;
  };
  const std::uint64_t handle = handle_of(program, users);
  const TestBuffer x(program, BP_MEMORY_DEVICE, 64);
  {
    const OpenDevice device = open({{"user_stream", std::to_string(handle)}});
    const TestStream stream(device);
    EXPECT_EQ(handle_of(device, stream), handle);
    const TestBuffer y(device, BP_MEMORY_DEVICE, 64);
    test_host::upload(program, users, {1, 2, 3}, {nullptr, x.raw()});
    // What the program put on its stream before, is done before.
    stand_in().holds = true;
    check(copy_floats(device, stream, {nullptr, x.raw()}, {nullptr, y.raw()}, 3));
    stand_in().holds = false;
    users.sync();
    EXPECT_EQ(test_host::download(device, stream, {nullptr, y.raw()}, 3), (Floats{1, 2, 3}));
  }
  test_host::upload(program, users, {4}, {nullptr, x.raw()});
  EXPECT_EQ(test_host::download(program, users, {nullptr, x.raw()}, 1), (Floats{4}))
      << "it is still there";
}

TEST_F(CudaTest, AUserStreamOfAnotherContextIsRefused) {
  const OpenDevice device = open();
  const TestStream stream(device);
  std::uint64_t handle = 0;
  check(device->native(device.raw(), BP_NATIVE_STREAM, stream.raw(), nullptr, &handle));
  // Each stand-in context is another one.
  const auto [code, text] = open_error(provider(), {{"user_stream", std::to_string(handle)}});
  EXPECT_EQ(code, BP_INVALID_ARGUMENT);
  EXPECT_NE(text.find("user_stream"), std::string::npos) << text;
  for (const char* const none : {"stream", "64", "65537"})
    EXPECT_EQ(open_error(provider(), {{"user_stream", none}}).first, BP_INVALID_ARGUMENT) << none;
}

TEST_F(CudaTest, AUserStreamWhereNoMemoryIsIsRefusedBeforeTheDriverFollowsIt) {
  const auto [code, text] = open_error(provider(), {{"user_stream", "65536"}});
  EXPECT_EQ(code, BP_INVALID_ARGUMENT);
  EXPECT_NE(text.find("user_stream"), std::string::npos) << text;
}

TEST_F(CudaTest, TheStreamThatIsAnotherOneInEachThreadIsNoUserStream) {
  const auto [code, text] = open_error(provider(), {{"user_stream", "2"}});
  EXPECT_EQ(code, BP_INVALID_ARGUMENT);
  EXPECT_NE(text.find("of each thread"), std::string::npos) << text;
  const OpenDevice device = open({{"user_stream", "1"}});
}

/// The device's buffer over memory of a program.
struct Imported {
  static const bp_import_memory& table(const bp_provider* provider) {
    return *static_cast<const bp_import_memory*>(
        provider->get_interface(provider->self, BP_IMPORT_MEMORY_INTERFACE, 1));
  }
  Imported(const bp_provider* provider, const OpenDevice& device, std::uint64_t memory,
           std::uint64_t offset, std::uint64_t bytes)
      : table_(table(provider)), device_(device) {
    check(table_.buffer_import(device.raw(), memory, offset, bytes, &access, &raw));
  }
  ~Imported() { table_.buffer_release(device_.raw(), raw); }
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;

  std::int32_t access = 0;
  bp_buffer* raw = nullptr;

 private:
  const bp_import_memory& table_;
  const OpenDevice& device_;
};

std::uint64_t address_in(const OpenDevice& device, const TestBuffer& buffer) {
  std::uint64_t address = 0;
  check(device->native(device.raw(), BP_NATIVE_BUFFER, nullptr, buffer.raw(), &address));
  return address;
}

TEST_F(CudaTest, MemoryOfTheProgramIsUsedWhereItLiesAndStaysThePrograms) {
  stand_in().shares_contexts = true;
  const OpenDevice program = open(), device = open();
  const TestStream users(program), stream(device);
  const TestBuffer memory(program, BP_MEMORY_DEVICE, 1024);
  const std::uint64_t address = address_in(program, memory);
  const std::uint64_t live_bytes = stand_in().live_bytes;
  {
    const Imported imported(provider(), device, address, 256, 64);
    EXPECT_EQ(imported.access, BP_IMPORT_READ | BP_IMPORT_WRITE);
    std::uint64_t native = 0;
    check(device->native(device.raw(), BP_NATIVE_BUFFER, nullptr, imported.raw, &native));
    EXPECT_EQ(native, address);
    test_host::upload(device, stream, {1, 2, 3}, {nullptr, imported.raw, 256});
    // An address inside of an allocation, and the last bytes of it.
    const Imported inside(provider(), device, address + 512, 256, 256);
  }
  EXPECT_EQ(stand_in().live_bytes, live_bytes) << "nothing was made, and nothing was freed";
  EXPECT_EQ(test_host::download(program, users, {nullptr, memory.raw(), 256}, 3),
            (Floats{1, 2, 3}));
}

TEST_F(CudaTest, MemoryThatTheDeviceCannotUseIsRefusedWithTheReason) {
  const OpenDevice program = open(), device = open();
  const TestBuffer memory(device, BP_MEMORY_DEVICE, 1024), pinned(device, BP_MEMORY_PINNED, 1024),
      of_another(program, BP_MEMORY_DEVICE, 1024);
  const std::uint64_t address = address_in(device, memory);
  const auto refusal = [&](std::uint64_t at, std::uint64_t offset, std::uint64_t bytes) {
    std::int32_t access = 0;
    bp_buffer* raw = nullptr;
    const auto [code, text] = take(
        Imported::table(provider()).buffer_import(device.raw(), at, offset, bytes, &access, &raw));
    EXPECT_EQ(code, BP_INVALID_ARGUMENT) << text;
    EXPECT_EQ(raw, nullptr);
    return text;
  };
  const auto expect = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(refusal(0, 0, 16), "no memory is given");
  expect(refusal(4096, 0, 16), "no memory that CUDA knows");
  expect(refusal(address, 0, 1025), "has 1024 bytes; 1025 from byte 0");
  expect(refusal(address + 512, 256, 257), "has 512 bytes; 257 from byte 256");
  expect(refusal(address, ~std::uint64_t{0}, 16), "has 1024 bytes");
  expect(refusal(address, 16, 16), "multiple of 256");
  expect(refusal(address + 4, 0, 16), "multiple of 256");
  expect(refusal(reinterpret_cast<std::uint64_t>(pinned.host()), 0, 16), "memory of the host");
  // Each stand-in context is another one.
  expect(refusal(address_in(program, of_another), 0, 16), "not of the primary context");
  stand_in().failures["traits_of"] = {"CUDA_ERROR_ILLEGAL_ADDRESS"};
  std::int32_t access = 0;
  bp_buffer* raw = nullptr;
  EXPECT_EQ(
      take(Imported::table(provider()).buffer_import(device.raw(), address, 0, 16, &access, &raw))
          .first,
      BP_DEVICE_LOST);
}

TEST_F(CudaTest, ADeviceOlderThanTheToolkitIsRefusedWithItsCapability) {
  stand_in().devices = {stand_in_device(6, 1)};
  const auto [code, text] = open_error(provider());
  EXPECT_EQ(code, BP_UNSUPPORTED);
  EXPECT_NE(text.find("6.1"), std::string::npos) << text;
}

TEST_F(CudaTest, AProhibitedDeviceIsRefused) {
  stand_in().devices[0].is_prohibited = true;
  EXPECT_NE(open_error(provider()).second.find("nvidia-smi -c DEFAULT"), std::string::npos);
}

std::pair<bp_code, std::string> look_for_devices(const bp_provider* provider) {
  return take(provider->enumerate(
      provider->self, nullptr, [](void*, const bp_device_info*) -> bp_status* { return nullptr; }));
}

TEST_F(CudaTest, TheEngineIsOpenedWithTheFirstDeviceAndNotWhenDevicesAreLookedFor) {
  EXPECT_EQ(look_for_devices(provider()).first, BP_OK);
  EXPECT_EQ(stand_in().count("open_engine"), 0u) << "every program looks for devices";
  stand_in().failures["open_engine"] = {"CUDA_ERROR_UNKNOWN"};
  EXPECT_NE(open_error(provider()).second.find("open_engine"), std::string::npos);
  EXPECT_EQ(stand_in().count("open"), 0u);
  { const OpenDevice one = open(), two = open(); }
  EXPECT_EQ(stand_in().count("open_engine"), 2u);
}

TEST_F(CudaTest, AnEngineThatIsSeenToBeMissingIsWhyThereIsNoDevice) {
  stand_in().engine_is_there = false;
  stand_in().failures["open_engine"] = {"CUDA_ERROR_UNKNOWN"};
  EXPECT_NE(look_for_devices(provider()).second.find("open_engine"), std::string::npos);
  EXPECT_EQ(look_for_devices(provider()).first, BP_OK) << "the loader knows where it is";
}

TEST_F(CudaTest, NoDeviceIsAReasonAndNotACrash) {
  stand_in().devices.clear();
  const auto [code, text] = take(provider()->enumerate(provider()->self, nullptr, nullptr));
  EXPECT_EQ(code, BP_UNSUPPORTED);
  EXPECT_NE(text.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << text;
}

TEST(CudaArchitecture, IsTheDevicesOwnOrPtxOfTheNewestKnown) {
  const std::vector<int> known{75, 80, 86, 90, 100};
  EXPECT_EQ(choose_architecture(known, stand_in_device(8, 0)), "sm_80");
  EXPECT_EQ(choose_architecture(known, stand_in_device(8, 9)), "sm_86");
  EXPECT_EQ(choose_architecture(known, stand_in_device(9, 0)), "sm_90");
  EXPECT_EQ(choose_architecture(known, stand_in_device(12, 0)), "compute_100");
  EXPECT_THROW(choose_architecture(known, stand_in_device(7, 0)), sdk::Error);
  const std::vector<int> with_chips{80, 86, 87, 90, 100, 101, 120};
  EXPECT_EQ(choose_architecture(with_chips, stand_in_device(8, 9)), "sm_86");
  EXPECT_EQ(choose_architecture(with_chips, stand_in_device(10, 3)), "sm_100");
  EXPECT_EQ(choose_architecture(with_chips, stand_in_device(8, 7)), "sm_87");
  EXPECT_EQ(choose_architecture(with_chips, stand_in_device(11, 0)), "compute_100");
  EXPECT_EQ(choose_architecture(with_chips, stand_in_device(12, 1)), "sm_120");
  EXPECT_THROW(choose_architecture({}, stand_in_device(9, 0)), sdk::Error);
}

}  // namespace
}  // namespace backplane::cuda
