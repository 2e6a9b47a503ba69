#include "core/plan/placed_graph.hpp"

#include "core/base/error.hpp"
#include "core/graph/verify.hpp"

namespace backplane::core {
namespace {

template <class Map>
void verify_values(const PlacedGraph& placed, const Map& map, std::string_view when,
                   const char* what) {
  for (const auto& [id, entry] : map) {
    if (placed.graph->has_value(id)) continue;
    throw Error(Code::Internal, text(when, ": there is ", what, " of the value ", id,
                                     ", and there are ", placed.graph->value_count(), " values"));
  }
}

}  // namespace

void verify_placed(const PlacedGraph& placed, std::string_view when) {
  const Graph& graph = *placed.graph;
  GraphSurroundings surroundings;
  surroundings.is_given = [&placed](ValueId id) { return placed.lazy.contains(id); };
  verify_graph(graph, when, surroundings);
  verify_values(placed, placed.lazy, when, "a constant");
  verify_values(placed, placed.formats, when, "a format");
  if (placed.placement.size() < graph.node_limit()) {
    throw Error(Code::Internal, text(when, ": there are ", placed.placement.size(),
                                     " placements, and node ids up to ", graph.node_limit()));
  }
  for (const auto& [id, compiled] : placed.compiled) {
    if (graph.has_node(id)) continue;
    throw Error(Code::Internal, text(when, ": the compiled node ", id, " does not exist"));
  }
}

}  // namespace backplane::core
