// The compiler of kernels, NVRTC, which is opened when the first device is.
#pragma once

#include <memory>

#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

/// The library's file name.
const char* nvrtc_name();
/// Throws BP_UNSUPPORTED, naming it, when it is not there.
void require_nvrtc();
/// Errors: the same.
std::unique_ptr<Compiler> load_nvrtc();

}  // namespace backplane::cuda
