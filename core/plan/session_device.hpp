// Devices as one session sees them, and memory spaces.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/plugin_host/device.hpp"

namespace backplane::core {

class CostModel;
class WeightStore;

/// A device of a session with the kernels that this session may use on it.
struct SessionDevice {
  DevicePtr device;
  KernelRegistry registry;
  bool requested = true;  ///< false: appended by the core as a fallback
  bool placeable = true;  ///< false: only evaluates constants and shape arithmetic
};

/// Memory spaces: 0 is host memory, shared by all devices that work on it; every other device has one of its own.
inline constexpr int kHostSpace = 0;

/// The devices of a session, in order of preference.
///
/// Lifetime: devices stay where they are once the session is built.
struct DeviceSet {
  std::vector<SessionDevice> devices;
  int host_evaluator =
      -1;  ///< index of the device that evaluates constants and shape arithmetic; -1: none
  /// Of the session: what kernels need that use other operators' kernels. Null: they cannot.
  const SchemaRegistry* schemas = nullptr;
  WeightStore* weights = nullptr;
  /// What the cost policy of placement counts with. Null: the plain policy, by preference and priority.
  std::shared_ptr<const CostModel> costs;
  std::set<std::string> left_out;    ///< optional providers that are not there
  std::vector<std::string> remarks;  ///< on how they were chosen, for the explanation

  int space_of(int device) const { return at(device).on_host_memory() ? kHostSpace : device + 1; }
  /// The device whose memory a space is; only for spaces other than the host's.
  static int device_of_space(int space) { return space - 1; }
  /// The first device on host memory; -1: none.
  int on_host() const {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].device->on_host_memory()) return static_cast<int>(i);
    }
    return -1;
  }
  /// Whether a name, such as "NAME" or "NAME:1", is of a provider that was left out: what is said of it counts for nobody.
  bool is_left_out(const std::string& name) const {
    return left_out.contains(name.substr(0, name.find(':')));
  }
  std::size_t space_count() const { return devices.size() + 1; }
  const SessionDevice& entry(int index) const { return devices[static_cast<std::size_t>(index)]; }
  Device& at(int index) const { return *entry(index).device; }
};

}  // namespace backplane::core
