// What tests of the CUDA provider share: a provider on the stand-in, everything reset before and gone after.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "tests/cuda/stand_in.hpp"
#include "tests/fixtures/fakegpu_device.hpp"

namespace backplane::cuda {

using test_host::check;
using test_host::OpenDevice;
using test_host::Place;
using test_host::take;
using test_host::TestBuffer;
using test_host::TestFence;
using test_host::TestStream;

class CudaTest : public testing::Test {
 protected:
  CudaTest() {
    sdk::host_table = test_host::api();
    stand_in() = StandInState();
    stand_in().devices = {stand_in_device()};
    compiled_sources().clear();
    provider_ = std::make_unique<Provider>(stand_in_libraries());
  }
  ~CudaTest() override {
    EXPECT_EQ(stand_in().live_bytes, 0u);
    EXPECT_EQ(stand_in().live_pinned + stand_in().live_streams + stand_in().live_events +
                  stand_in().live_modules + stand_in().live_contexts + stand_in().live_graphs +
                  stand_in().live_execs,
              0);
    EXPECT_EQ(stand_in().misuses, std::vector<std::string>());
    EXPECT_EQ(test_host::live_statuses(), 0);
  }
  const bp_provider* provider() const { return provider_->raw(); }
  OpenDevice open(OpenDevice::Options options = {}, std::size_t index = 0) const {
    options.emplace_back("cache_dir", "off");
    return OpenDevice(provider(), index, options);
  }

 private:
  std::unique_ptr<Provider> provider_;
};

/// Devices as processes open them one after another, which keep what they chose in one folder.
class CudaProcessTest : public CudaTest {
 protected:
  CudaProcessTest() { settings_.cache_dir = folder_.string(); }
  ~CudaProcessTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Device> new_process() {
    return std::make_unique<Device>(*driver_, *engine_, 0, settings_);
  }

  DeviceSettings settings_;

 private:
  std::unique_ptr<Driver> driver_ = load_stand_in();
  std::unique_ptr<Engine> engine_ = load_stand_in_engine();
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / sdk::message("cuda_process_", ::getpid());
};

}  // namespace backplane::cuda
