#include "core/runtime/device_times.hpp"

#include <algorithm>

#include "backplane/plugin_api/optional/device_times.h"
#include "core/plugin_host/optional_interface.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// The provider's table; null where it has none.
const bp_device_times* times_of(const Device& device) {
  return static_cast<const bp_device_times*>(find_interface(
      device.provider(), "device '" + device.label() + "'", BP_DEVICE_TIMES_INTERFACE,
      BP_SIZE_V1(bp_device_times, take), "bp_device_times"));
}

bp_status* add_time(void* list, const bp_device_time* time) {
  return status_of([&] {
    check_struct(time, BP_SIZE_V1(bp_device_time, end_ns), "its bp_device_time");
    // A piece that ends before it began is a mistake of a clock: shown without a length.
    static_cast<std::vector<DeviceTime>*>(list)->push_back(
        {time->name != nullptr ? time->name : "", time->begin_ns,
         std::max(time->begin_ns, time->end_ns)});
  });
}

}  // namespace

void DeviceTimes::record(const Stream& stream, bool on, const Logger* logger) {
  if (on == is_on_ || stream.raw() == nullptr) return;
  Device& device = stream.device();
  if (!is_asked_) table_ = times_of(device);
  is_asked_ = true;
  if (table_ == nullptr) return;
  bp_status* const status = table_->record(device.raw(), stream.raw(), on ? 1 : 0);
  if (status != nullptr && status_code(status) == BP_UNSUPPORTED) {
    table_ = nullptr;
    const Error reason = take_error(status);
    if (logger != nullptr)
      logger->info("device '", device.label(),
                   "': a trace has no times of its own: ", reason.message());
    return;
  }
  device.check(status, "taking the times of a stream");
  is_on_ = on;
}

std::vector<DeviceTime> DeviceTimes::take(const Stream& stream) const {
  std::vector<DeviceTime> times;
  if (!is_on_) return times;
  Device& device = stream.device();
  device.check(table_->take(device.raw(), stream.raw(), &times, add_time),
               "taking the times of a stream");
  return times;
}

}  // namespace backplane::core
