// Products of one value by weights that stay packed (com.microsoft's MatMulNBits) are one node: queries, keys and values of a layer that
// decodes, or a gate and what it gates, which are one launch then. Weights stay where they are.
#pragma once

#include "plugins/common/device_ops/rewrite/passes.hpp"
#include "plugins/cuda/precision.hpp"

namespace backplane::cuda {

void join_packed_products(const PrecisionRules& precision, const sdk::Graph& graph,
                          device_ops::NodeSet& taken, sdk::Rewrite& edit);

}  // namespace backplane::cuda
