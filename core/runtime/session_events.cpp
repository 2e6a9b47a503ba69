#include "core/runtime/session_events.hpp"

#include <algorithm>
#include <atomic>

#include "backplane/plugin_api/optional/session.h"
#include "core/plugin_host/optional_interface.hpp"
#include "core/plugin_host/plugin_description.hpp"

namespace backplane::core {
namespace {

std::uint64_t next_session_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// The provider's table; null where it has none.
const bp_session_events* events_of(const Device& device) {
  return static_cast<const bp_session_events*>(
      find_interface(device.provider(), "device '" + device.label() + "'", BP_SESSIONS_INTERFACE,
                     BP_SIZE_V1(bp_session_events, ended), "bp_session_events"));
}

}  // namespace

SessionEvents::SessionEvents() : id_(next_session_id()) {}

SessionEvents::~SessionEvents() {
  if (process_is_ending()) return;
  for (const auto& [device, events] : told_) {
    if (events->ended != nullptr) events->ended(device->raw(), id_);
  }
}

void SessionEvents::tell_ready(const DevicePtr& device) {
  const auto is_this = [&](const auto& told) { return told.first == device; };
  if (std::any_of(told_.begin(), told_.end(), is_this)) return;
  const bp_session_events* events = events_of(*device);
  if (events == nullptr) return;
  told_.reserve(told_.size() + 1);
  if (events->ready != nullptr)
    device->check(events->ready(device->raw(), id_), "it was told that a session is ready");
  told_.emplace_back(device, events);
}

}  // namespace backplane::core
