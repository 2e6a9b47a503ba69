// The table of functions by which the host drives an opened device.
#pragma once

#include "backplane/plugin.hpp"

namespace backplane::opencl {

const bp_device_api* device_api();

/// Every kernel of the provider: the shared operators and its own.
const sdk::KernelList& kernels();

}  // namespace backplane::opencl
