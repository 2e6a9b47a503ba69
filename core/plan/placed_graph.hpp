// A graph on its way from placement to a program: nodes with their devices, and what providers made of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/placement.hpp"
#include "core/plan/weight_store.hpp"

namespace backplane::core {

/// A node that stands for a subgraph which a provider compiled whole.
struct CompiledNode {
  std::shared_ptr<const Graph> graph;  ///< that the view borrows
  std::shared_ptr<const GraphView>
      view;  ///< the subgraph; its inputs and outputs are the node's, in order
  KernelHandle kernel;
};

/// A graph with placements.
struct PlacedGraph {
  std::shared_ptr<Graph> graph;
  Placement placement;
  std::map<ValueId, std::shared_ptr<const LazyConstant>> lazy;
  std::map<NodeId, CompiledNode> compiled;
  std::map<ValueId, std::uint32_t> formats;  ///< private layouts, by the rewrites
  std::vector<std::string> remarks;  ///< edits and claims that were refused, for the explanation
  std::map<std::string, std::string> notes;  ///< by original node's name: what a rewrite said of it

  bool is_constant(ValueId id) const {
    return graph->value(id).constant != nullptr || lazy.contains(id);
  }
  ConstantRef constant(ValueId id) const {
    const auto found = lazy.find(id);
    return {graph->value(id).constant, found != lazy.end() ? found->second : nullptr};
  }
};

/// Checks the graph by verify_graph, lazy constants being contents, and that placements, lazy constants, formats and compiled
/// nodes are of nodes and values that there are.
void verify_placed(const PlacedGraph& placed, std::string_view when);

/// Asks a device that compiles subgraphs what it wants of the nodes placed on it, and replaces each convex part that
/// it compiles by one node. Refusals go to `remarks`.
void compile_claims(PlacedGraph& placed, int device, const DeviceSet& devices, bp_threads* threads,
                    std::uint64_t flags);

/// Lets a device rewrite the nodes placed on it. Edits that break a rule are dropped, and the reason is a remark.
void rewrite_nodes(PlacedGraph& placed, int device, const DeviceSet& devices, SchemaCache& schemas);

}  // namespace backplane::core
