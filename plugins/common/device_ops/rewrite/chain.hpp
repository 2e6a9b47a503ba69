// Trees of element-wise nodes, for rewrites that make one node of them.
#pragma once

#include <string>
#include <vector>

#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::device_ops {

/// The types of elements of which trees are made. What a tree makes between its nodes is float, and not rounded.
inline bool is_chained(DataType type) {
  return type == DataType::Float || type == DataType::Float16 || type == DataType::BFloat16;
}

/// Whether the node makes one tensor of a known number of axes, element by element, of such as have its type, which is chained.
bool is_elementwise(const sdk::Node& node);

/// An element-wise node and those before it whose values nobody else reads and that have its dims, as one expression. Its
/// elements are what the nodes apart make, whatever the dims are in a run: broadcasting all operands at once is broadcasting
/// them step by step, to the same dims and with the same errors. What dims decide is how often an inner value is computed: one
/// that may turn out to have fewer elements is taken over only where that costs next to nothing.
class Chain {
 public:
  /// `root` is element-wise; nodes of `taken` are none of the tree. Both stay as long as the chain.
  Chain(const sdk::Node& root, const NodeSet& taken);

  /// The root last.
  const std::vector<sdk::Node>& nodes() const { return nodes_; }
  const sdk::Node& root() const { return root_; }
  /// The text of the expression: statements, and what it comes to after them; operand k is called v and its number.
  const std::string& statements() const { return statements_; }
  const std::string& result() const { return result_; }
  /// The names of the values that it is made of.
  const std::vector<std::string>& operands() const { return operands_; }
  /// How many of them have, or may have, the dims of what is made; the others broadcast.
  std::size_t whole_operands() const { return whole_operands_; }
  /// Whether computing an element once more costs next to nothing.
  bool is_cheap() const;
  /// Whether a node of its own does more than the root does.
  bool is_more_than_root() const;

  /// The operands as the draft's next inputs; the expression as attributes "statements", "result" and, where they are
  /// known, "dims"; and that the draft replaces the nodes. The constants that it needs go to `edit`.
  void add_to(sdk::NodeDraft& draft, sdk::Rewrite& edit) const;

 private:
  std::string visit(const sdk::Node& node);
  std::string operand(const sdk::ValueInfo& value);
  std::string new_operand(std::string name);
  bool is_inner(const sdk::ValueInfo& value) const;

  sdk::Node root_;
  const NodeSet& taken_;
  std::size_t visited_ = 0, whole_operands_ = 0;
  std::vector<sdk::Node> nodes_;
  std::vector<std::string> operands_;
  std::string statements_, result_;
};

}  // namespace backplane::device_ops
