// The order of execution that lowers the plan's peak of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// Which of the orders that a graph allows its nodes run in: topological_order, or priority_order below.
enum class ExecutionOrder { Default, Priority };

/// Bytes that values take while they live. Values whose memory is somebody else's count nothing: graph
/// inputs and outputs, constants.
using ValueBytes = PerValue<std::uint64_t>;

/// From the values' types. An unknown dimension counts as 1; a value of unknown rank or type takes what the largest
/// input of its node takes. `order` is any topological order.
ValueBytes estimated_bytes(const Graph& graph, const std::vector<NodeId>& order);

/// The largest sum of bytes that live at one time when the nodes run in this order, each value in memory of its own
/// from its node to its last reader.
std::uint64_t peak_bytes(const Graph& graph, const std::vector<NodeId>& order,
                         const ValueBytes& bytes);

/// The order `priority`. Of the nodes that can run, those with the smallest Node::priority come first. Among them it
/// is, of three ways to choose, the one with the lowest peak: as the order `default` has them; likewise, but what frees
/// as much as it takes at once; by how much the live bytes grow, then by index. Throws as topological_order does.
std::vector<NodeId> priority_order(const Graph& graph, const ValueBytes& bytes);

}  // namespace backplane::core
