// Rewriting passes that providers with the shared operators use, and what passes share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plugins/common/device_ops/device.hpp"
#include "plugins/common/device_ops/provider.hpp"

namespace backplane::device_ops {

using sdk::DataType;
using sdk::Dims;
using sdk::DimsView;

/// Nodes whose work an added node does.
using NodeSet = std::set<const bp_node*>;

/// The node that alone reads `value`, once, where nobody outside does and that is not taken; empty otherwise.
inline sdk::Node only_consumer(const sdk::ValueInfo& value, const NodeSet& taken) {
  if (value.is_output() || value.consumer_count() != 1) return sdk::Node();
  const sdk::Node node = value.consumer(0);
  return taken.count(node.raw()) == 0 ? node : sdk::Node();
}

/// What makes a value that one node alone reads, once; empty where others do, or that node of ONNX's is taken.
inline sdk::Node only_producer(const sdk::ValueInfo& value, const NodeSet& taken) {
  const sdk::Node node = value ? value.producer() : sdk::Node();
  if (!node || !node.domain().empty() || taken.count(node.raw()) > 0) return sdk::Node();
  return value.is_output() || value.consumer_count() != 1 ? sdk::Node() : node;
}

/// Whether others than these nodes read the value.
inline bool is_read_by_others(const sdk::ValueInfo& value, const std::vector<sdk::Node>& nodes) {
  std::size_t reads = 0;
  for (const sdk::Node& node : nodes) {
    for (std::size_t i = 0; i < node.input_count(); ++i) reads += node.input(i) == value;
  }
  return value.is_output() || value.consumer_count() != reads;
}

/// Whether an axis of one value surely has, in every run, the size of an axis of another. Both have ranks.
bool same_size(const sdk::ValueInfo& a, int a_axis, const sdk::ValueInfo& b, int b_axis);

/// What is known before any run of the dims of one value beside those of another.
enum class DimsMatch : std::uint8_t {
  kSame,     ///< of each axis, the size or the symbol is the same
  kPerhaps,  ///< the same number of axes, and none of which two sizes are known that differ
  kOther
};
DimsMatch match_dims(const sdk::ValueInfo& a, const sdk::ValueInfo& b);

/// Whether both surely have the same dims, in every run.
inline bool same_dims(const sdk::ValueInfo& a, const sdk::ValueInfo& b) {
  return match_dims(a, b) == DimsMatch::kSame;
}

/// The axes of a reduction of `rank` axes, in order: the constant, the attribute, or all of them. False where they are not known.
bool read_axes(const sdk::Node& node, int rank, Dims& axes);

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
