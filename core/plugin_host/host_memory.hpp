// Host memory that devices work on without a copy: the interface "bp.host_memory".
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "core/plugin_host/device.hpp"

namespace backplane::core {

/// Asks a device which host memory it views; nothing where it views none. Throws what else it says, naming the device.
std::optional<HostMemory> find_host_memory(const Device& device);

/// What a device does with a view.
enum class ViewAccess : std::int32_t { Read = 1, Write = 2 };

/// A buffer of a device over memory of the host: RAII over bp_host_memory::view.
///
/// Lifetime: holds the device; the memory outlives it.
/// Threads:  one stream at a time; is_broken and set_broken: any.
class HostView {
 public:
  struct Extent {
    void* memory = nullptr;
    std::uint64_t bytes = 0;
    ViewAccess access = ViewAccess::Read;
    bool operator==(const Extent&) const = default;
  };

  /// `status` gets what the provider said; there is no view then. The device has the interface.
  HostView(DevicePtr device, const Extent& extent, bp_status*& status);
  ~HostView();
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  const Device& device() const { return *device_; }
  const Extent& extent() const { return extent_; }
  bp_buffer* raw() const { return raw_; }
  bp_status* hand_over(bp_stream* stream);
  bp_status* hand_back(bp_stream* stream);

  /// A run with it failed: nobody knows who has it, so it is not to be used again.
  bool is_broken() const { return is_broken_.load(std::memory_order_relaxed); }
  void set_broken() { is_broken_.store(true, std::memory_order_relaxed); }

 private:
  DevicePtr device_;
  Extent extent_;
  bp_buffer* raw_ = nullptr;
  std::atomic<bool> is_broken_{false};
};

}  // namespace backplane::core
