#include <algorithm>
#include <cmath>

#include "plugins/common/patterns/gelu.hpp"
#include "plugins/common/patterns/normalization.hpp"
#include "plugins/common/patterns/rotation.hpp"
#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

/// The node of `op` that alone reads `value`.
WorkNode* only(const WorkingGraph& graph, const std::string& value, std::string_view op) {
  WorkNode* node = graph.only_consumer(value);
  return node != nullptr && !node->changed && node->is(op) ? node : nullptr;
}

/// A normalisation of floats whose last node this is becomes one node.
bool fuse_normalization(WorkingGraph& graph, const sdk::Node& last) {
  const patterns::DecomposedNormalization found = patterns::find_normalization(last, graph.taken());
  if (!found.x || found.x.type() != sdk::DataType::Float) return false;
  std::vector<std::string> inputs{found.x.name(), found.scale.name()};
  if (found.bias) inputs.emplace_back(found.bias.name());
  const char* const op = found.has_mean ? "LayerNormalization" : "RMSNormalization";
  graph.merge(found.nodes, last, op, std::move(inputs))->attributes["epsilon"] = found.epsilon;
  return true;
}

/// Halves of rows that are turned by angles become one node, which broadcasts the angles alone.
bool fuse_rotation(WorkingGraph& graph, const sdk::Node& last) {
  const patterns::DecomposedRotation found = patterns::find_rotation(last, graph.taken());
  if (!found.x || !patterns::same_dims(last.output(0), found.x)) return false;
  for (const sdk::ValueInfo& value : {found.x, found.cos, found.sin}) {
    if (value.type() != sdk::DataType::Float) return false;
  }
  graph.merge(found.nodes, last, "Rotate", {found.x.name(), found.cos.name(), found.sin.name()});
  return true;
}

/// The nodes around an Erf or a Tanh that make it a Gelu of floats become one node.
bool fuse_gelu(WorkingGraph& graph, const sdk::Node& gate) {
  const patterns::DecomposedGelu found = patterns::find_gelu_around(gate, graph.taken());
  if (found.nodes.empty() || found.x.type() != sdk::DataType::Float) return false;
  WorkNode* const node = graph.merge(found.nodes, found.nodes.back(),
                                     found.has_tanh ? "Activate" : "Gelu", {found.x.name()});
  if (found.has_tanh) node->set_activation({Activation::kGeluTanh, 0.0f, 0.0f});
  return true;
}

/// A constant of one element of an 8-bit type: writes it and the activation that rounds to the type.
bool zero_point(const WorkingGraph& graph, const std::string& value, Activation& activation) {
  const sdk::ValueInfo found = graph.constant_info(value);
  if (!found || sdk::element_count(found.dims()) != 1) return false;
  const bp_tensor* tensor = graph.constant(value);
  if (tensor->host_ptr == nullptr) return false;
  if (tensor->dtype == BP_UINT8) {
    activation.kind = Activation::kRoundUint8;
    activation.beta = *static_cast<const uint8_t*>(tensor->host_ptr);
  } else if (tensor->dtype == BP_INT8) {
    activation.kind = Activation::kRoundInt8;
    activation.beta = *static_cast<const int8_t*>(tensor->host_ptr);
  } else {
    return false;
  }
  return true;
}

/// QuantizeLinear and the DequantizeLinear that alone reads it, of one scale and zero point per tensor:
/// numbers are rounded to what 8 bits can hold and stay float.
WorkNode* match_rounding(const WorkingGraph& graph, const WorkNode& quantize,
                         Activation& rounding) {
  if (!quantize.is("QuantizeLinear") || !graph.is_float(quantize.input(0))) return nullptr;
  WorkNode* dequantize = only(graph, quantize.outputs[0], "DequantizeLinear");
  if (dequantize == nullptr || dequantize->input(0) != quantize.outputs[0]) return nullptr;
  if (!graph.is_float(dequantize->outputs[0])) return nullptr;
  Activation back;
  if (!graph.scalar(quantize.input(1), rounding.alpha) ||
      !graph.scalar(dequantize->input(1), back.alpha) ||
      !zero_point(graph, quantize.input(2), rounding) ||
      !zero_point(graph, dequantize->input(2), back)) {
    return nullptr;
  }
  const bool same =
      rounding.kind == back.kind && rounding.alpha == back.alpha && rounding.beta == back.beta;
  return same ? dequantize : nullptr;
}

/// The first node stands for all of them, at the place of the last one.
WorkNode* merge(WorkingGraph& graph, const std::vector<WorkNode*>& nodes, const char* op,
                std::vector<std::string> inputs) {
  WorkNode* node = nodes.front();
  const std::string result = nodes.back()->outputs[0];
  graph.change(node);
  for (std::size_t i = 1; i < nodes.size(); ++i) graph.absorb(node, nodes[i]);
  node->domain = kPrivateDomain;
  node->op = op;
  node->attributes.clear();
  graph.set_inputs(node, std::move(inputs));
  graph.set_output(node, 0, result);
  return node;
}

/// The node that alone reads `value`, and makes a sixth of it.
WorkNode* sixth_of(const WorkingGraph& graph, const std::string& value) {
  constexpr float kSixth = 1.0f / 6.0f, kNear = 1e-6f;
  WorkNode* const node = graph.only_consumer(value);
  std::string x;
  float number = 0;
  if (node == nullptr) return nullptr;
  if (takes_number(graph, *node, "Div", x, number)) return number == 6.0f ? node : nullptr;
  const bool is_product = takes_number(graph, *node, "Mul", x, number);
  return is_product && std::fabs(number - kSixth) < kNear ? node : nullptr;
}

/// Clip(x + 3, 0, 6) / 6 of floats, and x times that, with the sixth taken before or after the product, become an Activate:
/// HardSigmoid and HardSwish as exporters write them that do not have these.
bool fuse_hard_gate(WorkingGraph& graph, WorkNode* clip) {
  Activation bounds;
  if (!clip->is("Clip") || !is_activation(graph, *clip, clip->input(0), bounds) ||
      bounds.alpha != 0.0f || bounds.beta != 6.0f)
    return false;
  WorkNode* const shift = graph.producer(clip->input(0));
  std::string x;
  float number = 0;
  if (shift == nullptr || !takes_number(graph, *shift, "Add", x, number) || number != 3.0f ||
      !graph.is_float(x) || graph.only_consumer(shift->outputs[0]) != clip)
    return false;
  const auto product_of = [&](const WorkNode& gate) {
    WorkNode* const product = only(graph, gate.outputs[0], "Mul");
    const bool is_with_x = product != nullptr && (product->input(0) == x || product->input(1) == x);
    return is_with_x ? product : nullptr;
  };
  std::vector<WorkNode*> nodes{shift, clip};
  Activation activation{Activation::kHardSwish, 0.0f, 0.0f};
  WorkNode* product = product_of(*clip);
  if (product != nullptr) {
    nodes.insert(nodes.end(), {product, sixth_of(graph, product->outputs[0])});
  } else {
    nodes.push_back(sixth_of(graph, clip->outputs[0]));
    product = nodes.back() != nullptr ? product_of(*nodes.back()) : nullptr;
    if (product != nullptr) nodes.push_back(product);
    if (product == nullptr) activation = {Activation::kHardSigmoid, 1.0f / 6.0f, 0.5f};
  }
  if (std::find(nodes.begin(), nodes.end(), nullptr) != nodes.end()) return false;
  merge(graph, nodes, "Activate", {x})->set_activation(activation);
  return true;
}

/// The x of a product with Sigmoid(x), or with Sigmoid(alpha * x), whose node `scaling` then is; empty where it is none.
std::string gated_value(const WorkingGraph& graph, const WorkNode& sigmoid, const WorkNode& product,
                        float& alpha, WorkNode*& scaling) {
  const std::string& gate = sigmoid.outputs[0];
  const std::string& x = product.input(product.input(0) == gate ? 1 : 0);
  alpha = 1;
  scaling = nullptr;
  if (x == sigmoid.input(0)) return x;
  WorkNode* const factor = graph.producer(sigmoid.input(0));
  if (factor == nullptr || factor->changed || !factor->is("Mul") ||
      graph.only_consumer(factor->outputs[0]) != &sigmoid)
    return "";
  const std::size_t at = factor->input(0) == x ? 1 : 0;
  const sdk::ValueInfo info = graph.info(x);
  if (factor->input(1 - at) != x || !info ||
      !patterns::number_beside(graph.info(factor->input(at)), info, alpha))
    return "";
  scaling = factor;
  return x;
}

/// x * Sigmoid(x) and x * Sigmoid(alpha * x) of floats become one node, which goes through memory once.
void fuse_swish(WorkingGraph& graph, WorkNode* sigmoid) {
  if (!sigmoid->is("Sigmoid") || sigmoid->changed || !graph.is_float(sigmoid->input(0))) return;
  WorkNode* const product = only(graph, sigmoid->outputs[0], "Mul");
  if (product == nullptr) return;
  float alpha = 1;
  WorkNode* scaling = nullptr;
  const std::string x = gated_value(graph, *sigmoid, *product, alpha, scaling);
  if (x.empty()) return;
  std::vector<WorkNode*> nodes{sigmoid, product};
  if (scaling != nullptr) nodes.insert(nodes.begin(), scaling);
  merge(graph, nodes, "Swish", {x})->attributes["alpha"] = alpha;
}

}  // namespace

void fuse_gates(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    if (graph.at(i) != nullptr) fuse_swish(graph, graph.at(i));
  }
}

void fuse_decomposed(WorkingGraph& graph) {
  // From the end, so that a bias is met before the product that it is added to.
  for (std::size_t i = graph.size(); i-- > 0;) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || node->changed || fuse_normalization(graph, node->original) ||
        fuse_rotation(graph, node->original) || fuse_gelu(graph, node->original) ||
        fuse_hard_gate(graph, node))
      continue;
    Activation rounding;
    if (WorkNode* dequantize = match_rounding(graph, *node, rounding)) {
      merge(graph, {node, dequantize}, "Activate", {node->input(0)})->set_activation(rounding);
    }
  }
}

}  // namespace backplane::cpu
