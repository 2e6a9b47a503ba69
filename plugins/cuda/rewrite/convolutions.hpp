// A convolution takes over the nodes after it: normalisation, a value that is added, Relu.
#pragma once

#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::cuda {

void fuse_convolutions(const sdk::Graph& graph, device_ops::NodeSet& taken, sdk::Rewrite& edit);

}  // namespace backplane::cuda
