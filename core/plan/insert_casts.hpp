// Casts around nodes that a device has in another type only, where the user allows it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/data_type.hpp"
#include "core/plan/placed_graph.hpp"

namespace backplane::core {

/// Nodes of type `from` may be computed in type `to`.
struct TypeCast {
  DataType from = DataType::None, to = DataType::None;
  bool operator==(const TypeCast&) const = default;
};

/// Casts nodes that a device before theirs refuses for a type alone, where it takes them in a type that `casts` allows:
/// what the node reads is cast before it, what it makes behind it. A value that was cast from `to` is not cast back.
/// Only values whose type is a type parameter of the operator are cast, and outputs only together with inputs of the
/// parameter: a type that an attribute sets stays. `opset` is that of the Cast nodes.
/// Returns why, by node; when there is something, the graph has changed and its nodes are to be placed anew.
std::map<std::string, Reason> insert_casts(PlacedGraph& placed, const std::vector<NodeId>& order,
                                           const PlacementRequest& request,
                                           const std::vector<TypeCast>& casts, std::int64_t opset);

}  // namespace backplane::core
