// The two products of an attention, of queries and keys and of weights and values, which exporters write as MatMul or as Einsum.
#pragma once

#include <string>

#include "plugins/common/patterns/attention.hpp"

namespace backplane::patterns {

struct AttentionProduct {
  sdk::Node node;            ///< empty: it is none
  SeenHeads left, right;     ///< as they are read: queries and keys, or weights and values
  bool has_columns = true;   ///< keys lie as MatMul reads them, the width before the positions
  std::string axes = "bhs";  ///< of the result
  std::string why;           ///< it may turn out to be something else
};

/// The product of queries and keys whose result is [batches, heads, queries, keys], of three axes without the heads.
AttentionProduct product_of_keys(const sdk::Node& node);
/// The product of such weights and values, whose result may have queries before heads.
AttentionProduct product_of_values(const sdk::Node& node, const sdk::ValueInfo& weights);

}  // namespace backplane::patterns
