#include "plugins/common/patterns/attention_products.hpp"

#include <array>
#include <optional>
#include <set>

#include "plugins/common/einsum_node.hpp"

namespace backplane::patterns {
namespace {

/// The letters of an Einsum's two terms and of its result; none where there are others, or any stands for several axes.
using Terms = std::array<std::string, 3>;
std::optional<Terms> terms_of(const sdk::Node& node) {
  try {
    const common::EinsumEquation equation(node);
    if (equation.term_count() != 2) return std::nullopt;
    Terms letters;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const common::EinsumTerm& term = i < 2 ? equation.term(i) : equation.output();
      if (term.ellipsis >= 0) return std::nullopt;
      letters[i] = term.letters;
    }
    return letters;
  } catch (const sdk::Error&) {  // The operator says why, where it is prepared.
    return std::nullopt;
  }
}

/// How a term lies that has these letters of batches, heads and positions, and then one more; empty where it has others.
std::string axes_of(const std::string& term, const std::string& rows, char last) {
  if (term == rows + last) return "bhs";
  if (rows.size() == 3 && term == std::string{rows[0], rows[2], rows[1], last}) return "bsh";
  return "";
}

bool are_distinct(const std::string& letters) {
  return std::set<char>(letters.begin(), letters.end()).size() == letters.size();
}

/// Einsum repeats what has one element along a subscript that it sums, which an attention does not.
std::string why_repeated(const sdk::ValueInfo& left, const sdk::ValueInfo& right, int rank,
                         int axis) {
  if (left.rank() == rank && right.rank() == rank && same_size(left, rank - 1, right, axis))
    return "";
  return "its Einsum sums along axes that are not known to be of one size";
}

}  // namespace

AttentionProduct product_of_keys(const sdk::Node& node) {
  AttentionProduct product;
  if (node && node.is("MatMul")) {
    product.node = node;
    product.left.value = node.input(0);
    product.right.value = node.input(1);
  }
  if (!node || !node.is("Einsum")) return product;
  const std::optional<Terms> terms = terms_of(node);
  if (!terms) return product;
  const std::string& result = (*terms)[2];
  if ((result.size() != 3 && result.size() != 4) || (*terms)[0].empty()) return product;
  const std::string outer = result.substr(0, result.size() - 2);
  const char query = result[result.size() - 2], key = result.back(), width = (*terms)[0].back();
  if (!are_distinct(result + width)) return product;
  for (const std::size_t left : {0, 1}) {
    product.left.axes = axes_of((*terms)[left], outer + query, width);
    product.right.axes = axes_of((*terms)[1 - left], outer + key, width);
    if (product.left.axes.empty() || product.right.axes.empty()) continue;
    product.node = node;
    product.left.value = node.input(left);
    product.right.value = node.input(1 - left);
    product.has_columns = false;
    const int rank = static_cast<int>(result.size());
    product.why = why_repeated(product.left.value, product.right.value, rank, rank - 1);
    break;
  }
  return product;
}

AttentionProduct product_of_values(const sdk::Node& node, const sdk::ValueInfo& weights) {
  AttentionProduct product;
  if (!node || (!node.is("MatMul") && !node.is("Einsum"))) return product;
  const std::size_t left = node.input(0) == weights ? 0 : 1;
  product.left.value = weights;
  product.right.value = node.input(1 - left);
  if (node.is("MatMul")) {
    if (left == 0) product.node = node;
    return product;
  }
  const std::optional<Terms> terms = terms_of(node);
  if (!terms) return product;
  const std::string& read = (*terms)[left];
  const std::string& result = (*terms)[2];
  if ((read.size() != 3 && read.size() != 4) || result.empty()) return product;
  const std::string outer = read.substr(0, read.size() - 2);
  const char query = read[read.size() - 2], key = read.back(), width = result.back();
  if (!are_distinct(read + width)) return product;
  product.right.axes = axes_of((*terms)[1 - left], outer + key, width);
  product.axes = axes_of(result, outer + query, width);
  if (product.right.axes.empty() || product.axes.empty()) return product;
  product.node = node;
  const int rank = static_cast<int>(read.size());
  product.why =
      why_repeated(weights, product.right.value, rank, product.right.axes == "bhs" ? rank - 2 : 1);
  return product;
}

}  // namespace backplane::patterns
