// If with a constant condition: https://onnx.ai/onnx/operators/onnx__If.html
#include <optional>
#include <string>

#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

std::optional<bool> constant_condition(const Graph& graph, const Node& node) {
  if (node.op_type != "If" || !node.domain.empty() || node.inputs.size() != 1 ||
      node.inputs[0] == kNone)
    return std::nullopt;
  const Value& condition = graph.value(node.inputs[0]);
  if (condition.constant == nullptr || condition.overridable ||
      condition.constant->type() != DataType::Bool || condition.constant->element_count() != 1)
    return std::nullopt;
  return condition.constant->bytes().front() != std::byte{0};
}

}  // namespace

bool inline_constant_if(Graph& graph, PassRun&) {
  bool changed = false;
  for (const NodeId id : graph.node_ids()) {  // what a body brings waits for the next round
    const std::optional<bool> condition = constant_condition(graph, graph.node(id));
    if (!condition) continue;
    const auto branch = graph.node(id).attributes.find(*condition ? "then_branch" : "else_branch");
    if (branch == graph.node(id).attributes.end() || branch->second.graphs.size() != 1) continue;
    graph.splice(id, *branch->second.graphs.front(), {});
    changed = true;
  }
  return changed;
}

}  // namespace backplane::core
