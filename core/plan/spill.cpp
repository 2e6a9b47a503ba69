#include "core/plan/spill.hpp"

#include <algorithm>
#include <set>

#include "core/graph/priority_order.hpp"

namespace backplane::core {
namespace {

/// Bytes that a node brings to its device: constants that no node before it reads, and what it makes.
class NodeBytes {
 public:
  NodeBytes(const Graph& graph, const std::vector<NodeId>& order)
      : graph_(graph), bytes_(estimated_bytes(graph, order)) {}

  std::uint64_t operator()(NodeId id) {
    std::uint64_t sum = 0;
    for (const ValueId input : graph_.node(id).inputs) {
      if (input == kNone || graph_.value(input).constant == nullptr || !seen_.insert(input).second)
        continue;
      sum += graph_.value(input).constant->stored_bytes().size();
    }
    weights_ += sum;
    for (const ValueId output : graph_.node(id).outputs)
      sum += output == kNone ? 0 : bytes_[output];
    return sum;
  }
  /// Constants of all nodes that were asked for.
  std::uint64_t weights() const { return weights_; }

 private:
  const Graph& graph_;
  ValueBytes bytes_;
  std::set<ValueId> seen_;
  std::uint64_t weights_ = 0;
};

std::size_t moved_before(const Refusals& refusals, int device) {
  return static_cast<std::size_t>(
      std::count_if(refusals.nodes.begin(), refusals.nodes.end(), [&](const LateRefusal& refusal) {
        return refusal.device == device && refusal.code == kMemoryReason;
      }));
}

}  // namespace

std::vector<std::string> nodes_to_move(const Program& program, const Cut& cut,
                                       const Refusals& refusals, const DeviceFull& full) {
  const ProgramContext& context = program.context();
  const std::shared_ptr<Graph> graph = cut_graph(context.graph(), cut, context.model->ir_version);
  const std::vector<NodeId> order = topological_order(*graph);
  SchemaCache schemas(*context.schemas);
  PlacementRequest request;
  request.devices = context.devices;
  request.schemas = &schemas;
  request.rules = resolve_rules(context.rules, *context.devices);
  request.refused = refusals.nodes;
  request.full_device = full.device;
  const Placement elsewhere = place(*graph, order, GraphView(*graph, order), request);

  NodeBytes bytes_of(*graph, order);
  std::vector<std::pair<std::string, std::uint64_t>> movable;
  for (const NodeId id : order) {
    const std::string& name = graph->node(id).name;
    const auto placed = program.first_placement().find(name);
    if (placed == program.first_placement().end() || placed->second.device != full.device) continue;
    const std::uint64_t bytes = bytes_of(id);
    if (elsewhere[id].device >= 0) movable.emplace_back(name, bytes);
  }
  const std::uint64_t too_many = bytes_of.weights() - std::min(bytes_of.weights(), full.limit);
  const std::uint64_t missing = std::max(full.missing, too_many);
  const std::size_t least = 1 + moved_before(refusals, full.device) / 4;
  std::vector<std::string> leaving;
  for (std::uint64_t freed = 0; !movable.empty() && (leaving.size() < least || freed < missing);
       movable.pop_back()) {
    leaving.push_back(movable.back().first);
    freed += movable.back().second;
  }
  return leaving;
}

void refuse_for_memory(const std::vector<std::string>& nodes, const DeviceFull& full,
                       Refusals& refusals) {
  const std::string why = "it is among the latest nodes there, and " + full.error.message();
  for (const std::string& node : nodes)
    refusals.nodes.push_back({node, full.device, why, kMemoryReason});
}

}  // namespace backplane::core
