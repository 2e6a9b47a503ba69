// Convolutions by cuDNN 9's graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "plugins/cuda/convolutions.hpp"
#include "plugins/cuda/engine/cudnn_parts.hpp"

namespace backplane::cuda {

/// Offers the library's plans within the limit, in bytes, best first, until one is the last that is wanted. Why there are no
/// more; empty where no more were wanted.
std::string offer_plans(const Convolution& form, const Target& target,
                        std::uint64_t workspace_limit, const PlanTaker& take);

std::unique_ptr<ConvolutionLibrary> open_cudnn(Context& context);

}  // namespace backplane::cuda
