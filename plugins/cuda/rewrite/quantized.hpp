// Products and convolutions between DequantizeLinear and QuantizeLinear become products of int8.
#pragma once

#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::cuda {

void fuse_quantized(const sdk::Graph& graph, device_ops::NodeSet& taken, sdk::Rewrite& edit);

}  // namespace backplane::cuda
