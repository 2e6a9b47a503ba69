// Fusion: nodes of this device are replaced by fewer ones of the domain "backplane.opencl".
#pragma once

#include "backplane/plugin.hpp"
#include "plugins/opencl/device.hpp"

namespace backplane::opencl {

void rewrite(const Device& device, const sdk::Graph& graph, sdk::Rewrite& edit);

}  // namespace backplane::opencl
