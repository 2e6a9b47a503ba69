// The driver's addresses are numbers, the libraries' are pointers.
#pragma once

#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

inline void* pointer(Address address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace backplane::cuda
