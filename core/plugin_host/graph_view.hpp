// Graphs as providers see them: bp_graph, bp_node, bp_value_info over the core's graph.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin_api.h"
#include "core/graph/graph.hpp"
#include "core/onnx/schema_registry.hpp"
#include "core/plugin_host/host_api.hpp"

namespace backplane::core {

/// Part of a graph (or all of it) as a bp_graph. Everything that plugins get from it lives as long as
/// the view.
///
/// Lifetime: borrows `graph`, which must not change while the view lives.
/// Threads:  reading is safe from any thread; strings and arrays are built when the view is.
class GraphView {
 public:
  /// The nodes, in topological order. Constants that no input reads are left out; values used outside
  /// are outputs; what bodies of the nodes capture counts as read by the node. An initializer that
  /// feeds may replace is an input, not a constant.
  GraphView(const Graph& graph, const std::vector<NodeId>& nodes);
  ~GraphView();
  GraphView(const GraphView&) = delete;
  GraphView& operator=(const GraphView&) = delete;

  const bp_graph* raw() const;
  const bp_node* node(NodeId id) const;  ///< null when it is not in the view
  static NodeId id_of(const bp_node* node);
  static const std::string& name_of(const bp_value_info* value);
  /// The graph's inputs and outputs (border values), in the order plugins see them: those of the
  /// graph itself in its order, then the others as the nodes read and make them.
  const std::vector<ValueId>& inputs() const;
  const std::vector<ValueId>& outputs() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The table that plugins read graphs by.
const bp_graph_api& graph_api();

/// A plugin's attribute in the core's form. Throws InvalidArgument when it breaks the ABI's rules.
std::pair<std::string, Attribute> read_attribute(const bp_attribute& attribute);

/// The ABI's code for what a plugin's schema says; the result calls the plugin's inference. Throws
/// InvalidArgument naming the operator when the schema breaks the ABI's rules.
CustomSchema read_schema(const bp_op_schema& schema, const std::string& library);

}  // namespace backplane::core
