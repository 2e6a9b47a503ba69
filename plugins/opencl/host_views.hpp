// Views of the host's memory: the interface "bp.host_memory" of devices that share it.
#pragma once

#include "backplane/plugin_api/optional/host_memory.h"

namespace backplane::opencl {

const bp_host_memory& host_views();

}  // namespace backplane::opencl
