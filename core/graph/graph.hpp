// The graph: nodes and values, by index.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/graph/constant.hpp"
#include "core/graph/ids.hpp"
#include "core/graph/type.hpp"

namespace backplane::core {

class Graph;
class GraphVerifier;

/// An attribute; the vector that fits `type` is filled (one entry for a single value).
struct Attribute {
  /// The numbers of ONNX's AttributeProto.AttributeType.
  enum class Type : std::int32_t {
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Tensors = 9,
    Graphs = 10,
    TypeProto = 13,
    TypeProtos = 14,
  };
  Type type = Type::Int;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;
  std::vector<std::string> strings;
  std::vector<ConstantPtr> tensors;
  std::vector<std::shared_ptr<Graph>> graphs;
  std::vector<core::Type> types;
};

/// A node. `name` is unique in its graph.
struct Node {
  NodeId id;
  std::string name;
  std::string op_type;
  std::string domain;            ///< "" is ONNX's own
  int since_version = 0;         ///< of the schema that the opset selects; 0: no schema known
  std::vector<ValueId> inputs;   ///< kNone where left out
  std::vector<ValueId> outputs;  ///< kNone where left out
  std::map<std::string, Attribute> attributes;
  std::vector<ValueId> captured;  ///< outer values that bodies in the attributes read; each once
  std::vector<std::int32_t>
      origins;       ///< nodes of the original model whose work this node does (Model::original)
  int priority = 0;  ///< in the order `priority`: smaller numbers run first
  std::vector<NodeId> after;   ///< control edges: nodes that run before this one; each once
  std::vector<NodeId> before;  ///< and the other way round

  bool has_bodies() const;
  /// Whether it has control edges. Such a node keeps a place of its own: passes neither merge nor skip it.
  bool is_ordered() const { return !after.empty() || !before.empty(); }
};

/// Where a value is read.
struct Use {
  NodeId node;
  std::int32_t input;  ///< index into Node::inputs; -1: captured by a body of the node
  bool operator==(const Use&) const = default;
};

/// A value. Made by a node, or a graph input, a constant, or a name of an outer scope.
struct Value {
  ValueId id;
  std::string name;
  Type type;
  NodeId producer;
  std::int32_t producer_output = -1;  ///< index into the producer's outputs
  std::vector<Use> uses;
  ConstantPtr constant;      ///< an initializer's contents, or what folding found
  bool overridable = false;  ///< an initializer that a feed may replace: not to be folded
  bool is_input = false;
  bool is_output = false;
  bool is_outer = false;  ///< in a body: the name belongs to an enclosing graph
  /// The file gave symbols to dimensions of its type of which inference knows nothing, see Model::unproven_symbols.
  bool has_unproven_symbols = false;
  std::map<std::string, std::string>
      quantization;  ///< the model's annotation: parameter -> tensor name
};

/// A graph body.
///
/// Invariants: every value has at most one producer; `uses` and `producer` agree with the nodes; names of
///             values and of nodes are unique.
/// Threads:    const functions may run concurrently.
class Graph {
 public:
  std::string name;
  std::string doc;
  std::vector<ValueId> inputs;   ///< in the model's order, initializers listed as inputs included
  std::vector<ValueId> outputs;  ///< in the model's order; a value may stand twice
  std::vector<ValueId> initializers;  ///< in the model's order

  /// See node_ids.
  class NodeIds {
   public:
    class Iterator {
     public:
      Iterator(const Graph& graph, std::size_t index, std::size_t limit)
          : graph_(graph), index_(index), limit_(limit) {
        skip_gone();
      }
      NodeId operator*() const { return NodeId(index_); }
      Iterator& operator++() {
        ++index_;
        skip_gone();
        return *this;
      }
      bool operator==(const Iterator& other) const { return index_ == other.index_; }

     private:
      void skip_gone() {
        while (index_ < limit_ && !graph_.has_node(NodeId(index_))) ++index_;
      }
      const Graph& graph_;
      std::size_t index_;
      std::size_t limit_;
    };

    explicit NodeIds(const Graph& graph) : graph_(graph), limit_(graph.node_limit()) {}
    Iterator begin() const { return {graph_, 0, limit_}; }
    Iterator end() const { return {graph_, limit_, limit_}; }

   private:
    const Graph& graph_;
    std::size_t limit_;
  };

  Graph() = default;
  /// A deep copy: bodies are copied, constants shared.
  Graph(const Graph& other);
  Graph(Graph&&) noexcept = default;
  Graph& operator=(const Graph&) = delete;
  Graph& operator=(Graph&&) noexcept = default;
  ~Graph() = default;

  /// Finds or adds the value with this name, which is not empty.
  ValueId value_named(const std::string& value_name);
  /// kNone when there is none.
  ValueId find_value(const std::string& value_name) const;
  /// A new value whose name starts with `stem`.
  ValueId new_value(const std::string& stem);
  Value& value(ValueId id) { return values_[id]; }
  const Value& value(ValueId id) const { return values_[id]; }
  std::size_t value_count() const { return values_.size(); }
  bool has_value(ValueId id) const { return values_.contains(id); }
  IdRange<ValueId> value_ids() const { return IdRange<ValueId>(values_.size()); }
  /// All values, until one is added.
  std::span<Value> values() { return {values_.begin(), values_.end()}; }
  std::span<const Value> values() const { return {values_.begin(), values_.end()}; }

  /// Adds a node, gives it an id, a unique name (from its own, or Op_index) and links its values. Throws
  /// InvalidArgument naming node and value when an output has a producer already, or is an input or constant.
  NodeId add_node(Node node);
  /// Unlinks and removes a node; its outputs stay, without producer. What ran before it by a control edge then runs
  /// before what ran after it by one.
  void remove_node(NodeId id);
  /// Makes `later` run after `earlier`, though it reads nothing of it; twice is once. The order finds cycles.
  void add_control_edge(NodeId earlier, NodeId later);
  void remove_control_edge(NodeId earlier, NodeId later);
  /// The node with this name; kNone when there is none.
  NodeId find_node(const std::string& node_name) const;
  /// Makes input `index` of a node read another value.
  void set_input(NodeId id, std::size_t index, ValueId value);
  /// Makes output `index` of a node be `value`, which must have no producer, or kNone. The old one stays, without
  /// producer.
  void set_output(NodeId id, std::size_t index, ValueId value);
  /// Makes everything that reads `from` read `to`, graph outputs included when `outputs` is set. Bodies that
  /// capture `from` capture `to`; a value of theirs that has its name is renamed.
  void replace_uses(ValueId from, ValueId to, bool outputs);
  /// Lists a value as the graph's next input or output.
  void add_input(ValueId value);
  void add_output(ValueId value);
  /// Gives a value contents, as an initializer of the graph.
  void add_initializer(ValueId value, ConstantPtr contents);
  /// Whether the id is a node's, which may be gone.
  bool has_node(NodeId id) const { return nodes_.contains(id) && nodes_[id] != nullptr; }
  Node& node(NodeId id) { return *nodes_[id]; }
  const Node& node(NodeId id) const { return *nodes_[id]; }
  /// The nodes that there are, by index. Nodes may be removed meanwhile; those that are added are not met.
  NodeIds node_ids() const { return NodeIds(*this); }
  /// Above all indices of nodes.
  std::size_t node_limit() const { return nodes_.size(); }
  std::size_t node_count() const { return node_count_; }

  /// Puts a graph in the place of a node: `body_inputs` are what the graph's inputs are called here, and its outputs become
  /// the node's, in order. Names that are taken here change; names of the enclosing graph are this one's. Nodes without
  /// origins get the node's.
  void splice(NodeId id, const Graph& body, const std::vector<ValueId>& body_inputs);

  /// Recomputes `captured` of nodes with bodies, and the uses they make.
  void update_captures();

 private:
  class Splice;
  friend class GraphVerifier;
  std::string unique_node_name(const Node& node, NodeId id) const;
  std::string unique_value_name(const std::string& stem) const;
  void link(NodeId id);
  void drop_use(ValueId value, Use use);
  void rename_value(ValueId value, const std::string& new_name);
  void rename_local(ValueId value);
  void rename_outer(const std::string& from, const std::string& to);
  void capture_from(const Graph& body, std::vector<ValueId>& captured);

  PerValue<Value> values_;
  PerNode<std::unique_ptr<Node>> nodes_;
  std::unordered_map<std::string, ValueId> value_names_;
  std::unordered_map<std::string, NodeId> node_names_;
  std::size_t node_count_ = 0;
};

/// Calls `visit` for every body in the node's attributes, in the order of the attributes' names.
template <class Visit>
void for_each_body(const Node& node, Visit&& visit) {
  for (const auto& [name, attribute] : node.attributes) {
    for (const std::shared_ptr<Graph>& body : attribute.graphs) visit(*body);
  }
}

/// The order `default`: each node after all that it reads and after those that control edges put before it.
/// Deterministic: a reverse depth-first walk from the leaves with an explicit stack, inputs pushed by the order of
/// their nodes' indices (so the highest index is walked first). Throws InvalidArgument naming the nodes of a cycle.
std::vector<NodeId> topological_order(const Graph& graph);

/// "node 'name' (Op)", for errors.
std::string described(const Node& node);

/// Each value's name.
std::vector<std::string> names_of(const Graph& graph, const std::vector<ValueId>& values);

/// Gives nodes that took the place of others their control edges: `heirs` has the new node of each old one. Edges
/// between nodes of one heir are gone. May make a cycle, which the order finds.
void inherit_control_edges(const Graph& before, const std::map<NodeId, NodeId>& heirs,
                           Graph& after);

/// A node of the model as it was loaded, for everything that is said to users.
struct OriginalNode {
  std::string name;
  std::string op_type;
  std::string domain;
};

/// Original nodes that passes removed, by their index in Model::original, each with the name of its pass. A node that
/// another one replaced is not removed.
using RemovalLog = std::map<std::int32_t, std::string>;

/// A model: a main graph and what the file says besides.
struct Model {
  Graph graph;
  std::string path;  ///< "" when it came from memory
  std::int64_t ir_version = 0;
  std::map<std::string, std::int64_t> opsets;
  std::string producer_name, producer_version, domain, doc;
  std::int64_t model_version = 0;
  std::map<std::string, std::string> metadata;
  std::vector<OriginalNode>
      original;  ///< of the main graph, in the file's order; then those of bodies, as "loop/body/add"
  RemovalLog removed;
  /// Symbols that the file gives to dimensions of which inference knows nothing. Files often carry types of another export,
  /// so equal ones may be different sizes. Not those that only outputs of the main graph have which no node reads:
  /// these values have has_unproven_symbols.
  std::set<std::string> unproven_symbols;
};

}  // namespace backplane::core
