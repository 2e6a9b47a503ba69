// Convolutions by cuDNN 9's graphs.
#pragma once

#include <memory>

#include "plugins/cuda/convolutions.hpp"

namespace backplane::cuda {

std::unique_ptr<ConvolutionLibrary> open_cudnn(Context& context);

}  // namespace backplane::cuda
