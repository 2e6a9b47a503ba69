// The compiler of kernels, NVRTC.
#pragma once

#include <memory>

#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

std::unique_ptr<Compiler> open_nvrtc();

}  // namespace backplane::cuda
