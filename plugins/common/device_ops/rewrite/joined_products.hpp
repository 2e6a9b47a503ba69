// Products that are one: a node of the provider's, whose results are views.
#pragma once

#include <string>
#include <vector>

#include "plugins/common/device_ops/rewrite/passes.hpp"
#include "plugins/common/patterns/joined_products.hpp"

namespace backplane::device_ops {

/// A product as a provider would compute it apart.
struct JoinableProduct {
  patterns::WeightedProduct product;
  std::string activation;           ///< after the row; part of `product.rest`
  std::vector<sdk::Node> replaced;  ///< whose work it does, the product first
  sdk::ValueInfo result;
};

/// Joins what patterns::find_joined finds, and says which products these are. Joined products become a node "JoinedMatMul" or
/// "JoinedGemm" of the private domain, which the provider has to have: of a, the weights [count, ...] and, if there are such, the rows
/// [count, step], whose first columns count; with "activation", "transB" and "origin" where they are said. What it makes lies as
/// joined_parts.hpp says, and "JoinedPart" gives each result its name. Weights are put together once, when they are first needed.
std::vector<bool> join_products(const sdk::Graph& graph,
                                const std::vector<JoinableProduct>& products, sdk::Rewrite& edit);

}  // namespace backplane::device_ops
