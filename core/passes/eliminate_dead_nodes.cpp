#include <algorithm>
#include <vector>

#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

bool is_dead(const Graph& graph, const Node& node) {
  return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
    return output == kNone || (graph.value(output).uses.empty() && !graph.value(output).is_output);
  });
}

}  // namespace

bool eliminate_dead_nodes(Graph& graph, PassRun&) {
  std::vector<NodeId> candidates;
  for (const NodeId id : graph.node_ids()) candidates.push_back(id);
  bool changed = false;
  while (!candidates.empty()) {
    const NodeId id = candidates.back();
    candidates.pop_back();
    if (!graph.has_node(id) || !is_dead(graph, graph.node(id))) continue;
    for (const std::vector<ValueId>* list : {&graph.node(id).inputs, &graph.node(id).captured}) {
      for (const ValueId input : *list) {
        if (input != kNone && graph.value(input).producer != kNone)
          candidates.push_back(graph.value(input).producer);
      }
    }
    graph.remove_node(id);
    changed = true;
  }
  return changed;
}

}  // namespace backplane::core
