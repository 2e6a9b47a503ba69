// What rewriting passes add, kept for the passes after them: a graph as it will be, whose nodes can still be changed.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::cuda {

/// "" of one that is left out.
std::string name_of(const sdk::ValueInfo& value);

using AttributeValue =
    std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>>;

/// A node of the graph as it will be: one of the original, or one that a pass added.
struct DraftNode {
  std::string domain, op_type, name;
  std::vector<std::string> inputs, outputs;  ///< "": left out
  std::map<std::string, AttributeValue> attributes;
  std::vector<sdk::Node> replaces;  ///< of the original graph; of an original node, itself
  bool is_added = false;            ///< the host does not have it as it is here
  bool is_fixed = false;            ///< has attributes of other kinds, and is the host's already

  bool is(std::string_view op, std::string_view of_domain = "") const {
    return op_type == op && domain == of_domain;
  }
  const std::string& input(std::size_t index) const {
    static const std::string kNone;
    return index < inputs.size() ? inputs[index] : kNone;
  }
  std::int64_t get_int(const std::string& attribute, std::int64_t otherwise) const;
  std::vector<std::int64_t> get_ints(const std::string& attribute) const;
};

/// An editor for passes that keeps the nodes they add. Constants and notes go to the host at once; of several notes of a node,
/// each pass's stays.
class RecordedEdit {
 public:
  RecordedEdit(const sdk::Graph& graph, sdk::Rewrite& host);
  RecordedEdit(const RecordedEdit&) = delete;
  RecordedEdit& operator=(const RecordedEdit&) = delete;

  /// For the passes.
  sdk::Rewrite& edit() { return edit_; }
  /// The nodes of the graph as it is now, makers before readers.
  std::vector<DraftNode> nodes() const;
  /// Hands the nodes that are added to the host.
  void hand_over(const std::vector<DraftNode>& nodes) const;

  /// A constant that a pass added.
  struct Constant {
    sdk::DataType type;
    sdk::Dims dims;
  };
  /// Null: no pass added a constant of this name.
  const Constant* constant(const std::string& name) const;

 private:
  static const bp_rewrite_api& table();
  void note(const sdk::Node& node, const std::string& text);
  void add_constant(const bp_constant_desc& desc);
  void add_node(const bp_node_desc& desc);

  sdk::Graph graph_;
  sdk::Rewrite& host_;
  sdk::Rewrite edit_;
  std::vector<DraftNode> added_;
  std::set<const bp_node*> replaced_;
  std::map<const bp_node*, std::string> notes_;  // that the host was given
  std::map<std::string, Constant> constants_;
};

}  // namespace backplane::cuda
