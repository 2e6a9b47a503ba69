#include "plugins/common/patterns/joined_products.hpp"

#include <map>

namespace backplane::patterns {
namespace {

bool is_plain(const sdk::Node& node) {
  if (node.is("MatMul")) return true;
  return node.is("Gemm") && node.get_int("transA", 0) == 0 && node.get_float("alpha", 1) == 1 &&
         (!node.input(2) || node.get_float("beta", 1) == 1);
}

bool is_transposed(const sdk::Node& node) {
  return node.is("Gemm") && node.get_int("transB", 0) != 0;
}

/// A matrix that this product alone reads: of one that others read, too, the device would need a second copy.
bool is_own_matrix(const sdk::ValueInfo& weights) {
  return weights && weights.is_constant() && weights.is_static() && weights.rank() == 2 &&
         sdk::element_count(weights.dims()) > 0 && !weights.is_output() &&
         weights.consumer_count() == 1;
}

bool is_row(const sdk::ValueInfo& bias, const WeightedProduct& product) {
  const sdk::ValueInfo weights = product.node.input(1);
  const std::int64_t columns = weights.dims()[is_transposed(product.node) ? 0 : 1];
  return bias.is_constant() && bias.is_static() && bias.rank() > 0 &&
         bias.type() == weights.type() && sdk::element_count(bias.dims()) == columns &&
         bias.dims().back() == columns;
}

/// What products that are one have in common; empty of one that stays apart.
std::string common_of(const WeightedProduct& product) {
  const sdk::ValueInfo a = product.node.input(0), weights = product.node.input(1);
  if (!is_plain(product.node) || !a || a.is_constant() || !is_own_matrix(weights) ||
      (product.bias && !is_row(product.bias, product)))
    return "";
  return sdk::message(a.name(), '\n', product.node.op_type(),
                      is_transposed(product.node) ? " t" : "", '\n',
                      static_cast<int>(weights.type()), ' ', weights.dims()[0], 'x',
                      weights.dims()[1], product.bias ? " row" : "", '\n', product.rest);
}

}  // namespace

std::vector<std::vector<std::size_t>> with_equal(const std::vector<std::string>& texts) {
  std::vector<std::vector<std::size_t>> all;
  std::map<std::string, std::size_t> open;  // the place in `all`
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    const auto found = open.find(texts[i]);
    if (found != open.end() && all[found->second].size() < kMostJoined) {
      all[found->second].push_back(i);
      continue;
    }
    open[texts[i]] = all.size();
    all.push_back({i});
  }
  std::vector<std::vector<std::size_t>> joined;
  for (const std::vector<std::size_t>& each : all) {
    if (each.size() > 1) joined.push_back(each);
  }
  return joined;
}

std::string others_of(const std::vector<sdk::Node>& nodes, const sdk::Node& one) {
  std::string text;
  for (const sdk::Node& node : nodes) {
    if (node == one) continue;
    if (!text.empty()) text += " and ";
    text += sdk::message('\'', node.name(), '\'');
  }
  return text;
}

std::vector<std::vector<std::size_t>> find_joined(const std::vector<WeightedProduct>& products) {
  std::vector<std::string> common;
  for (const WeightedProduct& product : products) common.push_back(common_of(product));
  return with_equal(common);
}

}  // namespace backplane::patterns
