#include <cmath>

#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

/// The node of `op` that alone reads `value`.
WorkNode* only(const WorkingGraph& graph, const std::string& value, std::string_view op) {
  WorkNode* node = graph.only_consumer(value);
  return node != nullptr && !node->changed && node->is(op) ? node : nullptr;
}

/// The other one of a node's two inputs; "" when `value` is not among them.
std::string other_input(const WorkNode& node, const std::string& value) {
  if (node.inputs.size() != 2) return "";
  if (node.inputs[0] == value) return node.inputs[1];
  return node.inputs[1] == value ? node.inputs[0] : "";
}

bool other_is(const WorkingGraph& graph, const WorkNode& node, const std::string& value,
              float expected) {
  float found = 0;
  const std::string other = other_input(node, value);
  return !other.empty() && graph.scalar(other, found) &&
         std::fabs(found - expected) <= 1e-4f * std::fabs(expected);
}

/// Whether the node is a ReduceMean over the last axis that keeps it.
bool is_last_mean(const WorkingGraph& graph, const WorkNode& node) {
  std::vector<int64_t> axes;
  if (!node.is("ReduceMean") || node.changed || node.original.get_int("keepdims", 1) == 0 ||
      !graph.reduced_axes(node, axes))
    return false;
  const int rank = graph.info(node.input(0)) ? graph.info(node.input(0)).rank() : -1;
  return rank > 0 && axes.size() == 1 && (axes[0] == -1 || axes[0] == rank - 1);
}

/// A constant vector over the last axis of `x`.
bool is_last_vector(const WorkingGraph& graph, const std::string& value, const std::string& x) {
  const bp_tensor* tensor = value.empty() ? nullptr : graph.constant(value);
  const sdk::DimsView dims = graph.info(x).dims();
  return tensor != nullptr && tensor->dtype == BP_FLOAT && tensor->rank == 1 && !dims.empty() &&
         tensor->dims[0] == dims.back();
}

/// The nodes of (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * gamma + beta, from the first mean on.
struct LayerNormMatch {
  std::vector<WorkNode*> nodes;
  std::string x, gamma, beta;
  float epsilon = 0;

  bool match(const WorkingGraph& graph, WorkNode* mean) {
    if (!is_last_mean(graph, *mean) || !graph.is_float(mean->input(0))) return false;
    x = mean->input(0);
    WorkNode* centred = only(graph, mean->outputs[0], "Sub");
    if (centred == nullptr || centred->inputs != std::vector<std::string>{x, mean->outputs[0]})
      return false;
    const auto [square, quotient] = readers_of(graph, centred->outputs[0]);
    if (square == nullptr || quotient == nullptr) return false;
    WorkNode* variance = graph.only_consumer(square->outputs[0]);
    if (variance == nullptr || !is_last_mean(graph, *variance)) return false;
    WorkNode* sum = only(graph, variance->outputs[0], "Add");
    if (sum == nullptr || !graph.scalar(other_input(*sum, variance->outputs[0]), epsilon))
      return false;
    WorkNode* root = only(graph, sum->outputs[0], "Sqrt");
    if (root == nullptr || graph.only_consumer(root->outputs[0]) != quotient ||
        quotient->input(1) != root->outputs[0])
      return false;
    WorkNode* scaled = only(graph, quotient->outputs[0], "Mul");
    if (scaled == nullptr) return false;
    gamma = other_input(*scaled, quotient->outputs[0]);
    if (!is_last_vector(graph, gamma, x)) return false;
    nodes = {mean, centred, square, variance, sum, root, quotient, scaled};
    WorkNode* shifted = only(graph, scaled->outputs[0], "Add");
    const std::string addend = shifted != nullptr ? other_input(*shifted, scaled->outputs[0]) : "";
    if (is_last_vector(graph, addend, x)) {
      beta = addend;
      nodes.push_back(shifted);
    }
    return true;
  }

 private:
  /// The nodes that square the distance from the mean and divide it; null where that is not all that is done.
  static std::pair<WorkNode*, WorkNode*> readers_of(const WorkingGraph& graph,
                                                    const std::string& distance) {
    WorkNode* square = nullptr;
    WorkNode* quotient = nullptr;
    std::size_t readers = 0;
    for (WorkNode* reader : graph.consumers(distance)) {
      ++readers;
      if (reader->is("Div") && reader->input(0) == distance) quotient = reader;
      if (reader->is("Pow") || reader->is("Mul")) square = reader;
    }
    if (square == nullptr || square->input(0) != distance || graph.is_output(distance)) return {};
    const bool power =
        square->is("Pow") && readers == 2 && other_is(graph, *square, distance, 2.0f);
    const bool product = square->is("Mul") && readers == 3 && square->input(1) == distance;
    if (!power && !product) return {};
    return {square, quotient};
  }
};

/// The nodes of x / sqrt(mean(x^2) + epsilon) * gamma around the mean.
struct RmsNormMatch {
  std::vector<WorkNode*> nodes;
  std::string x, gamma;
  float epsilon = 0;

  bool match(const WorkingGraph& graph, WorkNode* mean) {
    if (!is_last_mean(graph, *mean)) return false;
    WorkNode* square = graph.producer(mean->input(0));
    if (square == nullptr || square->changed || graph.only_consumer(mean->input(0)) != mean)
      return false;
    x = square->input(0);
    const bool is_square = square->is("Pow") ? other_is(graph, *square, x, 2.0f)
                                             : square->is("Mul") && square->input(1) == x;
    if (!is_square || !graph.is_float(x)) return false;
    WorkNode* sum = only(graph, mean->outputs[0], "Add");
    if (sum == nullptr || !graph.scalar(other_input(*sum, mean->outputs[0]), epsilon)) return false;
    WorkNode* root = only(graph, sum->outputs[0], "Sqrt");
    if (root == nullptr) return false;
    nodes = {square, mean, sum, root};
    WorkNode* scaled = quotient(graph, root->outputs[0]);
    WorkNode* weighted = scaled != nullptr ? only(graph, scaled->outputs[0], "Mul") : nullptr;
    if (weighted == nullptr) return false;
    gamma = other_input(*weighted, scaled->outputs[0]);
    nodes.insert(nodes.end(), {scaled, weighted});
    return is_last_vector(graph, gamma, x);
  }

 private:
  /// The node that makes x / root: by itself, or by way of 1 / root.
  WorkNode* quotient(const WorkingGraph& graph, const std::string& root) {
    WorkNode* next = graph.only_consumer(root);
    if (next == nullptr || next->changed) return nullptr;
    if (next->is("Div") && next->input(0) == x) return next;
    float one = 0;
    const bool inverts =
        next->is("Reciprocal") || (next->is("Div") && graph.scalar(next->input(0), one) &&
                                   one == 1.0f && next->input(1) == root);
    if (!inverts) return nullptr;
    nodes.push_back(next);
    WorkNode* scaled = only(graph, next->outputs[0], "Mul");
    return scaled != nullptr && other_input(*scaled, next->outputs[0]) == x ? scaled : nullptr;
  }
};

/// The nodes of x * (1 + erf(x / sqrt(2))) / 2 around an Erf, in either order of the products.
struct GeluMatch {
  std::vector<WorkNode*> nodes;
  std::string x;

  bool match(const WorkingGraph& graph, WorkNode* erf) {
    if (!erf->is("Erf") || !graph.is_float(erf->input(0))) return false;
    WorkNode* inner = graph.producer(erf->input(0));
    if (inner == nullptr || graph.only_consumer(erf->input(0)) != erf) return false;
    if (inner->is("Div") && other_is(graph, *inner, inner->input(0), std::sqrt(2.0f))) {
      x = inner->input(0);
    } else if (inner->is("Mul")) {
      for (const std::string& value : inner->inputs) {
        if (other_is(graph, *inner, value, std::sqrt(0.5f))) x = value;
      }
    }
    if (x.empty() || graph.constant(x) != nullptr) return false;
    WorkNode* sum = only(graph, erf->outputs[0], "Add");
    if (sum == nullptr || !other_is(graph, *sum, erf->outputs[0], 1.0f)) return false;
    WorkNode* product = only(graph, sum->outputs[0], "Mul");
    if (product == nullptr) return false;
    const std::string factor = other_input(*product, sum->outputs[0]);
    if (factor == x) {
      WorkNode* half = only(graph, product->outputs[0], "Mul");
      if (half == nullptr || !other_is(graph, *half, product->outputs[0], 0.5f)) return false;
      nodes = {inner, erf, sum, product, half};
      return true;
    }
    WorkNode* half = graph.producer(factor);
    if (half == nullptr || !half->is("Mul") || !other_is(graph, *half, x, 0.5f) ||
        graph.only_consumer(factor) != product)
      return false;
    nodes = {inner, half, erf, sum, product};
    return true;
  }
};

/// A constant of one element of an 8-bit type: writes it and the activation that rounds to the type.
bool zero_point(const WorkingGraph& graph, const std::string& value, Activation& activation) {
  const bp_tensor* tensor = value.empty() ? nullptr : graph.constant(value);
  if (tensor == nullptr || tensor->host_ptr == nullptr || sdk::Tensor(tensor).size() != 1) {
    return false;
  }
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

}  // namespace

void fuse_decomposed(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || node->changed) continue;
    LayerNormMatch norm;
    if (norm.match(graph, node)) {
      WorkNode* merged =
          merge(graph, norm.nodes, "LayerNormalization", {norm.x, norm.gamma, norm.beta});
      merged->attributes["epsilon"] = norm.epsilon;
      continue;
    }
    RmsNormMatch rms;
    if (rms.match(graph, node)) {
      merge(graph, rms.nodes, "RMSNormalization", {rms.x, rms.gamma})->attributes["epsilon"] =
          rms.epsilon;
      continue;
    }
    GeluMatch gelu;
    if (gelu.match(graph, node)) {
      merge(graph, gelu.nodes, "Gelu", {gelu.x});
      continue;
    }
    Activation rounding;
    if (WorkNode* dequantize = match_rounding(graph, *node, rounding)) {
      merge(graph, {node, dequantize}, "Activate", {node->input(0)})->set_activation(rounding);
    }
  }
}

}  // namespace backplane::cpu
