// Convolutions by cuDNN 9's graphs.
#pragma once

#include <memory>

#include "plugins/cuda/convolutions.hpp"
#include "plugins/cuda/engine/cudnn_parts.hpp"

namespace backplane::cuda {

/// The library's best plan within the limit, in bytes; none where it has none.
std::optional<FinishedPlan> find_plan(const Convolution& form, const Target& target,
                                      std::uint64_t workspace_limit);

std::unique_ptr<ConvolutionLibrary> open_cudnn(Context& context);

}  // namespace backplane::cuda
