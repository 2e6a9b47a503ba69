// The provider: its options, and one device for every CUDA device that the driver shows.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// What a provider works with: the driver is opened when devices are looked for, the engine when the first device is opened.
/// Both throw sdk::Error with the reason why there can be none, BP_UNSUPPORTED.
struct Libraries {
  std::unique_ptr<Driver> (*driver)();
  std::unique_ptr<Engine> (*engine)();
  /// Whether the engine will open, as far as that can be seen without; where it says no it is opened when devices are looked
  /// for, and what it fails with is why there are none. Throws nothing.
  bool (*engine_is_there)();
  TrialLimits trials = {};
};

/// Made by the first query, never destroyed before the process ends.
class Provider {
 public:
  explicit Provider(const Libraries& libraries);
  const bp_provider* raw() const { return &raw_; }

 private:
  struct FoundDevice {
    DeviceTraits traits;
    bp_device_info info = sdk::abi_struct<bp_device_info>();
  };
  void find_devices();
  std::unique_ptr<Device> open(const sdk::OpenContext& ctx);

  Libraries libraries_;
  std::mutex mutex_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Engine> engine_;
  bool is_searched_ = false;
  std::deque<FoundDevice> found_;
  std::vector<sdk::Option> options_;
  std::vector<const bp_option*> option_pointers_;
  bp_provider raw_ = sdk::abi_struct<bp_provider>();
};

}  // namespace backplane::cuda
