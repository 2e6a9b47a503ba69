// Telling devices that a session is ready, and that it ended.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/plugin_host/device.hpp"

struct bp_session_events;

namespace backplane::core {

/// The devices that were told of one session; they are told of its end by the destructor.
class SessionEvents {
 public:
  SessionEvents();
  SessionEvents(const SessionEvents&) = delete;
  SessionEvents& operator=(const SessionEvents&) = delete;
  ~SessionEvents();

  /// Tells a device, once. Throws what it says, naming it.
  void tell_ready(const DevicePtr& device);

 private:
  std::uint64_t id_;
  std::vector<std::pair<DevicePtr, const bp_session_events*>> told_;
};

}  // namespace backplane::core
