// Gelu that stands as nodes of its own, as exporters write it where they have no operator for it:
// https://onnx.ai/onnx/operators/onnx__Gelu.html
#pragma once

#include <vector>

#include "plugins/common/patterns/nodes.hpp"

namespace backplane::patterns {

/// x * (1 + erf(x / sqrt(2))) / 2, or x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2, however it is written.
struct DecomposedGelu {
  std::vector<sdk::Node> nodes;  ///< whose work it is, the last one last; none where it is none
  sdk::ValueInfo x, result;      ///< of one type and the same dims; others may read x, too
  bool has_tanh = false;
};

/// The one around an Erf or a Tanh, of nodes that are not `taken`. x is float32 or of 16 bits.
DecomposedGelu find_gelu_around(const sdk::Node& gate, const NodeSet& taken);

/// Likewise the one with Erf whose result the node makes.
DecomposedGelu find_gelu_ending(const sdk::Node& last, const NodeSet& taken);

/// Likewise the one of a value that nothing else reads, with Erf or Tanh.
DecomposedGelu find_gelu_behind(const sdk::ValueInfo& x, const NodeSet& taken);

}  // namespace backplane::patterns
