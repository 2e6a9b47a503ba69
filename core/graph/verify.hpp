// What must hold of every graph between two changes of it.
#pragma once

#include <functional>
#include <string_view>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// Whether passes and planning verify the graphs that they change: in builds without NDEBUG, as the sanitized ones are. An
/// installed build pays nothing.
#ifdef NDEBUG
inline constexpr bool kVerifiesGraphs = false;
#else
inline constexpr bool kVerifiesGraphs = true;
#endif

/// What a graph takes from outside.
struct GraphSurroundings {
  bool is_body = false;  ///< values of an enclosing graph are all right, though it is not at hand
  std::function<bool(ValueId)> is_given;  ///< values that get their contents elsewhere; empty: none
};

/// Checks a graph and the bodies in it:
///
/// - Ids are of nodes and values that there are, and those are found by their ids and by their names, which are unique.
/// - A value comes from one place: a node, an input, contents, or an enclosing graph. What is read, or is an output, comes
///   from somewhere. An input may have contents besides, its default.
/// - `producer` and `uses` say what the nodes' inputs, outputs and `captured` say, each use once.
/// - `inputs`, `outputs` and `initializers` agree with is_input, is_output and contents; inputs and initializers stand once.
/// - There is an order in which the nodes can run, and both ends of a control edge know of it.
/// - `captured` is what the bodies of the node read of this graph. A body belongs to one node, and what it reads is a value
///   of a graph around it, of the same kind and element type.
/// - The vector that fits an attribute's type is filled, with one entry for a single value.
/// - Types are whole: only tensors have shapes, dims are -1 or more, and contents fit their value's type.
///
/// `when` begins the error: "after the pass fold_constants". Costs about as much as a copy of the graph.
/// Throws Internal with the first thing that is wrong, naming the node and the value: a bug of whoever changed the graph.
void verify_graph(const Graph& graph, std::string_view when,
                  const GraphSurroundings& surroundings = {});

}  // namespace backplane::core
