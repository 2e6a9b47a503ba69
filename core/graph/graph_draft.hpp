// A graph while somebody builds it: nodes by name, in any order, not yet complete.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// A graph or body as it is built and changed. What it amounts to is found by resolve(), as often as wanted.
///
/// Names make the edges. A name that no node makes yet is all right until resolve(). Bodies are drafts of their own,
/// since which of their names belong to an enclosing graph shows only when that is complete.
/// Threads: one at a time.
class GraphDraft {
 public:
  std::string name;
  std::string doc;

  GraphDraft() = default;
  /// Of a graph that is complete: its inputs and outputs count as set by hand.
  explicit GraphDraft(const Graph& graph);

  /// Adds a node; "" leaves an input or output out. Throws InvalidArgument naming node and value when an output is
  /// made already, or is an initializer or a set input.
  NodeId add_node(const std::string& op_type, const std::string& domain,
                  const std::string& node_name, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs);
  /// Throws InvalidArgument when there is no such node; so do the functions below that take one.
  void remove_node(NodeId id);
  const Node& node(NodeId id) const;
  /// Nodes so far, in the order in which they were added.
  std::vector<NodeId> nodes() const;
  NodeId find_node(const std::string& node_name) const { return graph_.find_node(node_name); }
  void set_attribute(NodeId id, const std::string& attribute_name, Attribute attribute);
  /// An attribute with bodies: `list` tells a list of one from a single one. Throws InvalidArgument for bodies that are
  /// nested too deep.
  void set_bodies(NodeId id, const std::string& attribute_name, std::vector<GraphDraft> bodies,
                  bool list);
  void remove_attribute(NodeId id, const std::string& attribute_name);
  void set_priority(NodeId id, int priority);
  void add_control_edge(NodeId earlier, NodeId later);

  /// Says the type of a value, be it an input, made by a node, or not there yet.
  void declare(const std::string& value_name, Type type);
  /// What was declared; or what was found by the last resolve (see learn); or unknown.
  Type type_of(const std::string& value_name) const;
  /// Takes over the types that inference found, for values whose types nobody declared.
  void learn(const Graph& inferred);
  /// Gives a value contents; again: other contents. Throws InvalidArgument when a node makes the value.
  void add_initializer(const std::string& value_name, ConstantPtr contents);
  void remove_initializer(const std::string& value_name);
  void annotate(const std::string& value_name, const std::string& parameter,
                const std::string& tensor_name);

  /// Sets the inputs or outputs by hand; a name that stands twice counts once. nullopt: found by resolve().
  void set_inputs(std::optional<std::vector<std::string>> names);
  void set_outputs(std::optional<std::vector<std::string>> names);

  /// The graph, complete, with bodies. See core/SESSION.md, rows G2 to G4, for what it does about inputs and outputs.
  /// Throws InvalidArgument: a name that nobody makes (naming it and its node), a cycle (naming its nodes).
  Graph resolve(std::int64_t ir_version) const;

  int nesting() const { return nesting_; }

 private:
  struct BodyList {
    std::vector<GraphDraft> bodies;
    bool list = false;
  };
  /// The graphs around a body, nearest first.
  struct Scope {
    const Graph* graph;
    const GraphDraft* draft;
    const Scope* enclosing;
  };

  void check_node(NodeId id) const;
  Graph resolve_in(const Scope* enclosing, std::int64_t ir_version) const;
  void resolve_bodies(Graph& graph, const Scope* enclosing, std::int64_t ir_version) const;
  static bool knows(const Scope* scope, const std::string& value_name);
  void set_given_inputs(Graph& graph, const Scope* enclosing) const;
  void find_inputs(Graph& graph, const Scope* enclosing, std::int64_t ir_version) const;
  static void list_initializers(Graph& graph);
  void find_outputs(Graph& graph, const Scope* enclosing) const;

  Graph graph_;  ///< without bodies, inputs and outputs
  std::map<NodeId, std::map<std::string, BodyList>> bodies_;
  std::unordered_map<std::string, Type> declared_, learned_;
  std::optional<std::vector<std::string>> inputs_, outputs_;
  int nesting_ = 0;  ///< of bodies in bodies
};

}  // namespace backplane::core
