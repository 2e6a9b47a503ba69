// When the work of a stream began and ended, as its device says: for traces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/log.hpp"
#include "core/plugin_host/device.hpp"

struct bp_device_times;

namespace backplane::core {

/// A piece of work of a device. Times are steady-clock nanoseconds.
struct DeviceTime {
  std::string name;
  std::uint64_t begin_ns = 0, end_ns = 0;
};

/// Asks a stream's device for times, by the interface "bp.device_times".
/// Threads: as the stream.
class DeviceTimes {
 public:
  /// Starts or ends the taking of times; nothing is on the stream. A device that takes none is logged. Throws what else it
  /// says.
  void record(const Stream& stream, bool on, const Logger* logger);
  /// What was done since the last call, oldest first; the stream has been waited for.
  std::vector<DeviceTime> take(const Stream& stream) const;

 private:
  const bp_device_times* table_ = nullptr;
  bool is_asked_ = false;  ///< table_ has been looked for
  bool is_on_ = false;
};

}  // namespace backplane::core
