// How a device copies between its own memory and other memory.
#pragma once

#include <cstdint>

#include "core/plugin_host/device.hpp"

namespace backplane::core {

/// BP_COPY_*: what the device says for memory of these kinds. A way that this host does not know is BP_COPY_NONE. `peer`:
/// another device of the provider, which owns the other side, or null. Throws what else it says, naming the device.
std::int32_t copy_mode(Device& device, bp_memory_kind from, bp_memory_kind to,
                       const Device* peer = nullptr);

/// Refuses a device that values cannot be copied to or from: neither from and to all host memory nor over a pinned heap.
void check_copies(Device& device);

}  // namespace backplane::core
