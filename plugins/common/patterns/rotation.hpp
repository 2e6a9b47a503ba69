// Queries and keys that decoders turn by their positions' angles, as exporters write it.
#pragma once

#include <vector>

#include "plugins/common/patterns/nodes.hpp"

namespace backplane::patterns {

/// x * cos + concat(-x2, x1) * sin, where x1 and x2 are the halves of x's last axis, which cos and sin have, too. All may broadcast.
struct DecomposedRotation {
  sdk::ValueInfo x, cos, sin;    ///< x is empty: it is none
  std::vector<sdk::Node> nodes;  ///< whose work it is, the one that makes the result last
  /// What makes x, where nobody else reads that and the last axis stays the last; empty otherwise. It is none of the nodes.
  sdk::Node transpose;
};

/// The one whose last node is given, of nodes that are not `taken`. The types are for whoever computes it to judge.
DecomposedRotation find_rotation(const sdk::Node& last, const NodeSet& taken);

}  // namespace backplane::patterns
