#include "core/plugin_host/device.hpp"

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin_host/copy_mode.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// What the fake provider below did, and what it is to do wrong. One test at a time uses it.
struct Fake {
  std::map<std::string, std::string> options;
  int open = 0;
  int buffers = 0;
  int streams = 0;
  int fences = 0;
  std::vector<std::string> queued;
  std::uint64_t alignment = 256;
  std::uint64_t max_bytes = 0;
  bool pinned = true;
  bool pinned_address = true;
  std::map<std::pair<bp_memory_kind, bp_memory_kind>, std::int32_t> copy_modes;  ///< else async
  bp_code fail_alloc = BP_OK;
  bp_code fail_sync = BP_OK;
  bp_code fail_fence_create = BP_OK;
};
Fake* fake = nullptr;

bp_status* fail_with(bp_code code) {
  return code == BP_OK ? nullptr : status_new(code, "as asked", 8);
}

struct Block {
  void* memory;
};

bp_status* heaps(bp_device*, void* sink_ctx, bp_heap_sink sink) {
  bp_heap heap{};
  heap.struct_size = sizeof(heap);
  heap.kind = BP_MEMORY_DEVICE;
  heap.alignment = fake->alignment;
  heap.max_bytes = fake->max_bytes;
  if (bp_status* status = sink(sink_ctx, &heap)) return status;
  if (!fake->pinned) return nullptr;
  heap.kind = BP_MEMORY_PINNED;
  heap.alignment = 4096;
  heap.max_bytes = 0;
  return sink(sink_ctx, &heap);
}

bp_status* buffer_alloc(bp_device*, bp_memory_kind, std::uint64_t bytes, std::uint64_t alignment,
                        bp_buffer** out) {
  if (fake->fail_alloc != BP_OK) return fail_with(fake->fail_alloc);
  auto* block =
      new Block{std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)};
  *out = reinterpret_cast<bp_buffer*>(block);
  ++fake->buffers;
  return nullptr;
}

void buffer_free(bp_device*, bp_buffer* buffer) {
  auto* block = reinterpret_cast<Block*>(buffer);
  std::free(block->memory);
  delete block;
  --fake->buffers;
}

void* buffer_host_ptr(bp_device*, bp_buffer* buffer) {
  return fake->pinned_address ? reinterpret_cast<Block*>(buffer)->memory : nullptr;
}

bp_device_api make_device_api() {
  bp_device_api api{};
  api.struct_size = sizeof(api);
  api.kernels = [](bp_device*, void*, bp_kernel_sink) -> bp_status* { return nullptr; };
  api.close = [](bp_device*) { --fake->open; };
  api.heaps = heaps;
  api.buffer_alloc = buffer_alloc;
  api.buffer_free = buffer_free;
  api.buffer_host_ptr = buffer_host_ptr;
  api.stream_create = [](bp_device*, bp_stream** out) -> bp_status* {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a handle that nobody looks into
    *out = reinterpret_cast<bp_stream*>(static_cast<std::uintptr_t>(++fake->streams) * 16);
    return nullptr;
  };
  api.stream_destroy = [](bp_device*, bp_stream*) { --fake->streams; };
  api.stream_sync = [](bp_device*, bp_stream*) {
    return fail_with(std::exchange(fake->fail_sync, BP_OK));
  };
  api.fence_create = [](bp_device*, bp_fence** out) -> bp_status* {
    if (fake->fail_fence_create != BP_OK) return fail_with(fake->fail_fence_create);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a handle that nobody looks into
    *out = reinterpret_cast<bp_fence*>(static_cast<std::uintptr_t>(++fake->fences) * 16);
    return nullptr;
  };
  api.fence_destroy = [](bp_device*, bp_fence*) { --fake->fences; };
  api.fence_signal = [](bp_device*, bp_stream*, bp_fence*, std::uint64_t value) -> bp_status* {
    fake->queued.push_back("signal " + std::to_string(value));
    return nullptr;
  };
  api.fence_wait = [](bp_device*, bp_stream*, bp_fence*, std::uint64_t value) -> bp_status* {
    fake->queued.push_back("wait " + std::to_string(value));
    return nullptr;
  };
  api.fence_host_wait = [](bp_device*, bp_fence*, std::uint64_t value,
                           std::uint64_t timeout) -> bp_status* {
    fake->queued.push_back("host wait " + std::to_string(value));
    return timeout == UINT64_MAX ? nullptr : status_new(BP_TIMEOUT, "early", 5);
  };
  api.copy_caps = [](bp_device*, bp_memory_kind from, bp_memory_kind to, const bp_device*,
                     bp_copy_caps* out) -> bp_status* {
    const auto said = fake->copy_modes.find({from, to});
    out->mode = said != fake->copy_modes.end() ? said->second : BP_COPY_ASYNC;
    return nullptr;
  };
  api.copy = [](bp_device*, bp_stream*, const bp_tensor*, const bp_tensor*) -> bp_status* {
    return nullptr;
  };
  return api;
}

class FakePlugin : public Plugin {
 public:
  FakePlugin() {
    raw_.name = "fake plugin";
    raw_.version = "3.1";
  }
  const std::filesystem::path& file() const override { return file_; }
  const bp_plugin& raw() const override { return raw_; }
  const std::vector<CustomSchema>& schemas() const override { return schemas_; }

 private:
  std::filesystem::path file_ = "/nowhere/fake.so";
  bp_plugin raw_{};
  std::vector<CustomSchema> schemas_;
};

class DeviceTest : public testing::Test {
 protected:
  DeviceTest() {
    fake = &fake_;
    level_.struct_size = sizeof(level_);
    level_.name = "level";
    level_.default_value = "2";
    level_.range = "0..3";
    level_.type = BP_OPTION_INT;
    provider_.struct_size = sizeof(provider_);
    provider_.name = "fake";
    provider_.version = "1.5";
    provider_.options = &options_;
    provider_.option_count = 1;
    provider_.self = this;
    provider_.open = [](void* self, const bp_device_info*, const bp_open_ctx* ctx, bp_device** out,
                        const bp_device_api** api) -> bp_status* {
      for (std::uint64_t i = 0; i < ctx->option_count; ++i) {
        const bp_key_value& pair = ctx->options[i];
        fake->options[std::string(pair.key.data, pair.key.size)] = {pair.value.data,
                                                                    pair.value.size};
      }
      auto* test = static_cast<DeviceTest*>(self);
      if (test->open_status_ != BP_OK) return fail_with(test->open_status_);
      ++fake->open;
      *out = reinterpret_cast<bp_device*>(self);
      *api = &test->api_;
      return nullptr;
    };
    info_.struct_size = sizeof(info_);
    info_.name = "fake device";
    info_.type = BP_DEVICE_TYPE_ACCELERATOR;
    info_.uuid[0] = 0xAB;
  }
  ~DeviceTest() override {
    EXPECT_EQ(fake_.open, 0);
    EXPECT_EQ(fake_.buffers, 0);
    EXPECT_EQ(fake_.streams, 0);
    EXPECT_EQ(fake_.fences, 0);
  }
  DevicePtr open(const OptionList& options = {}) {
    return Device::open(std::make_shared<FakePlugin>(), &provider_, &info_, "fake:1", options,
                        &threads_);
  }
  /// The error of `body`, which must throw one.
  Error error_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {Code::Ok, ""};
  }
  Fake fake_;
  bp_option level_{};
  const bp_option* options_ = &level_;
  bp_provider provider_{};
  bp_device_info info_{};
  bp_device_api api_ = make_device_api();
  bp_code open_status_ = BP_OK;
  ThreadPool pool_{1};
  bp_threads threads_{&pool_, 1};
};

TEST_F(DeviceTest, OpensWithAllOptions) {
  const DevicePtr device = open({{"level", "3"}});
  EXPECT_EQ(fake_.options.at("level"), "3");
  EXPECT_EQ(device->label(), "fake:1");
  EXPECT_EQ(device->provider_name(), "fake");
  EXPECT_EQ(device->alignment(BP_MEMORY_DEVICE), 256U);
  EXPECT_EQ(device->alignment(BP_MEMORY_PINNED), 4096U);
  EXPECT_EQ(device->alignment(BP_MEMORY_HOST), 64U);
  EXPECT_TRUE(device->has_pinned());
  EXPECT_FALSE(device->on_host_memory());
}

TEST_F(DeviceTest, IdentityTellsEverythingThatPackingDependsOn) {
  const std::string first = open()->identity();
  for (const char* part : {"fake plugin", "3.1", "fake", "1.5", "fake device", "ab00", "level=2"}) {
    EXPECT_NE(first.find(part), std::string::npos) << first << " lacks " << part;
  }
  EXPECT_NE(open({{"level", "1"}})->identity(), first);
  info_.uuid[0] = 0xAC;
  EXPECT_NE(open()->identity(), first);
}

TEST_F(DeviceTest, WrongOptionsNeverReachTheProvider) {
  const Error error = error_of([&] { open({{"levle", "3"}}); });
  EXPECT_EQ(error.code(), Code::InvalidArgument);
  EXPECT_NE(error.message().find("did you mean 'level'"), std::string::npos) << error.message();
  EXPECT_EQ(error_of([&] { open({{"level", "4"}}); }).code(), Code::InvalidArgument);
  EXPECT_TRUE(fake_.options.empty());
}

TEST_F(DeviceTest, OpenErrorsNameTheDevice) {
  open_status_ = BP_DEVICE_LOST;
  const Error error = error_of([&] { open(); });
  EXPECT_EQ(error.code(), Code::DeviceLost);
  EXPECT_NE(error.message().find("'fake:1'"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("as asked"), std::string::npos) << error.message();
}

TEST_F(DeviceTest, MissingFunctionsAreNamed) {
  api_.fence_wait = nullptr;
  api_.copy = nullptr;
  api_.claims = [](bp_device*, const bp_graph*, void*, bp_claim_sink) -> bp_status* {
    return nullptr;
  };
  const Error error = error_of([&] { open(); });
  EXPECT_EQ(error.code(), Code::Internal);
  EXPECT_NE(error.message().find("fence_wait, copy, compile"), std::string::npos)
      << error.message();
  fake_.open = 0;  // such a device cannot be closed
  info_.flags = BP_DEVICE_HOST_MEMORY;
  api_.claims = nullptr;
  EXPECT_TRUE(open()->on_host_memory());
}

TEST_F(DeviceTest, HeapsAreChecked) {
  fake_.alignment = 3;
  EXPECT_NE(error_of([&] { open(); }).message().find("alignment of 3"), std::string::npos);
  fake_.alignment = 64;
  api_.heaps = [](bp_device*, void*, bp_heap_sink) -> bp_status* { return nullptr; };
  EXPECT_NE(error_of([&] { open(); }).message().find("BP_MEMORY_DEVICE"), std::string::npos);
}

TEST_F(DeviceTest, OneThatValuesCannotBeCopiedToAndFromIsRefused) {
  constexpr auto kUp = std::pair(BP_MEMORY_HOST, BP_MEMORY_DEVICE),
                 kDown = std::pair(BP_MEMORY_DEVICE, BP_MEMORY_HOST);
  fake_.copy_modes = {{kUp, BP_COPY_NONE}, {kDown, BP_COPY_SYNC}};
  EXPECT_EQ(copy_mode(*open(), BP_MEMORY_HOST, BP_MEMORY_DEVICE), BP_COPY_NONE);
  EXPECT_EQ(copy_mode(*open(), BP_MEMORY_DEVICE, BP_MEMORY_HOST), BP_COPY_SYNC);
  const auto expect_refused = [&](const char* words) {
    const Error error = error_of([&] { open(); });
    EXPECT_EQ(error.code(), Code::Internal);
    EXPECT_NE(error.message().find("'fake:1'"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    EXPECT_EQ(fake_.open, 0);
  };
  fake_.pinned = false;
  expect_refused("no way to its memory from BP_MEMORY_HOST, and it has no heap of BP_MEMORY_PIN");
  fake_.copy_modes = {{kDown, 99}};  // a way of a later day, or of none
  expect_refused("no way from its memory to BP_MEMORY_HOST, and it has no heap of BP_MEMORY_PIN");
  fake_.pinned = true;
  EXPECT_EQ(copy_mode(*open(), BP_MEMORY_DEVICE, BP_MEMORY_HOST), BP_COPY_NONE);
  fake_.copy_modes = {{kDown, 99}, {{BP_MEMORY_DEVICE, BP_MEMORY_PINNED}, BP_COPY_NONE}};
  expect_refused("and none with BP_MEMORY_PINNED either");
}

TEST_F(DeviceTest, BuffersAreCountedAndGivenBack) {
  const DevicePtr device = open();
  const std::uint64_t before = device_allocation_count();
  {
    DeviceBuffer buffer(device, BP_MEMORY_DEVICE, 100, 16);
    EXPECT_NE(buffer.raw(), nullptr);
    EXPECT_EQ(buffer.host_ptr(), nullptr);
    DeviceBuffer moved(std::move(buffer));
    EXPECT_EQ(moved.bytes(), 100U);
    buffer = DeviceBuffer(device, BP_MEMORY_PINNED, 10, 16);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.host_ptr()) % 4096, 0U);
    EXPECT_EQ(fake_.buffers, 2);
    moved = DeviceBuffer();
    EXPECT_EQ(fake_.buffers, 1);
    const DeviceBuffer none(device, BP_MEMORY_DEVICE, 0, 16);
    EXPECT_FALSE(none);
  }
  EXPECT_EQ(device_allocation_count(), before + 2);
}

TEST_F(DeviceTest, BufferFailuresAreClear) {
  fake_.max_bytes = 1000;
  const DevicePtr device = open();
  const auto allocate = [&](std::uint64_t bytes, bp_memory_kind kind = BP_MEMORY_DEVICE) {
    return error_of([&] { DeviceBuffer(device, kind, bytes, 16); });
  };
  EXPECT_EQ(allocate(1001).code(), Code::OutOfMemory);
  fake_.fail_alloc = BP_OUT_OF_MEMORY;
  EXPECT_EQ(allocate(10).code(), Code::OutOfMemory);
  EXPECT_NO_THROW(device->throw_if_lost());
  fake_.fail_alloc = BP_OK;
  fake_.pinned_address = false;
  EXPECT_EQ(allocate(10, BP_MEMORY_PINNED).code(), Code::Internal);
  fake_.fail_alloc = BP_DEVICE_LOST;
  EXPECT_EQ(allocate(10).code(), Code::DeviceLost);
  fake_.fail_alloc = BP_OK;
  const Error error = allocate(10);  // from now on
  EXPECT_EQ(error.code(), Code::DeviceLost);
  EXPECT_NE(error.message().find("'fake:1'"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("as asked"), std::string::npos) << error.message();
}

TEST_F(DeviceTest, HostBuffersAreAligned) {
  for (const std::uint64_t bytes : {1ULL, 65ULL, 5ULL << 20}) {
    const DeviceBuffer buffer(nullptr, BP_MEMORY_DEVICE, bytes, 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.host_ptr()) % 64, 0U);
    EXPECT_EQ(buffer.raw(), nullptr);
    buffer.host_ptr()[bytes - 1] = std::byte{1};
  }
  EXPECT_EQ(
      error_of([] { DeviceBuffer(nullptr, BP_MEMORY_HOST, std::uint64_t{1} << 60, 64); }).code(),
      Code::OutOfMemory);
}

TEST_F(DeviceTest, StreamsOrderByMarks) {
  const DevicePtr device = open();
  Stream first(device), second(device);
  EXPECT_NE(first.raw(), nullptr);
  const std::uint64_t one = first.signal();
  const std::uint64_t two = first.signal();
  EXPECT_EQ(one, 1U);
  EXPECT_EQ(two, 2U);
  second.wait(first, 0);  // nothing was ever put there
  second.wait(first, two);
  second.host_wait(second.signal());
  EXPECT_EQ(fake_.queued, (std::vector<std::string>{"signal 1", "signal 2", "wait 2", "signal 1",
                                                    "host wait 1"}));
}

TEST_F(DeviceTest, StreamsOfOtherDevicesAreAwaitedOnTheHost) {
  const DevicePtr device = open(), other = open();
  Stream first(device), second(other);
  second.wait(first, first.signal());
  EXPECT_EQ(fake_.queued, (std::vector<std::string>{"signal 1", "host wait 1"}));
}

TEST_F(DeviceTest, DrainTellsTheErrorOfTheWork) {
  const DevicePtr device = open();
  Stream stream(device);
  EXPECT_FALSE(stream.drain());
  fake_.fail_sync = BP_FAILED;
  std::optional<Error> error = stream.drain();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::Failed);
  EXPECT_NO_THROW(device->throw_if_lost());
  fake_.fail_sync = BP_DEVICE_LOST;
  error = stream.drain();
  ASSERT_TRUE(error);
  EXPECT_THROW(device->throw_if_lost(), Error);
}

TEST_F(DeviceTest, AStreamWithoutAFenceIsNone) {
  const DevicePtr device = open();
  fake_.fail_fence_create = BP_OUT_OF_MEMORY;
  EXPECT_EQ(error_of([&] { Stream stream(device); }).code(), Code::OutOfMemory);
  EXPECT_EQ(fake_.streams, 0);
}

TEST_F(DeviceTest, WithoutStreamsNothingIsCalled) {
  info_.flags = BP_DEVICE_HOST_MEMORY | BP_DEVICE_HOST_EVALUATOR;
  const DevicePtr device = open();
  EXPECT_TRUE(device->is_host_evaluator());
  Stream stream(device), other(device);
  EXPECT_EQ(stream.raw(), nullptr);
  EXPECT_EQ(stream.signal(), 0U);
  stream.wait(other, other.signal());
  stream.host_wait(5);
  EXPECT_FALSE(stream.drain());
  EXPECT_TRUE(fake_.queued.empty());
  const DeviceBuffer buffer(device, BP_MEMORY_DEVICE, 100, 16);
  EXPECT_NE(buffer.host_ptr(), nullptr);
  EXPECT_EQ(buffer.raw(), nullptr);
}

}  // namespace
}  // namespace backplane::core
