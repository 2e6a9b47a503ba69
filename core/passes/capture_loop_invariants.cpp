// Loop: https://onnx.ai/onnx/operators/onnx__Loop.html
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

// Where what a loop carries stands: inputs are the trip count, the condition, then carried values; the body's are the
// iteration, the condition, then these; the body's outputs begin with the condition, the node's with carried values.
constexpr std::size_t kFirstInput = 2, kFirstBodyOutput = 1;

/// Whether the body hands on carried value `k` as it came, and may read the name of its first one instead.
bool is_invariant(const Graph& graph, const Node& node, const Graph& body, std::size_t k) {
  const ValueId outer = node.inputs[kFirstInput + k];
  const ValueId inner = body.inputs[kFirstInput + k];
  if (outer == kNone || body.outputs[kFirstBodyOutput + k] != inner ||
      std::count(body.outputs.begin(), body.outputs.end(), inner) != 1)
    return false;
  const ValueId known = body.find_value(graph.value(outer).name);
  if (known != kNone && !body.value(known).is_outer) return false;  // the body means another value
  if (k >= node.outputs.size() || node.outputs[k] == kNone) return true;
  const Value& result = graph.value(node.outputs[k]);
  return !result.is_output && annotations_agree(graph.value(outer), result);
}

void capture(Graph& graph, Node& node, Graph& body, std::size_t k) {
  const auto at = [k](std::size_t first) { return static_cast<std::ptrdiff_t>(first + k); };
  const ValueId outer = node.inputs[kFirstInput + k];
  const ValueId inner = body.inputs[kFirstInput + k];
  const ValueId captured = body.value_named(graph.value(outer).name);
  body.value(captured).is_outer = true;
  body.value(captured).type = graph.value(outer).type;
  body.inputs.erase(body.inputs.begin() + at(kFirstInput));
  body.outputs.erase(body.outputs.begin() + at(kFirstBodyOutput));
  body.value(inner).is_input = false;
  body.value(inner).is_output = false;
  body.replace_uses(inner, captured, false);
  node.inputs.erase(node.inputs.begin() + at(kFirstInput));
  if (k >= node.outputs.size()) return;
  if (node.outputs[k] != kNone) {
    keep_annotation(graph.value(outer), graph.value(node.outputs[k]));
    graph.replace_uses(node.outputs[k], outer, false);
  }
  node.outputs.erase(node.outputs.begin() + at(0));
}

bool capture_invariants(Graph& graph, NodeId id) {
  const Node& loop = graph.node(id);
  const auto attribute = loop.attributes.find("body");
  if (loop.op_type != "Loop" || !loop.domain.empty() || loop.is_ordered() ||
      attribute == loop.attributes.end() || attribute->second.graphs.size() != 1)
    return false;
  const std::shared_ptr<Graph> body = attribute->second.graphs.front();
  if (loop.inputs.size() < kFirstInput || body->inputs.size() != loop.inputs.size() ||
      body->outputs.size() + kFirstInput < loop.inputs.size() + kFirstBodyOutput)
    return false;
  Node changed = loop;
  for (std::size_t k = changed.inputs.size() - kFirstInput; k-- > 0;) {
    if (is_invariant(graph, changed, *body, k)) capture(graph, changed, *body, k);
  }
  if (changed.inputs.size() == loop.inputs.size()) return false;
  graph.remove_node(id);
  changed.captured.clear();  // update_captures finds them anew
  graph.add_node(std::move(changed));
  return true;
}

}  // namespace

bool capture_loop_invariants(Graph& graph, PassRun&) {
  bool changed = false;
  const std::size_t before = graph.node_limit();
  for (std::size_t i = 0; i < before; ++i) {
    const auto id = static_cast<NodeId>(i);
    if (graph.has_node(id)) changed = capture_invariants(graph, id) || changed;
  }
  if (changed) graph.update_captures();
  return changed;
}

}  // namespace backplane::core
