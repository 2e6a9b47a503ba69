// Runs the text of kernels on the processor, by an OpenCL library: the shared kernels are in the words of both
// languages, so that whole networks can be computed on the stand-in. It compiles in a fraction of the time of host_kernels.hpp and
// keeps what it compiled, but knows none of CUDA's own words.
#pragma once

#include <string>

#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

/// As StandInState::kernel. Errors: std::runtime_error with the compiler's log.
void run_kernel_on_host(const std::string& source, const Extent& groups, const Extent& group,
                        void** arguments);

}  // namespace backplane::cuda
