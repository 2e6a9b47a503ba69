// Which nodes are evaluated on the host while a session plans.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/plan/placement.hpp"

namespace backplane::core {

/// What one value may weigh to be evaluated while planning, and a feed to be part of a plan's key.
inline constexpr std::uint64_t kMaxHostValueBytes = 64 * 1024;
inline constexpr std::uint64_t kMaxKeyedFeedBytes = 1024;

/// Constants, what follows from shapes, and what follows from small feeds that some shape depends on.
struct ShapeArithmetic {
  PerNode<bool> host_node;            ///< evaluated while planning, if its values are small enough
  std::vector<ValueId> keyed_inputs;  ///< graph inputs whose elements are part of a plan's key
};

/// Looks at types, ranks and the roles of inputs: those of the placed kernel for what a shape depends on, those of
/// the host evaluator's for what can be evaluated. `is_constant` also knows constants that a rewrite added.
ShapeArithmetic find_shape_arithmetic(const Graph& graph, const std::vector<NodeId>& order,
                                      const Placement& placement, const DeviceSet& devices,
                                      SchemaCache& schemas,
                                      const std::function<bool(ValueId)>& is_constant);

}  // namespace backplane::core
