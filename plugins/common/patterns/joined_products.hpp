// Products that can be one, because they multiply one value by weights of one size: queries, keys and values of an attention, or
// a gate and what it gates.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plugins/common/patterns/nodes.hpp"

namespace backplane::patterns {

/// A MatMul or Gemm, and what a provider lets it do besides.
struct WeightedProduct {
  sdk::Node node;
  sdk::ValueInfo bias;  ///< the row that is added; empty: none
  std::string rest;     ///< all else that has to be the same of products that are one
};

/// The most products that become one: their results lie in one value, which takes memory until the last of them is read. More than
/// this, as the products of a decoder's layers with what an encoder made, are not read together.
inline constexpr std::size_t kMostJoined = 4;

/// Places of equal texts, two to kMostJoined each time, in their order; those of empty ones stay apart.
std::vector<std::vector<std::size_t>> with_equal(const std::vector<std::string>& texts);

/// "'b' and 'c'": the names of nodes but for one.
std::string others_of(const std::vector<sdk::Node>& nodes, const sdk::Node& one);

/// Which of the products become one, by their places: two to kMostJoined each time, in the order of the products. They are of constant
/// weights that nobody else reads, so that each weight is needed in one place alone, and all or none of them add a constant row.
/// Nothing but the value that they multiply stands before them, so joining them makes no cycle.
std::vector<std::vector<std::size_t>> find_joined(const std::vector<WeightedProduct>& products);

}  // namespace backplane::patterns
