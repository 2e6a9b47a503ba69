// Product, scale, mask, softmax, product: attention, of dims that may be known only in a run.
#pragma once

#include "plugins/common/device_ops/rewrite/passes.hpp"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// One node for each, which asks the library for a plan when shapes are known (ops/attention.cpp). What has the form and stays
/// as it is has the reason as a note.
void fuse_attention(const Device& device, const sdk::Graph& graph, device_ops::NodeSet& taken,
                    sdk::Rewrite& edit);

}  // namespace backplane::cuda
