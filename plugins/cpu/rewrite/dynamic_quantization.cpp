// Networks quantized dynamically: DynamicQuantizeLinear -> MatMulInteger -> Cast to float -> Mul by the product of both
// scales -> Add of a bias ... The product and all that follows it become one node; DynamicQuantizeLinear stays, since
// several products often read it.
#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/addend_match.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

/// Surely one element, which adds no axis to a result.
bool is_single(const WorkingGraph& graph, const std::string& value) {
  const sdk::ValueInfo info = graph.info(value);
  if (!info || info.rank() < 0 || info.rank() > 1) return false;
  return info.rank() == 0 || info.dims()[0] == 1;
}

/// Surely one element, or one for each column.
bool is_single_or_row(const WorkingGraph& graph, const std::string& value, std::int64_t columns) {
  const sdk::ValueInfo info = graph.info(value);
  return is_single(graph, value) || (info && info.rank() == 1 && info.dims()[0] == columns);
}

/// The nodes that make floats of the sums of a MatMulInteger.
struct ScaledSums {
  WorkNode* cast = nullptr;
  WorkNode* product = nullptr;   // of the sums and the scale
  WorkNode* scales = nullptr;    // the product of both scales; null: it stays, others read it too
  std::string a_scale, b_scale;  // "": 1

  bool match(const WorkingGraph& graph, const WorkNode& node, std::int64_t columns) {
    cast = graph.only_consumer(node.outputs[0]);
    if (cast == nullptr || cast->changed || !cast->is("Cast") || !graph.is_float(cast->outputs[0]))
      return false;
    const std::string& sums = cast->outputs[0];
    product = graph.only_consumer(sums);
    if (product == nullptr || product->changed || !product->is("Mul")) return false;
    const std::string& scale = product->input(product->input(0) == sums ? 1 : 0);
    return scale != sums &&
           (match_scales(graph, scale, columns) || match_scale(graph, scale, columns));
  }

 private:
  bool match_scales(const WorkingGraph& graph, const std::string& scale, std::int64_t columns) {
    WorkNode* both = graph.producer(scale);
    if (both == nullptr || both->changed || !both->is("Mul") ||
        graph.only_consumer(scale) != product)
      return false;
    for (std::size_t i = 0; i < 2; ++i) {
      a_scale = both->input(i);
      b_scale = both->input(1 - i);
      if (!is_single(graph, a_scale) || !is_single_or_row(graph, b_scale, columns)) continue;
      scales = both;
      return true;
    }
    return false;
  }

  bool match_scale(const WorkingGraph& graph, const std::string& scale, std::int64_t columns) {
    const bool single = is_single(graph, scale);
    a_scale = single ? scale : "";
    b_scale = single ? "" : scale;
    return is_single_or_row(graph, scale, columns);
  }
};

void fuse_product(WorkingGraph& graph, WorkNode* node) {
  const bp_tensor* b = graph.constant(node->input(1));
  const sdk::ValueInfo a = graph.info(node->input(0));
  if (b == nullptr || b->rank != 2 || b->dims[0] == 0 || !a || a.rank() < 1) return;
  const std::int64_t columns = b->dims[1];
  const std::string a_zero = node->input(2);
  const std::string b_zero = node->input(3);
  if (!a_zero.empty() && !is_single(graph, a_zero)) return;
  if (!b_zero.empty() &&
      (graph.constant(b_zero) == nullptr || !is_single_or_row(graph, b_zero, columns)))
    return;
  ScaledSums sums;
  if (!sums.match(graph, *node, columns)) return;
  const std::string result = sums.product->outputs[0];
  graph.change(node);
  graph.absorb(node, sums.cast);
  graph.absorb(node, sums.product);
  if (sums.scales != nullptr) graph.remove(sums.scales, node);
  node->domain = kPrivateDomain;
  node->op = "DynamicMatMul";
  graph.set_inputs(node,
                   {node->input(0), node->input(1), sums.a_scale, sums.b_scale, a_zero, b_zero});
  graph.set_output(node, 0, result);
  take_addends(graph, node, columns, 6, 7);
  absorb_activation(graph, node);
}

}  // namespace

void fuse_dynamic_quantization(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node != nullptr && !node->changed && node->is("MatMulInteger")) fuse_product(graph, node);
  }
}

}  // namespace backplane::cpu
