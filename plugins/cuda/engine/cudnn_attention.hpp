// Attention by cuDNN 9's graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "plugins/cuda/attentions.hpp"
#include "plugins/cuda/engine/cudnn_parts.hpp"

namespace backplane::cuda {

/// Offers the library's plans within the limit, in bytes, best first, until one is the last that is wanted. Why there are no
/// more; empty where no more were wanted.
std::string offer_plans(const Attention& form, const Target& target, std::uint64_t workspace_limit,
                        const PlanTaker& take);

std::unique_ptr<AttentionLibrary> open_cudnn_attention(Context& context);

}  // namespace backplane::cuda
