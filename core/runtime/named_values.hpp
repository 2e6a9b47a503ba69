// Feeds and fetches by name, and in whose memory they lie.
#pragma once

#include <string>
#include <vector>

#include "core/plan/control_flow.hpp"
#include "core/plan/session_device.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// A feed or fetch by name.
struct NamedValue {
  std::string name;
  RuntimeValue* value;
  DevicePtr device = nullptr;  ///< in whose memory it lies; null: the host's
};

/// A value that is kept, with the device in whose memory it lies.
struct PlacedValue {
  RuntimeValuePtr value;
  DevicePtr device;
};

/// "'a', 'b'" for messages; "none" for none; of many the first ones.
std::string quoted_names(const std::vector<std::string>& names);

/// By the name that the session knows it by, or by its provider's where that has one device there. Throws InvalidArgument
/// with the devices that there are.
DevicePtr find_device(const DeviceSet& set, const std::string& name);

/// The space of a value in a device's memory; throws for a device that is not in the set, naming the value.
int space_of(const DeviceSet& set, const std::string& name, const DevicePtr& device);

/// Whether a run has to be told where its values lie.
bool is_off_host(const BodyPlaces& places);

/// Throws where a value was given for an output that no run may write: one that a session made on a device, or memory of
/// the program's that can only be read.
void check_may_be_written(const std::string& name, const RuntimeValue& value,
                          const DevicePtr& device);

/// Throws: a fetch lies in the memory of a feed or of another fetch.
[[noreturn]] void refuse_shared_memory(const std::string& fetch, const char* what,
                                       const std::string& other);

/// Throws where a fetch lies in memory of the program's that another fetch or a feed lies in too, naming both. Not for
/// a feed and a fetch that begin at one byte of the host's: Executable decides, by the plan.
void check_apart(const std::vector<NamedValue>& feeds, const std::vector<NamedValue>& fetches);

/// Both for the values of a run by name.
void check_values(const std::vector<NamedValue>& feeds, const std::vector<NamedValue>& fetches);

}  // namespace backplane::core
