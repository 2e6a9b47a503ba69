// Attention by cuDNN 9's graphs.
#pragma once

#include <memory>

#include "plugins/cuda/attentions.hpp"
#include "plugins/cuda/engine/cudnn_parts.hpp"

namespace backplane::cuda {

/// The library's best plan within the limit, in bytes; none where it has none.
std::optional<FinishedPlan> find_plan(const Attention& form, const Target& target,
                                      std::uint64_t workspace_limit);

std::unique_ptr<AttentionLibrary> open_cudnn_attention(Context& context);

}  // namespace backplane::cuda
