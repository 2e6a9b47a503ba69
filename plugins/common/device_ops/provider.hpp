// What the shared operators take from the plugin that they are linked into.
#pragma once

#include <string>

#include "backplane/plugin.hpp"

namespace backplane::device_ops {

/// The provider's name, "opencl". Each plugin defines it.
const char* provider_name();

/// The name of a kernel as users see it: "opencl:softmax".
inline std::string kernel_name(const char* text) {
  return sdk::message(provider_name(), ':', text);
}

/// The domain of the nodes that rewrites make: "backplane.opencl".
inline std::string private_domain() { return sdk::message("backplane.", provider_name()); }

/// The kernels of the shared operators, in the order of the operator files.
sdk::KernelList shared_kernels();

}  // namespace backplane::device_ops
