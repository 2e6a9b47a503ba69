// What tests of the OpenCL provider share: the plugin, and an element-wise kernel driven by hand.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "tests/fixtures/fakegpu_device.hpp"

namespace backplane::test_host {

inline const OpenDevice::Options kNoCache{{"cache_dir", "off"}};

/// The plugin, and why its devices cannot be used here; empty when they can.
struct OpenClPlugin {
  LoadedPlugin plugin{BACKPLANE_TEST_PLUGIN_DIR "/opencl.so"};
  const bp_provider* provider = plugin.provider("opencl");
  std::vector<const bp_device_info*> infos;
  std::string reason;

  OpenClPlugin() {
    const auto [code, text] = take(provider->enumerate(
        provider->self, &infos, [](void* list, const bp_device_info* info) -> bp_status* {
          static_cast<std::vector<const bp_device_info*>*>(list)->push_back(info);
          return nullptr;
        }));
    if (code != BP_OK) reason = text;
  }
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A folder of the test's own, removed at the end.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("backplane_opencl_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      all.push_back(entry.path());
    return all;
  }

 private:
  std::filesystem::path path_;
};

/// Neg of floats on a device: created, prepared and computed.
class NegOnDevice {
 public:
  NegOnDevice(const OpenDevice& device, std::int64_t count)
      : device_(device), node_("", "Neg", 13) {
    node_.input(BP_FLOAT, {count}).outputs(1);
    kernel_ = std::make_unique<KernelUnderTest>(device.kernel("Neg"), device.raw(), node_.raw());
    kernel_->prepare({floats({count}, std::vector<float>(static_cast<std::size_t>(count)))},
                     {false}, 1);
  }
  /// Puts the negation of `from` on the stream; both places are on the device.
  bp_status* put(const TestStream& stream, Place from, Place to) const {
    return kernel_->compute({from}, {to}, {}, {}, stream.raw());
  }
  std::vector<float> run(const TestStream& stream, const std::vector<float>& values) const {
    const TestBuffer x(device_, BP_MEMORY_DEVICE, values.size() * sizeof(float)),
        y(device_, BP_MEMORY_DEVICE, values.size() * sizeof(float));
    upload(device_, stream, values, {nullptr, x.raw()});
    check(put(stream, {nullptr, x.raw()}, {nullptr, y.raw()}));
    return download(device_, stream, {nullptr, y.raw()}, values.size());
  }

 private:
  const OpenDevice& device_;
  NodeUnderTest node_;
  std::unique_ptr<KernelUnderTest> kernel_;
};

/// The caller's own context and queue on the first device.
struct CallersOpenCl {
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  explicit CallersOpenCl(cl_command_queue_properties properties) {
    cl_platform_id platform = nullptr;
    cl_device_id device = nullptr;
    clGetPlatformIDs(1, &platform, nullptr);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
    cl_int code = CL_SUCCESS;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
    queue = clCreateCommandQueue(context, device, properties, &code);
  }
  ~CallersOpenCl() {
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
  }
  CallersOpenCl(const CallersOpenCl&) = delete;
  CallersOpenCl& operator=(const CallersOpenCl&) = delete;
  OpenDevice::Options options() const {
    return {{"cache_dir", "off"},
            {"user_context", std::to_string(reinterpret_cast<std::uint64_t>(context))},
            {"user_queue", std::to_string(reinterpret_cast<std::uint64_t>(queue))}};
  }
};

}  // namespace backplane::test_host

/// Leaves a test on a machine that has no OpenCL device.
#define NEEDS_OPENCL(plugin) \
  if (!(plugin).reason.empty()) GTEST_SKIP() << (plugin).reason
