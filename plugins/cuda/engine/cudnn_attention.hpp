// Attention by cuDNN 9's graphs.
#pragma once

#include <memory>

#include "plugins/cuda/attentions.hpp"

namespace backplane::cuda {

std::unique_ptr<AttentionLibrary> open_cudnn_attention(Context& context);

}  // namespace backplane::cuda
