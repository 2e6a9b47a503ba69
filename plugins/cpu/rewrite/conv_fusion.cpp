#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/channel_affine.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

/// Pixels are finished one by one: an activation of fewer channels than a vector has is faster as a node of its own, unless it
/// is done in registers. See product_fusion.cpp.
constexpr int64_t kChannelsOfActivation = 8;

/// A Conv or ConvTranspose that the channels-last kernels can do: float, constant weights, up to 3 spatial axes.
bool is_fusable_conv(const WorkingGraph& graph, const WorkNode& node) {
  if (!node.is("Conv") && !node.is("ConvTranspose")) return false;
  if (node.changed || !graph.is_float(node.input(0))) return false;
  const sdk::ValueInfo w = graph.constant_info(node.input(1));
  if (!w || w.type() != sdk::DataType::Float || w.rank() < 3 || w.rank() > 5) return false;
  const int64_t groups = node.original.get_int("group", 1);
  if (node.op == "ConvTranspose" && (groups < 1 || groups > w.dims()[0])) return false;
  const std::string& bias = node.input(2);
  return bias.empty() || graph.is_constant(bias);
}

/// An addition of another value of the same dims becomes the node's input `index`.
bool take_residual(WorkingGraph& graph, WorkNode* node, std::size_t index) {
  const std::string value = node->outputs[0];
  WorkNode* next = graph.only_consumer(value);
  if (next == nullptr || next->changed || next->inputs.size() != 2 ||
      !(next->is("Add") || next->is("Sum")))
    return false;
  const std::string other = next->input(next->input(0) == value ? 1 : 0);
  const std::string result = next->outputs[0];
  if (other == value || graph.is_constant(other) || !graph.same_dims(value, other)) return false;
  graph.absorb(node, next);
  graph.set_input(node, index, other);
  graph.set_output(node, 0, result);
  return true;
}

void fuse_conv(WorkingGraph& graph, WorkNode* node) {
  const std::string base = node->original.name();
  const sdk::DimsView w = graph.info(node->input(1)).dims();
  const bool transposed = node->op == "ConvTranspose";
  const int64_t channels = transposed ? w[1] * node->original.get_int("group", 1) : w[0];
  graph.change(node);
  node->domain = kPrivateDomain;
  ChannelAffine affine(channels);
  if (!node->input(2).empty()) affine.start_with_bias(node->input(2));
  const bool biased = !affine.empty();
  const std::size_t replaced = node->replaced.size();
  affine.take_steps(graph, node);
  if (node->replaced.size() > replaced) {
    if (affine.scales()) graph.set_input(node, 4, affine.add_scale(graph, base));
    graph.set_input(node, 2, affine.add_shift(graph, base));
  } else if (!biased) {
    graph.set_input(node, 2, "");
  }
  if (!transposed) take_residual(graph, node, 3);
  const std::optional<ActivationMatch> match = match_activation(graph, node->outputs[0]);
  const bool fills_vectors = channels >= kChannelsOfActivation;
  if (match && (match->activation.in_registers() || fills_vectors))
    absorb_activation(graph, node, fills_vectors);
}

/// Per-channel steps that no convolution precedes, with the activation after them: one ScaleShift node.
void fuse_scale_shift(WorkingGraph& graph, WorkNode* node) {
  if (node->changed || node->domain != "" || !graph.is_float(node->input(0))) return;
  if (node->op != "BatchNormalization") return;
  const sdk::ValueInfo x = graph.info(node->input(0));
  if (x.rank() < 3 || x.dims()[1] < 0) return;
  ChannelAffine affine(x.dims()[1]);
  if (!affine.take(graph, *node, node->input(0))) return;
  const std::string base = node->original.name();
  graph.change(node);
  node->domain = kPrivateDomain;
  node->op = "ScaleShift";
  node->attributes.clear();
  node->outputs.resize(1);
  affine.take_steps(graph, node);
  graph.set_inputs(node,
                   {node->input(0), affine.add_scale(graph, base), affine.add_shift(graph, base)});
  absorb_activation(graph, node);
}

/// Add, or Sum of two, of equal dims and an activation after it: one node.
void fuse_add(WorkingGraph& graph, WorkNode* node) {
  if (node->changed || node->inputs.size() != 2 || !(node->is("Add") || node->is("Sum"))) return;
  if (!graph.is_float(node->input(0)) || !graph.same_dims(node->input(0), node->input(1))) return;
  if (graph.is_constant(node->input(0)) || graph.is_constant(node->input(1))) return;
  if (!match_activation(graph, node->outputs[0])) return;
  graph.change(node);
  node->domain = kPrivateDomain;
  node->op = "Add";
  node->attributes.clear();
  absorb_activation(graph, node);
}

}  // namespace

void fuse_convolutions(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node != nullptr && is_fusable_conv(graph, *node)) fuse_conv(graph, node);
  }
  for (std::size_t i = 0; i < graph.size(); ++i) {
    if (graph.at(i) != nullptr) fuse_scale_shift(graph, graph.at(i));
    if (graph.at(i) != nullptr) fuse_add(graph, graph.at(i));
  }
}

}  // namespace backplane::cpu
