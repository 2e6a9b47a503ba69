#include <utility>

#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/weight_attributes.hpp"
#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/addend_match.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

/// A product finishes row by row: an activation of fewer columns than a vector has costs what one of a whole vector costs, for each
/// row, and a node of its own is faster. 1,000 sigmoids of one column took 30 us in the product, 3 us apart.
constexpr std::int64_t kColumnsOfActivation = 8;

void absorb_activation_of(WorkingGraph& graph, WorkNode* node, std::int64_t columns) {
  if (columns < 0 || columns >= kColumnsOfActivation) absorb_activation(graph, node);
}

void fuse_matmul(WorkingGraph& graph, WorkNode* node) {
  const sdk::ValueInfo b = graph.constant_info(node->input(1));
  if (!b || b.rank() != 2) return;
  const std::int64_t columns = b.dims()[1];
  const bool before = node->changed;
  take_addends(graph, node, columns, 2, 3);
  absorb_activation_of(graph, node, columns);
  if (!before && node->changed) node->domain = kPrivateDomain;
}

/// A product that reads B turned reads what is turned: rows of B are then the columns that it wants.
void take_transpose(WorkingGraph& graph, WorkNode* node) {
  WorkNode* const turn = graph.producer(node->input(1));
  if (turn == nullptr || turn->changed || !turn->is("Transpose") ||
      graph.only_consumer(node->input(1)) != node)
    return;
  const sdk::ValueInfo b = graph.info(node->input(1));
  if (!b || b.rank() < 2) return;
  std::vector<int64_t> order(static_cast<std::size_t>(b.rank()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::swap(order[order.size() - 2], order[order.size() - 1]);
  // Left out, all axes are reversed.
  const bool swaps =
      turn->original.has("perm") ? turn->original.get_ints("perm") == order : order.size() == 2;
  if (!swaps) return;
  const std::string from = turn->input(0);
  graph.remove(turn, node);
  graph.set_input(node, 1, from);
  node->domain = kPrivateDomain;
  node->attributes["trans_b"] = int64_t{1};
}

/// Of weights of 4 or 8 bits; the loop over the nodes may come to one again.
void fuse_narrow_matmul(WorkingGraph& graph, WorkNode* node) {
  const sdk::ValueInfo y = graph.info(node->outputs[0]);
  if (!y || y.rank() < 1 || node->attributes.count(kActivation) != 0) return;
  const bool before = node->changed;
  take_addends(graph, node, y.dims().back(), 5, 6);
  absorb_activation_of(graph, node, y.dims().back());
  if (!before && node->changed) node->domain = kPrivateDomain;
}

/// Whether its weights are halves; the loop over the nodes may come to such a one again.
bool has_half_weights(const WorkNode& node) {
  return node.domain == kPrivateDomain && node.attributes.count(kWeightType) != 0 &&
         node.attributes.count(kActivation) == 0;
}

void fuse_gemm(WorkingGraph& graph, WorkNode* node) {
  const sdk::ValueInfo y = graph.info(node->outputs[0]);
  absorb_activation_of(graph, node, y && y.rank() == 2 ? y.dims()[1] : -1);
  if (node->changed) node->domain = kPrivateDomain;
}

/// A product of two computed matrices takes over a scaling by a constant.
void fuse_scale(WorkingGraph& graph, WorkNode* node) {
  if (graph.is_constant(node->input(1))) return;
  WorkNode* next = graph.only_consumer(node->outputs[0]);
  if (next == nullptr || next->changed || next->inputs.size() != 2) return;
  const bool first = next->input(0) == node->outputs[0];
  float factor = 0;
  if (!graph.scalar(next->input(first ? 1 : 0), factor)) return;
  if (next->is("Div") && first && factor != 0.0f) {
    factor = 1.0f / factor;
  } else if (!next->is("Mul")) {
    return;
  }
  if (!graph.same_dims(node->outputs[0], next->outputs[0])) return;
  const std::string result = next->outputs[0];
  graph.absorb(node, next);
  graph.set_output(node, 0, result);
  node->domain = kPrivateDomain;
  node->attributes["alpha"] = factor;
}

/// Softmax over the last axis takes over the addition before it (an attention mask).
void fuse_softmax(WorkingGraph& graph, WorkNode* node) {
  const sdk::ValueInfo x = graph.info(node->input(0));
  if (!x || x.rank() < 1) return;
  const int64_t axis =
      node->original.get_int("axis", node->original.since_version() >= 13 ? -1 : 1);
  if (axis != -1 && axis != x.rank() - 1) return;
  WorkNode* addition = graph.producer(node->input(0));
  if (addition == nullptr || addition->changed || !addition->is("Add") ||
      graph.only_consumer(node->input(0)) != node)
    return;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string value = addition->input(i);
    const std::string addend = addition->input(1 - i);
    const sdk::ValueInfo mask = graph.info(addend);
    if (!mask || mask.rank() < 1 || value == addend || !graph.same_dims(value, node->input(0)))
      continue;
    if (!patterns::same_size(x, x.rank() - 1, mask, mask.rank() - 1)) continue;
    graph.remove(addition, node);
    node->domain = kPrivateDomain;
    node->attributes.clear();
    graph.set_inputs(node, {value, addend});
    return;
  }
}

}  // namespace

void fuse_products(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || !graph.is_float(node->outputs[0])) continue;
    if (node->is("MatMulNBits", kPrivateDomain) || node->is("MatMulNBits", "com.microsoft"))
      fuse_narrow_matmul(graph, node);
    const bool has_halves = has_half_weights(*node);
    if (node->changed && !has_halves) continue;
    const std::string domain = has_halves ? kPrivateDomain : "";
    if (node->is("MatMul", domain)) {
      fuse_matmul(graph, node);
      fuse_scale(graph, node);
      take_transpose(graph, node);
    }
    if (node->is("Softmax")) fuse_softmax(graph, node);
    if (node->is("Gemm", domain)) fuse_gemm(graph, node);
  }
}

}  // namespace backplane::cpu
