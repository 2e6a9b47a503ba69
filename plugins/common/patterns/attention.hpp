// Attention that stands as nodes of its own around a Softmax, as exporters write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/common/patterns/nodes.hpp"

namespace backplane::patterns {

/// An operand, its nodes seen through: where it comes from, and how its first three axes lie there.
struct SeenHeads {
  sdk::ValueInfo value;
  std::string axes = "bhs";  ///< batches, heads, positions: or "bsh"
  std::int64_t group = 1;    ///< heads of queries that share one
};

/// softmax(cap * tanh(scale * q k' / cap) + mask) v, of four axes, or of three, which have no heads. Sizes may be unknown, and all may
/// broadcast as operands of MatMul, Add and Where do.
struct DecomposedAttention {
  sdk::Node softmax;             ///< empty: it is none
  sdk::Node scores, product;     ///< of queries and keys, and of the weights and the values
  std::vector<sdk::Node> nodes;  ///< whose work it is, the one that makes y last
  SeenHeads q, k, v, y;
  sdk::ValueInfo mask;  ///< of at most as many axes; empty: there is none
  /// Of a mask of bools: scores whose element is this stay, others become `otherwise`. None: the mask is added.
  std::optional<bool> chosen;
  float otherwise = 0;
  float scale = 1;
  float softcap = 0;         ///< 0: there is none
  bool is_nan_zero = false;  ///< weights that would be NaN are replaced
  std::string why;           ///< it is none that could be one node; nothing but softmax is set then
};

/// Whether keys and values are those before a Cast to float of 16-bit ones: a cache, which need not be widened.
enum class HalfCaches { AreCast, AreRead };

/// The one around a Softmax, of nodes that are not `taken`. The types are for whoever computes it to judge.
DecomposedAttention find_attention(const sdk::Node& softmax, const NodeSet& taken,
                                   HalfCaches caches = HalfCaches::AreCast);

}  // namespace backplane::patterns
