// The driver, through libcuda.so.1, which is opened at run time: a machine may have none.
#pragma once

#include <memory>

#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

/// Errors: BP_UNSUPPORTED where there is no driver, or one older than the toolkit of this build.
std::unique_ptr<Driver> load_driver();

}  // namespace backplane::cuda
