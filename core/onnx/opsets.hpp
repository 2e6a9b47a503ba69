// Which version of an operator a node means.
#pragma once

#include <cstdint>
#include <map>
#include <onnx/onnx_pb.h>
#include <string>

#include "core/onnx/schema_registry.hpp"
#include "core/onnx/schema_registry_impl.hpp"

namespace backplane::core {

/// The opset imports of a model. Nodes that came out of a function may keep to the function's own imports.
class Opsets {
 public:
  /// Throws InvalidArgument for no imports, a domain twice with different versions, a version below 1 or above what
  /// this build knows of ONNX's own domain.
  static Opsets of(const ::onnx::ModelProto& model);

  const std::map<std::string, std::int64_t>& imports() const { return imports_; }
  /// Adds an import unless the domain has one; false when that is another version.
  bool add(const std::string& domain, std::int64_t version);

  /// The version for a node: its own mark, or the model's import; 0 when the domain is not imported.
  int version_for(const ::onnx::NodeProto& node) const;
  /// Marks a node to mean another version than the model's.
  static void set_version(::onnx::NodeProto& node, std::int64_t version);
  /// Removes marks that a file brings.
  static void remove_marks(::onnx::NodeProto& node);

 private:
  std::map<std::string, std::int64_t> imports_;
};

/// "node 'conv1' (Conv)" or, where it has no name, "the node (Conv) that makes 'y'", for messages.
std::string described(const ::onnx::NodeProto& node);

/// The schema of a node. Throws InvalidArgument or Unsupported, naming the node and what to do, when nobody knows one.
const ::onnx::OpSchema& schema_of(const ::onnx::NodeProto& node, const Opsets& opsets,
                                  const SchemaRegistry& schemas);

/// Checks all nodes, also those of bodies, against their schemas: inputs, outputs and attributes.
void verify_nodes(const ::onnx::GraphProto& graph, const Opsets& opsets,
                  const SchemaRegistry& schemas);

/// Calls `visit` for each graph in a node's attributes.
template <class Node, class Visit>
void for_each_graph(Node& node, Visit&& visit) {
  if constexpr (std::is_const_v<Node>) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) visit(attribute.g());
      for (const auto& graph : attribute.graphs()) visit(graph);
    }
  } else {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) visit(*attribute.mutable_g());
      for (auto& graph : *attribute.mutable_graphs()) visit(graph);
    }
  }
}

}  // namespace backplane::core
