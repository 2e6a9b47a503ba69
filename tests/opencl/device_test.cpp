// Device, memory, streams, fences, options and errors of the OpenCL provider.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <thread>
#include <tuple>

#include "backplane/plugin_api/optional/import_memory.h"
#include "tests/opencl/opencl_device.hpp"

namespace backplane::test_host {
namespace {

TEST(OpenCl, ShowsDevicesWithNameDriverAndUuid) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  ASSERT_FALSE(opencl.infos.empty());
  for (const bp_device_info* info : opencl.infos) {
    EXPECT_STRNE(info->name, "");
    EXPECT_STRNE(info->driver, "");
    EXPECT_GT(info->memory_bytes, 0u);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(info->uuid), 6), "opencl");
  }
}

/// What signals do, by number.
std::array<struct sigaction, NSIG> signal_actions() {
  std::array<struct sigaction, NSIG> actions{};
  for (int signal = 1; signal < NSIG; ++signal)
    ::sigaction(signal, nullptr, &actions[static_cast<std::size_t>(signal)]);
  return actions;
}

volatile std::sig_atomic_t signals_seen = 0;

/// A driver puts its handlers in the place once in a process: so this is done in one of its own, which is this program and this
/// test, told by a variable.
TEST(OpenCl, WhatTheProgramDoesAtSignalsStays) {
  if (std::getenv("BACKPLANE_TEST_OPENCL_SIGNALS") == nullptr) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string command = "BACKPLANE_TEST_OPENCL_SIGNALS=1 '" + program +
                                "' --gtest_filter='OpenCl.WhatTheProgramDoesAtSignalsStays' "
                                "--gtest_output=";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return;
  }
  std::signal(SIGUSR1, [](int) { signals_seen = signals_seen + 1; });
  std::signal(SIGTERM, SIG_IGN);
  const auto before = signal_actions();
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const auto expect_kept = [&](const char* when) {
    const auto after = signal_actions();
    for (std::size_t signal = 1; signal < NSIG; ++signal)
      EXPECT_EQ(before[signal].sa_sigaction, after[signal].sa_sigaction) << signal << when;
  };
  expect_kept(" as devices are asked for");
  const OpenDevice device(opencl.provider, 0, kNoCache);
  expect_kept(" as a device is opened");
  const TestStream stream(device);
  EXPECT_EQ(NegOnDevice(device, 2).run(stream, {1, 2}), (std::vector<float>{-1, -2}));
  expect_kept(" as a kernel is compiled and run");
  std::raise(SIGUSR1);
  EXPECT_EQ(signals_seen, 1);
}

TEST(OpenCl, CopiesFromPinnedAndPlainMemoryAndBack) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, kNoCache);
  const TestStream stream(device);
  const std::vector<float> values{1, 2, 3, 4, 5};
  const TestBuffer memory(device, BP_MEMORY_DEVICE, 64), other(device, BP_MEMORY_DEVICE, 64);
  upload(device, stream, values, {nullptr, memory.raw(), 8});
  check(copy_floats(device, stream, {nullptr, memory.raw(), 8}, {nullptr, other.raw(), 4}, 5));
  EXPECT_EQ(download(device, stream, {nullptr, other.raw(), 4}, 5), values);
  EXPECT_EQ(memory.host(), nullptr);
}

TEST(OpenCl, AKernelStartsAtTheOffsetsOfItsTensors) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, kNoCache);
  const TestStream stream(device);
  const NegOnDevice neg(device, 3);
  const TestBuffer memory(device, BP_MEMORY_DEVICE, 1024);
  upload(device, stream, {1, 2, 3}, {nullptr, memory.raw(), 128});
  upload(device, stream, {9, 9, 9, 9, 9}, {nullptr, memory.raw(), 512});
  check(neg.put(stream, {nullptr, memory.raw(), 128}, {nullptr, memory.raw(), 516}));
  EXPECT_EQ(download(device, stream, {nullptr, memory.raw(), 512}, 5),
            (std::vector<float>{9, -1, -2, -3, 9}));
}

TEST(OpenCl, AStreamWaitsForAFenceThatIsSignalledLater) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, kNoCache);
  const TestStream first(device), second(device);
  const TestFence fence(device), done(device);
  const NegOnDevice neg(device, 2);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  upload(device, first, {5, 6}, {nullptr, x.raw()});
  upload(device, first, {0, 0}, {nullptr, y.raw()});
  fence.wait(second, 3);
  check(neg.put(second, {nullptr, x.raw()}, {nullptr, y.raw()}));
  done.signal(second, 1);
  EXPECT_EQ(done.host_wait(1, 2'000'000).first, BP_TIMEOUT);
  upload(device, first, {7, 8}, {nullptr, x.raw()});
  fence.signal(first, 3);
  EXPECT_EQ(done.host_wait(1).first, BP_OK);
  EXPECT_EQ(download(device, second, {nullptr, y.raw()}, 2), (std::vector<float>{-7, -8}));
}

TEST(OpenCl, AFenceKeepsOrderBetweenStreams) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, kNoCache);
  const TestStream first(device), second(device);
  const TestFence fence(device);
  constexpr std::size_t kCount = 1 << 16;
  const NegOnDevice neg(device, kCount);
  const TestBuffer x(device, BP_MEMORY_DEVICE, kCount * 4), y(device, BP_MEMORY_DEVICE, kCount * 4);
  upload(device, first, std::vector<float>(kCount, 1), {nullptr, x.raw()});
  for (std::uint64_t round = 0; round < 20; ++round) {
    check(neg.put(first, {nullptr, x.raw()}, {nullptr, y.raw()}));
    fence.signal(first, 2 * round + 1);
    fence.wait(second, 2 * round + 1);
    check(neg.put(second, {nullptr, y.raw()}, {nullptr, x.raw()}));
    fence.signal(second, 2 * round + 2);
    fence.wait(first, 2 * round + 2);
  }
  EXPECT_EQ(download(device, first, {nullptr, x.raw()}, kCount), std::vector<float>(kCount, 1));
}

TEST(OpenCl, MoreMemoryThanThereIsIsAnErrorThatNamesTheDeviceAndLeavesItUsable) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, kNoCache);
  bp_buffer* buffer = nullptr;
  const auto [code, text] = take(
      device->buffer_alloc(device.raw(), BP_MEMORY_DEVICE, std::uint64_t{1} << 50, 128, &buffer));
  EXPECT_EQ(code, BP_OUT_OF_MEMORY);
  EXPECT_NE(text.find("clCreateBuffer: CL_"), std::string::npos) << text;
  EXPECT_NE(text.find(opencl.infos[0]->name), std::string::npos) << text;
  const TestStream stream(device);
  EXPECT_EQ(NegOnDevice(device, 1).run(stream, {2}), std::vector<float>{-2});
}

TEST(OpenCl, AWrongHandleOptionIsRefusedByName) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  try {
    const OpenDevice device(opencl.provider, 0, {{"cache_dir", "off"}, {"user_queue", "twelve"}});
    FAIL() << "a queue called twelve was accepted";
  } catch (const StatusError& error) {
    EXPECT_EQ(error.code(), BP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("user_queue"), std::string::npos) << error.what();
  }
}

TEST(OpenCl, WorksInTheCallersContextAndQueueAndShowsThemAsNativeHandles) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const CallersOpenCl callers(0);
  {
    const OpenDevice device(opencl.provider, 0, callers.options());
    const TestStream stream(device);
    std::uint64_t handle = 0;
    check(device->native(device.raw(), BP_NATIVE_DEVICE, nullptr, nullptr, &handle));
    EXPECT_EQ(handle, reinterpret_cast<std::uint64_t>(callers.context));
    check(device->native(device.raw(), BP_NATIVE_STREAM, stream.raw(), nullptr, &handle));
    EXPECT_EQ(handle, reinterpret_cast<std::uint64_t>(callers.queue));
    EXPECT_EQ(NegOnDevice(device, 2).run(stream, {1, 2}), (std::vector<float>{-1, -2}));
    const TestBuffer buffer(device, BP_MEMORY_DEVICE, 64);
    check(device->native(device.raw(), BP_NATIVE_BUFFER, nullptr, buffer.raw(), &handle));
    std::size_t bytes = 0;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the interface gives native handles as numbers
    const auto memory = reinterpret_cast<cl_mem>(handle);
    EXPECT_EQ(clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr), CL_SUCCESS);
    EXPECT_EQ(bytes, 64u);
  }
  EXPECT_EQ(clFinish(callers.queue), CL_SUCCESS) << "the provider released the caller's queue";
}

/// The device's buffer over a memory object of the program's; or why there is none.
struct Imported {
  static const bp_import_memory& table(const OpenClPlugin& opencl) {
    return *static_cast<const bp_import_memory*>(
        opencl.provider->get_interface(opencl.provider->self, BP_IMPORT_MEMORY_INTERFACE, 1));
  }
  Imported(const OpenClPlugin& opencl, const OpenDevice& device, cl_mem memory,
           std::uint64_t offset, std::uint64_t bytes)
      : table_(table(opencl)), device_(device) {
    std::tie(code, text) = take(table_.buffer_import(
        device.raw(), reinterpret_cast<std::uint64_t>(memory), offset, bytes, &access, &raw));
  }
  ~Imported() {
    if (raw != nullptr) table_.buffer_release(device_.raw(), raw);
  }
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;

  bp_code code = BP_OK;
  std::string text;
  std::int32_t access = 0;
  bp_buffer* raw = nullptr;

 private:
  const bp_import_memory& table_;
  const OpenDevice& device_;
};

/// A memory object that ends with the test.
struct CallersMemory {
  CallersMemory(cl_context context, cl_mem_flags flags, std::size_t bytes, void* host = nullptr)
      : raw(clCreateBuffer(context, flags, bytes, host, nullptr)) {}
  explicit CallersMemory(cl_mem made) : raw(made) {}
  ~CallersMemory() { clReleaseMemObject(raw); }
  CallersMemory(const CallersMemory&) = delete;
  CallersMemory& operator=(const CallersMemory&) = delete;
  cl_uint references() const {
    cl_uint count = 0;
    clGetMemObjectInfo(raw, CL_MEM_REFERENCE_COUNT, sizeof count, &count, nullptr);
    return count;
  }
  /// Whether nobody but the test holds it. A driver may let go of what a command read some time after the command is done.
  bool is_released() const {
    for (int waited = 0; waited < 1000 && references() != 1; ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return references() == 1;
  }
  cl_mem raw;
};

TEST(OpenCl, KernelsWorkOnTheProgramsMemoryInTheOrderOfItsQueue) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const CallersOpenCl callers(0);
  const OpenDevice device(opencl.provider, 0, callers.options());
  const TestStream stream(device);
  const NegOnDevice neg(device, 3);
  const CallersMemory x(callers.context, CL_MEM_READ_ONLY, 64),
      y(callers.context, CL_MEM_READ_WRITE, 2048);
  {
    const Imported from(opencl, device, x.raw, 0, 12), to(opencl, device, y.raw, 1024, 12);
    ASSERT_EQ(from.code, BP_OK) << from.text;
    ASSERT_EQ(to.code, BP_OK) << to.text;
    EXPECT_EQ(from.access, BP_IMPORT_READ);
    EXPECT_EQ(to.access, BP_IMPORT_READ | BP_IMPORT_WRITE);
    EXPECT_EQ(x.references(), 2u);
    for (float first = 1; first < 20; ++first) {
      const float values[] = {first, 2, 3};
      float results[3] = {};
      clEnqueueWriteBuffer(callers.queue, x.raw, CL_FALSE, 0, 12, values, 0, nullptr, nullptr);
      check(neg.put(stream, {nullptr, from.raw}, {nullptr, to.raw, 1024}));
      clEnqueueReadBuffer(callers.queue, y.raw, CL_TRUE, 1024, 12, results, 0, nullptr, nullptr);
      EXPECT_EQ(results[0], -first);
      EXPECT_EQ(results[2], -3);
    }
  }
  EXPECT_TRUE(x.is_released()) << x.references();
}

TEST(OpenCl, MemoryThatTheDeviceCannotUseIsRefusedWithTheReason) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const CallersOpenCl callers(0), others(0);
  const OpenDevice device(opencl.provider, 0, callers.options());
  const CallersMemory memory(callers.context, CL_MEM_READ_WRITE, 1024),
      of_others(others.context, CL_MEM_READ_WRITE, 1024),
      written(callers.context, CL_MEM_WRITE_ONLY, 1024);
  const auto refusal = [&](const CallersMemory& of, std::uint64_t offset, std::uint64_t bytes) {
    const Imported imported(opencl, device, of.raw, offset, bytes);
    EXPECT_EQ(imported.code, BP_INVALID_ARGUMENT);
    EXPECT_TRUE(of.is_released()) << of.references();
    return imported.text;
  };
  const auto expect = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(refusal(memory, 0, 1025), "has 1024 bytes; 1025");
  expect(refusal(memory, ~std::uint64_t{0}, 16), "has 1024 bytes");
  expect(refusal(memory, 4, 16), "multiple of 128");
  expect(refusal(of_others, 0, 16), "user_context");
  expect(refusal(written, 0, 16), "CL_MEM_WRITE_ONLY");
  alignas(64) static float floats[64];
  const CallersMemory crooked(callers.context, CL_MEM_USE_HOST_PTR, 128, floats + 1);
  if (crooked.raw != nullptr) expect(refusal(crooked, 0, 16), "CL_MEM_USE_HOST_PTR");
  const CallersMemory straight(callers.context, CL_MEM_USE_HOST_PTR, 256, floats);
  EXPECT_EQ(Imported(opencl, device, straight.raw, 128, 64).code, BP_OK);
  // A sub-buffer counts from its own beginning.
  const CallersMemory large(callers.context, CL_MEM_READ_WRITE, 8192);
  const cl_buffer_region region{4096, 1024};
  const CallersMemory part(
      clCreateSubBuffer(large.raw, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, nullptr));
  ASSERT_NE(part.raw, nullptr);
  EXPECT_EQ(Imported(opencl, device, part.raw, 0, 1024).code, BP_OK);
  expect(refusal(part, 0, 1025), "has 1024 bytes");
  const cl_image_format format{CL_RGBA, CL_FLOAT};
  cl_image_desc description{};
  description.image_type = CL_MEM_OBJECT_IMAGE2D;
  description.image_width = description.image_height = 4;
  const cl_mem image =
      clCreateImage(callers.context, CL_MEM_READ_WRITE, &format, &description, nullptr, nullptr);
  if (image == nullptr) return;  // a device without images
  expect(refusal(CallersMemory(image), 0, 16), "no buffer");
}

TEST(OpenCl, AQueueOutOfOrderIsRefused) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const CallersOpenCl callers(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  EXPECT_THROW(OpenDevice(opencl.provider, 0, callers.options()), StatusError);
}

TEST(OpenCl, AnIndexOutOfRangeFailsTheRunOnceAndNamesItsMeaning) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const OpenDevice device(opencl.provider, 0, kNoCache);
  const TestStream stream(device);
  NodeUnderTest node("", "Gather", 13);
  node.input(BP_FLOAT, {4}).input(BP_INT64, {1}).outputs(1);
  KernelUnderTest kernel(device.kernel("Gather"), device.raw(), node.raw());
  kernel.prepare({floats({4}, {1, 2, 3, 4}), ints({1}, {0})}, {false, false}, 1);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), index(device, BP_MEMORY_DEVICE, 64),
      y(device, BP_MEMORY_DEVICE, 64);
  upload(device, stream, {1, 2, 3, 4}, {nullptr, x.raw()});
  const auto gather = [&](std::int64_t at) {
    std::vector<float> words(2);
    std::memcpy(words.data(), &at, sizeof at);
    upload(device, stream, words, {nullptr, index.raw()});
    check(kernel.compute({{nullptr, x.raw()}, {nullptr, index.raw()}}, {{nullptr, y.raw()}}, {}, {},
                         stream.raw()));
    return stream.try_sync();
  };
  EXPECT_EQ(gather(-1).first, BP_OK);
  EXPECT_EQ(download(device, stream, {nullptr, y.raw()}, 1), std::vector<float>{4});
  const auto [code, text] = gather(4);
  EXPECT_EQ(code, BP_FAILED);
  EXPECT_NE(text.find("outside of its axis"), std::string::npos) << text;
  EXPECT_EQ(gather(2).first, BP_OK) << "the fault was not forgotten";
  const TestStream other(device);
  const TestFence fence(device), gate(device);
  std::vector<float> words(2);
  const std::int64_t wrong = 100;
  std::memcpy(words.data(), &wrong, sizeof wrong);
  upload(device, stream, words, {nullptr, index.raw()});
  fence.signal(stream, 1);
  gate.wait(stream, 1);
  check(kernel.compute({{nullptr, x.raw()}, {nullptr, index.raw()}}, {{nullptr, y.raw()}}, {}, {},
                       stream.raw()));
  fence.signal(stream, 2);
  EXPECT_EQ(fence.host_wait(1).first, BP_OK) << "the kernel stands behind the gate";
  gate.signal(other, 1);
  EXPECT_EQ(fence.host_wait(2).first, BP_FAILED);
}

}  // namespace
}  // namespace backplane::test_host
