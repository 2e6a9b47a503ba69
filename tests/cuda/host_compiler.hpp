// Kernels' texts as the compiler of this build makes them, with CUDA's words.
#pragma once

#include <string>

namespace backplane::cuda {

/// The file of a library with `host_item`, which runs one item of the kernel, and `host_sections`, which says where its local
/// memory is. Errors: std::logic_error with the text, where it does not compile.
std::string host_library(const std::string& source);

}  // namespace backplane::cuda
