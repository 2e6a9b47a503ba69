// Matrix products by cuBLASLt.
#pragma once

#include <memory>

#include "plugins/cuda/products.hpp"

namespace backplane::cuda {

std::unique_ptr<ProductLibrary> open_cublas_lt(Context& context);

}  // namespace backplane::cuda
