// Normalisations that stand as nodes of their own, as exporters write them where they have no operator for them.
#pragma once

#include <vector>

#include "plugins/common/patterns/nodes.hpp"

namespace backplane::patterns {

/// (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + bias over the last axis, or without the means and the
/// bias. 16 bits may be widened to float32 for all but the scale.
struct DecomposedNormalization {
  sdk::ValueInfo x, y, scale, bias;  ///< `bias` may be empty; each of the others has x's type
  float epsilon = 0;
  bool has_mean = false;
  std::vector<sdk::Node>
      nodes;  ///< whose work it is, the last one first; what they make nobody else reads, but for y
};

/// The one whose last node is given, and that has none of `taken`; its x is empty where there is none. Where an addition is none
/// that can be computed, its product may be the last.
DecomposedNormalization find_normalization(const sdk::Node& last, const NodeSet& taken);

}  // namespace backplane::patterns
