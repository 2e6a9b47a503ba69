// Product, scale, mask, softmax, product: attention, where the library computes it.
#pragma once

#include "plugins/common/device_ops/rewrite/passes.hpp"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// What has the form and is no attention of the library's is left as it is, with the reason as a note.
void fuse_attention(Device& device, const sdk::Graph& graph, device_ops::NodeSet& taken,
                    sdk::Rewrite& edit);

}  // namespace backplane::cuda
