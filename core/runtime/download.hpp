// Values of a device, read back.
#pragma once

#include "core/plugin_host/device.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// A copy on the host of a dense tensor in a device's memory; waits for it. A tensor in a provider's own format, or a
/// strided one, is described without its elements. Throws what the device says.
RuntimeValuePtr download(Device& device, const RuntimeValue& from);

}  // namespace backplane::core
