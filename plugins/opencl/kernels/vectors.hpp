// Vectors of floats in which kernels of processors work.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/opencl/device.hpp"

namespace backplane::opencl {

/// Floats of a vector: the device's, but less than twice of what there are.
std::int64_t vector_width(const Device& device, std::int64_t most);

/// "0, 1, 2" for 3.
std::string lane_numbers(std::int64_t width);

}  // namespace backplane::opencl
