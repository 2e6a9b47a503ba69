// Networks quantized dynamically: DynamicQuantizeLinear -> MatMulInteger or ConvInteger -> Cast to float -> Mul by the
// product of both scales -> Add of a bias ... The product and all that follows it become one node;
// DynamicQuantizeLinear stays, since several products often read it.
#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/addend_match.hpp"
#include "plugins/cpu/rewrite/passes.hpp"
#include "plugins/cpu/rewrite/scaled_sums.hpp"

namespace backplane::cpu {
namespace {

/// Surely one element, or one for each column.
bool is_single_or_row(const WorkingGraph& graph, const std::string& value, std::int64_t columns) {
  const sdk::ValueInfo info = graph.info(value);
  return is_single(graph, value) || (info && info.rank() == 1 && info.dims()[0] == columns);
}

void fuse_product(WorkingGraph& graph, WorkNode* node) {
  const bp_tensor* b = graph.constant(node->input(1));
  const sdk::ValueInfo a = graph.info(node->input(0));
  if (b == nullptr || b->rank != 2 || b->dims[0] == 0 || !a || a.rank() < 1) return;
  const std::int64_t columns = b->dims[1];
  const std::string a_zero = node->input(2);
  const std::string b_zero = node->input(3);
  if (!a_zero.empty() && !is_single(graph, a_zero)) return;
  if (!b_zero.empty() && (!graph.is_constant(b_zero) || !is_single_or_row(graph, b_zero, columns)))
    return;
  ScaledSums sums;
  if (!sums.match(graph, node->outputs[0], [&](const std::string& scale) {
        return is_single_or_row(graph, scale, columns);
      }))
    return;
  sums.take(graph, node);
  node->domain = kPrivateDomain;
  node->op = "DynamicMatMul";
  graph.set_inputs(node,
                   {node->input(0), node->input(1), sums.a_scale, sums.b_scale, a_zero, b_zero});
  take_addends(graph, node, columns, 6, 7);
  absorb_activation(graph, node);
}

/// Images' channels are their second axis.
struct Channels {
  const WorkingGraph& graph;
  std::int64_t count;
  int rank;  // of the images

  /// Surely one element for each channel, which adds no axis to images.
  bool has_each(const std::string& value) const {
    const sdk::ValueInfo info = graph.info(value);
    if (!info || !info.is_static() || info.rank() > rank || info.rank() + 1 < rank) return false;
    const sdk::DimsView dims = info.dims();
    return sdk::element_count(dims) == count &&
           dims[static_cast<std::size_t>(info.rank() + 1 - rank)] == count;
  }
  bool has_each_or_one(const std::string& value) const {
    return is_single(graph, value) || has_each(value);
  }
};

/// ConvInteger that the kernel can do: one group, constant weights of up to 3 spatial axes.
bool is_integer_conv(const WorkingGraph& graph, const WorkNode& node) {
  const bp_tensor* w = graph.constant(node.input(1));
  const sdk::ValueInfo x = graph.info(node.input(0));
  if (w == nullptr || w->rank < 3 || w->rank > 5 || sdk::Tensor(w).size() == 0 || !x ||
      x.rank() != w->rank || node.original.get_int("group", 1) != 1)
    return false;
  const std::string& x_zero = node.input(2);
  const std::string& w_zero = node.input(3);
  if (!x_zero.empty() && !is_single(graph, x_zero)) return false;
  const bp_tensor* zero = graph.constant(w_zero);
  return w_zero.empty() || (zero != nullptr && (is_single(graph, w_zero) ||
                                                (zero->rank == 1 && zero->dims[0] == w->dims[0])));
}

/// The other operand, one for each channel, of an Add that alone reads the node's result; it becomes input `index`.
void take_channel_addend(WorkingGraph& graph, WorkNode* node, const Channels& channels,
                         std::size_t index) {
  const std::string value = node->outputs[0];
  WorkNode* addition = graph.only_consumer(value);
  if (addition == nullptr || addition->changed || !addition->is("Add")) return;
  const std::string other = addition->input(addition->input(0) == value ? 1 : 0);
  if (other == value || !channels.has_each(other)) return;
  const std::string result = addition->outputs[0];
  graph.absorb(node, addition);
  graph.set_input(node, index, other);
  graph.set_output(node, 0, result);
}

void fuse_integer_conv(WorkingGraph& graph, WorkNode* node) {
  constexpr std::size_t kBias = 6, kResidual = 7, kAddend = 8;
  const bp_tensor* w = graph.constant(node->input(1));
  const Channels channels{graph, w->dims[0], w->rank};
  graph.change(node);
  node->domain = kPrivateDomain;
  node->op = "DynamicConv";
  graph.set_inputs(node, {node->input(0), node->input(1), "", "", node->input(2), node->input(3)});
  take_channel_addend(graph, node, channels, kAddend);  // the bias of older quantizers
  ScaledSums sums;
  if (!sums.match(graph, node->outputs[0],
                  [&](const std::string& scale) { return channels.has_each_or_one(scale); }))
    return;
  sums.take(graph, node);
  node->attributes["floats"] = std::int64_t{1};
  graph.set_input(node, 2, sums.a_scale);
  graph.set_input(node, 3, sums.b_scale);
  take_channel_addend(graph, node, channels, kBias);
  take_addends(graph, node, -1, kBias, kResidual);  // no row: a bias is one for each channel
  absorb_activation(graph, node);
}

}  // namespace

void fuse_dynamic_quantization(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || node->changed) continue;
    if (node->is("MatMulInteger")) fuse_product(graph, node);
    if (node->is("ConvInteger") && is_integer_conv(graph, *node)) fuse_integer_conv(graph, node);
  }
}

}  // namespace backplane::cpu
