// Casts around nodes that a device has in another type only, where the user or the kernel allows it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
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
/// parameter: a type that an attribute sets stays, and so does a node that reads or makes sequences of the type. `opset`
/// is that of the Cast nodes.
/// With `widens`, nodes of 16-bit types whose kernel asks for float (BP_KERNEL_WIDENS_HALF) are cast as well, and nodes without
/// such a kernel where one of their inputs is there in float and no output is the graph's.
struct CastRules {
  std::vector<TypeCast> casts;
  bool widens = true;
};

/// Casts of earlier calls, by the nodes' names.
struct InsertedCasts {
  /// What reads them may read what they were made from.
  std::set<std::string> back;
  /// Of constants that a rewrite may read as they are (BP_KERNEL_HALF_WEIGHTS).
  std::set<std::string> weights;
};

/// Returns why, by node; when there is something, the graph has changed and its nodes are to be placed anew.
std::map<std::string, Reason> insert_casts(PlacedGraph& placed, const std::vector<NodeId>& order,
                                           const PlacementRequest& request, const CastRules& rules,
                                           std::int64_t opset, InsertedCasts& inserted);

}  // namespace backplane::core
