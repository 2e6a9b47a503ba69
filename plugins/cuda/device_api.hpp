// The table of functions by which the host drives an opened device.
#pragma once

#include <memory>

#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

const bp_device_api* device_api();

/// The handle by which the host knows a device, which it closes.
bp_device* handle_of(std::unique_ptr<Device> device);

}  // namespace backplane::cuda
