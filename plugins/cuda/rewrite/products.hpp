// A product takes over the nodes after it: a row or a matrix that is added, and an activation.
#pragma once

#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::cuda {

void fuse_products(const sdk::Graph& graph, device_ops::NodeSet& taken, sdk::Rewrite& edit);

}  // namespace backplane::cuda
