// The passes of the rewrite that are this provider's own.
#pragma once

#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::opencl {

using device_ops::DataType;
using device_ops::Dims;
using device_ops::DimsMatch;
using device_ops::DimsView;
using device_ops::match_dims;
using device_ops::NodeSet;
using device_ops::only_consumer;
using device_ops::private_domain;

/// Attention that stands as nodes around a Softmax.
void fuse_attention(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit);

/// Products and convolutions with what stands around them.
void fuse_products(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit);

}  // namespace backplane::opencl
