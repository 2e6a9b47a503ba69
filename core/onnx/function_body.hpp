// The function bodies that ONNX's schemas give to operators, and ours (function_operator.hpp), as graphs.
#pragma once

#include <optional>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/onnx/schema_registry.hpp"

namespace backplane::core {

/// A body in place of a node. Its inputs have the names of values of the node's graph; its outputs are the node's, in
/// order, without those that are left out.
struct FunctionBody {
  Graph graph;
  std::vector<ValueId> inputs;  ///< by the body's input: the value of the node's graph
};

/// The body of a node's operator, typed for this node; bodies that depend on types and attributes are built for them.
/// nullopt: the operator is no function. Errors: what ONNX says of a body that does not fit the node.
std::optional<FunctionBody> function_body(const Graph& graph, const Node& node,
                                          const SchemaRegistry& schemas);

/// The types of a node's outputs, by its body; where that cannot be written for want of ranks, by type parameters. Only
/// for nodes of function_operators(). Errors: as function_body.
std::vector<Type> output_types_by_body(const Graph& graph, const Node& node,
                                       const SchemaRegistry& schemas);

}  // namespace backplane::core
