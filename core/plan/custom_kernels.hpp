// Kernels that libraries of custom operators bring to the devices of a session.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/base/log.hpp"
#include "core/plan/session_device.hpp"

namespace backplane::core {

/// Registers what the libraries have for the device's provider. Kernels of operators that one of them defines, and of
/// those in `replace_ops`, go before the provider's own; other ones serve where the provider has none that fits.
/// Throws InvalidArgument naming both where two libraries bring kernels between which nothing decides: of the same
/// operator, with the same priority, for versions and types in common.
void register_custom_kernels(SessionDevice& device, const std::vector<PluginPtr>& libraries,
                             const std::set<std::string>& replace_ops,
                             const SchemaRegistry& schemas, const Logger& logger);

/// Throws InvalidArgument for a name in `replace_ops` for which no library brought a kernel to any of the devices.
void check_replaced(const DeviceSet& devices, const std::set<std::string>& replace_ops);

}  // namespace backplane::core
