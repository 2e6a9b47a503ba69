#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

const Value* input_value(const Graph& graph, const Node& node, std::size_t index) {
  if (index >= node.inputs.size() || node.inputs[index] == kNone) return nullptr;
  return &graph.value(node.inputs[index]);
}

bool same_static_shape(const Graph& graph, const Node& node) {
  const Type& from = graph.value(node.inputs[0]).type;
  const Type& to = graph.value(node.outputs[0]).type;
  return from.is_static() && to.is_static() && *from.shape == *to.shape;
}

bool always(const Graph&, const Node&) { return true; }

// At inference Dropout hands its input on, and only its mask would need it: https://onnx.ai/onnx/operators/onnx__Dropout.html
bool dropout_does_nothing(const Graph& graph, const Node& node) {
  if (node.outputs.size() > 1 && node.outputs[1] != kNone) {
    const Value& mask = graph.value(node.outputs[1]);
    if (!mask.uses.empty() || mask.is_output) return false;
  }
  if (node.since_version < 7) {  // trains unless it is told that this is a test
    const auto is_test = node.attributes.find("is_test");
    return is_test != node.attributes.end() && is_test->second.ints == std::vector<std::int64_t>{1};
  }
  const Value* training = input_value(graph, node, 2);
  if (training == nullptr) return true;
  if (!training->constant || training->overridable || training->constant->type() != DataType::Bool)
    return false;
  const auto bytes = training->constant->bytes();
  return bytes.size() == 1 && bytes[0] == std::byte{0};
}

bool cast_to_own_type(const Graph& graph, const Node& node) {
  const auto to = node.attributes.find("to");
  if (to == node.attributes.end() || to->second.ints.size() != 1)
    return false;  // before version 6 it is a word
  const Type& type = graph.value(node.inputs[0]).type;
  return type.is_tensor() && type.element != DataType::None &&
         static_cast<std::int64_t>(type.element) == to->second.ints[0];
}

bool cast_like_own_type(const Graph& graph, const Node& node) {
  const Value* like = input_value(graph, node, 1);
  const Type& type = graph.value(node.inputs[0]).type;
  return like != nullptr && type.is_tensor() && like->type.is_tensor() &&
         type.element != DataType::None && type.element == like->type.element;
}

bool transposes_nothing(const Graph& graph, const Node& node) {
  const auto perm = node.attributes.find("perm");
  if (perm == node.attributes.end()) {  // the default turns the dimensions around
    const Type& type = graph.value(node.inputs[0]).type;
    return type.is_tensor() && type.shape && type.shape->size() <= 1;
  }
  for (std::size_t i = 0; i < perm->second.ints.size(); ++i) {
    if (perm->second.ints[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

bool has_one_input(const Graph&, const Node& node) { return node.inputs.size() == 1; }

using NoOpTest = bool (*)(const Graph&, const Node&);

/// Operators of ONNX that hand input 0 to output 0 unchanged, and when.
const std::map<std::string, NoOpTest>& no_ops() {
  static const std::map<std::string, NoOpTest> kTests = {
      {"Identity", always},
      {"Dropout", dropout_does_nothing},
      {"Cast", cast_to_own_type},
      {"CastLike", cast_like_own_type},
      {"Transpose", transposes_nothing},
      // These keep the elements and their order, so an unchanged shape is an unchanged tensor.
      {"Reshape", same_static_shape},
      {"Flatten", same_static_shape},
      {"Squeeze", same_static_shape},
      {"Unsqueeze", same_static_shape},
      {"Expand", same_static_shape},
      {"Concat", has_one_input},
      {"Sum", has_one_input},
      {"Mean", has_one_input},
      {"Max", has_one_input},
      {"Min", has_one_input},
  };
  return kTests;
}

bool is_no_op(const Graph& graph, const Node& node) {
  if (!node.domain.empty() || node.inputs.empty() || node.outputs.empty()) return false;
  if (node.inputs[0] == kNone || node.outputs[0] == kNone || node.is_ordered()) return false;
  if (!annotations_agree(graph.value(node.inputs[0]), graph.value(node.outputs[0]))) return false;
  const auto test = no_ops().find(node.op_type);
  return test != no_ops().end() && test->second(graph, node);
}

/// What is known of one name of a value, kept with the other.
void keep_knowledge(Value& kept, const Value& gone) {
  keep_annotation(kept, gone);
  const bool vague =
      kept.type.kind == Type::Kind::Unknown || (kept.type.is_tensor() && !kept.type.shape);
  if (!vague || gone.type.kind == Type::Kind::Unknown) return;
  kept.type = gone.type;
  kept.has_unproven_symbols = gone.has_unproven_symbols;
}

bool eliminate(Graph& graph, NodeId id) {
  const ValueId from = graph.node(id).inputs[0];
  const ValueId to = graph.node(id).outputs[0];
  if (!graph.value(to).is_output) {
    keep_knowledge(graph.value(from), graph.value(to));
    graph.replace_uses(to, from, false);
    graph.remove_node(id);
    return true;
  }
  // An output keeps its name: whoever makes the input makes the output instead.
  const Value& source = graph.value(from);
  if (source.producer == kNone || source.is_output || source.is_input) return false;
  const NodeId producer = source.producer;
  const auto output = static_cast<std::size_t>(source.producer_output);
  keep_knowledge(graph.value(to), source);
  graph.remove_node(id);
  graph.set_output(producer, output, to);
  graph.replace_uses(from, to, false);
  return true;
}

}  // namespace

bool eliminate_identities(Graph& graph, PassRun&) {
  bool changed = false;
  for (std::size_t i = graph.node_limit(); i > 0; --i) {
    const NodeId id(i - 1);
    if (graph.has_node(id) && is_no_op(graph, graph.node(id)))
      changed = eliminate(graph, id) || changed;
  }
  return changed;
}

}  // namespace backplane::core
