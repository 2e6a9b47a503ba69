// A graph being rewritten: a copy that passes change, and that is handed to the host's editor at the end.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/patterns/nodes.hpp"
#include "plugins/cpu/dense/activation.hpp"

namespace backplane::cpu {

constexpr const char* kPrivateDomain = "backplane.cpu";

using AttributeValue =
    std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>>;

/// A node of the working graph: one of the original graph as it is, or one that replaces several.
struct WorkNode {
  std::string domain, op;
  std::vector<std::string> inputs, outputs;          // "": left out
  std::map<std::string, AttributeValue> attributes;  // of changed nodes
  sdk::Node original;               // of unchanged nodes, and of the first replaced one
  std::vector<sdk::Node> replaced;  // the original nodes whose work it does
  bool changed = false;

  bool is(std::string_view op_type, std::string_view of_domain = "") const {
    return op == op_type && domain == of_domain;
  }
  const std::string& input(std::size_t index) const;  // "" past the end
  /// Sets input `index`, filling with left-out ones before it.
  void set_input(std::size_t index, const std::string& value);
  void set_activation(const Activation& activation);
  /// What set_activation was given.
  Activation activation() const;
};

/// Nodes in topological order, and who makes and reads each value.
class WorkingGraph {
 public:
  WorkingGraph(const sdk::Graph& graph, sdk::Rewrite& edit);
  WorkingGraph(const WorkingGraph&) = delete;
  WorkingGraph& operator=(const WorkingGraph&) = delete;

  /// Nodes in topological order; some may be null (removed). Indices stay valid while passes run.
  std::size_t size() const { return nodes_.size(); }
  WorkNode* at(std::size_t index) const { return nodes_[index].get(); }

  /// The node that makes a value; nullptr: it comes from outside or is constant.
  WorkNode* producer(const std::string& value) const;
  /// The nodes that read it, each once per input.
  std::vector<WorkNode*> consumers(const std::string& value) const;
  /// The one node that reads the value, once, where nobody outside does; nullptr otherwise.
  WorkNode* only_consumer(const std::string& value) const;
  bool is_output(const std::string& value) const;

  /// What the original graph knows of a value; empty for values that passes added.
  sdk::ValueInfo info(const std::string& value) const;
  /// A constant of the original graph, its elements unread; empty for other values.
  sdk::ValueInfo constant_info(const std::string& value) const;
  bool is_constant(const std::string& value) const {
    return static_cast<bool>(constant_info(value));
  }
  /// The contents of a constant of the original graph, for small ones: large ones are copied; nullptr for other values.
  const bp_tensor* constant(const std::string& value) const;
  bool is_float(const std::string& value) const;
  /// A constant of one float element (of any rank): writes it and returns true.
  bool scalar(const std::string& value, float& out) const;
  /// The elements of a constant of integers, none of a value that is left out; false: not constant.
  bool integers(const std::string& value, std::vector<int64_t>& out) const;
  /// The axes of a Reduce... node, an attribute or an input; false: not constant.
  bool reduced_axes(const WorkNode& node, std::vector<int64_t>& axes) const;
  /// Whether two values surely have the same dims.
  bool same_dims(const std::string& a, const std::string& b) const;

  /// The original nodes that passes have changed or removed. All others read and write what they do in the original graph, so a
  /// pattern of these alone is found there.
  const patterns::NodeSet& taken() const { return taken_; }
  /// `last`, which is among these nodes that are not taken, becomes one of the private domain that does the work of all.
  WorkNode* merge(const std::vector<sdk::Node>& nodes, const sdk::Node& last, const char* op,
                  std::vector<std::string> inputs);

  /// `into` now also does the work of `from`, which is removed; `into` moves to the place of `from`.
  void absorb(WorkNode* into, WorkNode* from);
  /// Removes a node whose work others do: `into` replaces it too.
  void remove(WorkNode* node, WorkNode* into);
  /// The same where nobody reads the node's first output; null is no node.
  void remove_if_unread(WorkNode* node, WorkNode* into);
  void set_input(WorkNode* node, std::size_t index, const std::string& value);
  void set_inputs(WorkNode* node, std::vector<std::string> values);
  void set_output(WorkNode* node, std::size_t index, const std::string& value);
  /// Marks a node as changed: it will be added anew, its attributes copied from the original.
  void change(WorkNode* node);
  /// Adds a node that replaces none; it is not among at(index).
  WorkNode* add(const std::string& domain, const std::string& op, std::vector<std::string> inputs,
                std::vector<std::string> outputs);

  /// A name that no value has, made from `base`.
  std::string fresh(const std::string& base);
  sdk::Rewrite& edit() { return edit_; }

  /// Hands every changed node, and every added one that is read, to the host.
  void emit();

 private:
  std::size_t slot(const WorkNode* node) const { return slots_.at(node); }
  void unlink(WorkNode* node);
  void link(WorkNode* node);
  void take(const WorkNode* node);

  const sdk::Graph& graph_;
  sdk::Rewrite& edit_;
  std::deque<std::unique_ptr<WorkNode>> nodes_;
  std::deque<std::unique_ptr<WorkNode>> added_;
  std::unordered_map<const WorkNode*, std::size_t> slots_;
  std::unordered_map<std::string, WorkNode*> producers_;
  std::unordered_map<std::string, std::vector<WorkNode*>> consumers_;
  std::unordered_map<const bp_node*, WorkNode*> by_original_;  // of nodes that are not taken
  patterns::NodeSet taken_;
  std::unordered_map<std::string, int> fresh_names_;
};

}  // namespace backplane::cpu
