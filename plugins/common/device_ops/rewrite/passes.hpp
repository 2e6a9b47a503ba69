// Rewriting passes that providers with the shared operators use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/common/device_ops/device.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/common/patterns/nodes.hpp"

namespace backplane::device_ops {

using sdk::DataType;
using sdk::Dims;
using sdk::DimsView;

using patterns::DimsMatch;
using patterns::is_read_by_others;
using patterns::match_dims;
using patterns::NodeSet;
using patterns::number_of;
using patterns::only_consumer;
using patterns::only_producer;
using patterns::read_axes;
using patterns::same_dims;
using patterns::same_size;
using patterns::scalar_of;

/// Gathers of one constant place, of floats.
void take_parts(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit);

/// Halves of rows that are turned by angles, as one node: before what takes products and sums over.
void fuse_rotations(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit);

/// Normalisations that stand as nodes of their own, as one each, and element-wise trees in front of rows that are normalised or
/// folded, as one node with these: before fuse_chains.
void fuse_rows(const Device& device, const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit);

/// Element-wise trees.
void fuse_chains(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit);

}  // namespace backplane::device_ops
