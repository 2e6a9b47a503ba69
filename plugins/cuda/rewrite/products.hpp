// A product takes over the nodes after it: a row or a matrix that is added, and an activation. Products of constant weights that
// read one value are one.
#pragma once

#include "plugins/common/device_ops/rewrite/passes.hpp"
#include "plugins/cuda/precision.hpp"

namespace backplane::cuda {

void fuse_products(const PrecisionRules& precision, GeluForm gelu, const sdk::Graph& graph,
                   device_ops::NodeSet& taken, sdk::Rewrite& edit);

}  // namespace backplane::cuda
