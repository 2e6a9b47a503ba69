#include "plugins/cpu/rewrite/activation_match.hpp"

#include <cmath>
#include <limits>

namespace backplane::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool near(float a, float b) { return std::fabs(a - b) < 1e-6f; }

/// Clip's bounds, which are attributes up to version 6 and constant inputs later.
bool clip_bounds(const WorkingGraph& graph, const WorkNode& node, Activation& activation) {
  if (node.original.since_version() < 11) {
    activation.alpha = node.original.get_float("min", -kInfinity);
    activation.beta = node.original.get_float("max", kInfinity);
    return true;
  }
  activation.alpha = -kInfinity;
  activation.beta = kInfinity;
  if (!node.input(1).empty() && !graph.scalar(node.input(1), activation.alpha)) return false;
  return node.input(2).empty() || graph.scalar(node.input(2), activation.beta);
}

}  // namespace

bool is_activation(const WorkingGraph& graph, const WorkNode& node, const std::string& value,
                   Activation& activation) {
  if (node.input(0) != value) return false;
  if (node.is("Gelu", kPrivateDomain)) {
    activation.kind = Activation::kGelu;
    return true;
  }
  if (node.is("Activate", kPrivateDomain)) {
    activation = node.activation();
    return true;
  }
  if (node.is("Swish", kPrivateDomain)) {
    activation = {Activation::kSilu, 0.0f, 0.0f};
    return std::get<float>(node.attributes.at("alpha")) == 1.0f;
  }
  if (node.domain != "" || node.changed) return false;
  if (node.op == "Relu") {
    activation = {Activation::kClamp, 0.0f, kInfinity};
  } else if (node.op == "Clip") {
    activation.kind = Activation::kClamp;
    return clip_bounds(graph, node, activation);
  } else if (node.op == "LeakyRelu") {
    activation = {Activation::kLeakyRelu, node.original.get_float("alpha", 0.01f), 0.0f};
  } else if (node.op == "Sigmoid") {
    activation = {Activation::kSigmoid, 0.0f, 0.0f};
  } else if (node.op == "HardSigmoid") {
    activation = {Activation::kHardSigmoid, node.original.get_float("alpha", 0.2f),
                  node.original.get_float("beta", 0.5f)};
  } else if (node.op == "HardSwish") {
    activation = {Activation::kHardSwish, 0.0f, 0.0f};
  } else if (node.op == "Swish" && node.original.get_float("alpha", 1.0f) == 1.0f) {
    activation = {Activation::kSilu, 0.0f, 0.0f};
  } else if (node.op == "Tanh") {
    activation = {Activation::kTanh, 0.0f, 0.0f};
  } else if (node.op == "Gelu") {
    const bool is_exact = node.original.get_string("approximate", "none") == "none";
    activation = {is_exact ? Activation::kGelu : Activation::kGeluTanh, 0.0f, 0.0f};
  } else {
    return false;
  }
  return true;
}

namespace {

/// x * gate(x): Silu and HardSwish written as two nodes.
std::optional<ActivationMatch> gated(const WorkingGraph& graph, const std::string& value) {
  const std::vector<WorkNode*> readers = graph.consumers(value);
  if (readers.size() != 2 || graph.is_output(value)) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    WorkNode* gate = readers[i];
    WorkNode* product = readers[1 - i];
    Activation activation;
    if (gate == product || !product->is("Mul") || product->changed ||
        !is_activation(graph, *gate, value, activation))
      continue;
    if (graph.only_consumer(gate->outputs[0]) != product) continue;
    if (activation.kind == Activation::kSigmoid) {
      return ActivationMatch{{Activation::kSilu, 0.0f, 0.0f}, {gate, product}};
    }
    if (activation.kind == Activation::kHardSigmoid && near(activation.alpha, 1.0f / 6.0f) &&
        near(activation.beta, 0.5f)) {
      return ActivationMatch{{Activation::kHardSwish, 0.0f, 0.0f}, {gate, product}};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ActivationMatch> match_activation(const WorkingGraph& graph,
                                                const std::string& value) {
  WorkNode* reader = graph.only_consumer(value);
  if (reader == nullptr) return gated(graph, value);
  Activation activation;
  if (!is_activation(graph, *reader, value, activation)) return std::nullopt;
  return ActivationMatch{activation, {reader}};
}

bool takes_number(const WorkingGraph& graph, const WorkNode& node, std::string_view op,
                  std::string& x, float& number) {
  if (node.changed || !node.is(op) || node.inputs.size() != 2) return false;
  // Before opset 7 an attribute says how the second operand is laid against the first.
  if (node.original.has("broadcast") || node.original.has("axis")) return false;
  for (const std::size_t at : {1u, 0u}) {
    const sdk::ValueInfo other = graph.info(node.input(1 - at));
    if (!other || !patterns::number_beside(graph.info(node.input(at)), other, number)) continue;
    x = node.input(1 - at);
    return at == 1 || op == "Add" || op == "Mul";
  }
  return false;
}

namespace {

/// Whether `node` makes another factor and shift of the activation's result `value`: writes them. Not where a float does not hold
/// them: steps one after another may be finite all the same.
bool rescales(const WorkingGraph& graph, const WorkNode& node, const std::string& value,
              Activation& activation) {
  std::string x;
  float number = 0;
  const auto is = [&](const char* op) {
    return takes_number(graph, node, op, x, number) && x == value;
  };
  Activation made = activation;
  if (is("Add")) {
    made.shift += number;
  } else if (is("Sub")) {
    made.shift -= number;
  } else if (is("Mul")) {
    made.factor *= number;
    made.shift *= number;
  } else if (is("Div")) {
    made.factor /= number;
    made.shift /= number;
  } else {
    return false;
  }
  if (!std::isnormal(made.factor) || !std::isfinite(made.shift)) return false;
  activation = made;
  return true;
}

}  // namespace

void absorb_activation(WorkingGraph& graph, WorkNode* node, bool may_rescale) {
  std::optional<ActivationMatch> match = match_activation(graph, node->outputs[0]);
  if (!match) return;
  const auto follower = [&] { return graph.only_consumer(match->nodes.back()->outputs[0]); };
  for (WorkNode* next = follower();
       may_rescale && next != nullptr &&
       rescales(graph, *next, match->nodes.back()->outputs[0], match->activation);
       next = follower())
    match->nodes.push_back(next);
  const std::string result = match->nodes.back()->outputs[0];
  for (WorkNode* part : match->nodes) graph.absorb(node, part);
  graph.set_output(node, 0, result);
  node->set_activation(match->activation);
}

}  // namespace backplane::cpu
