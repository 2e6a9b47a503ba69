// Putting a graph in the place of a node.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/base/error.hpp"
#include "core/graph/graph.hpp"

namespace backplane::core {

/// Copies one graph into another.
class Graph::Splice {
 public:
  Splice(Graph& into, NodeId id, const Graph& body)
      : into_(into), body_(body), node_(into.node(id)) {
    into_.remove_node(id);
  }

  void run(const std::vector<ValueId>& arguments) {
    for (std::size_t i = 0; i < body_.inputs.size(); ++i)
      ids_[body_.inputs[i]] = i < arguments.size() ? arguments[i] : kNone;
    for (std::size_t i = 0; i < std::min(node_.outputs.size(), body_.outputs.size()); ++i)
      bind_output(body_.outputs[i], node_.outputs[i]);
    add_values();
    for (const NodeId id : topological_order(body_)) add_copy(body_.node(id));
    for (const auto& [from, to] : handed_on_) hand_on(from, to);
    add_control_edges();
    into_.update_captures();
  }

 private:
  /// What a node of the body makes becomes the output itself, the first time it is one.
  void bind_output(ValueId from, ValueId to) {
    if (to == kNone) return;
    const bool made_here = body_.value(from).producer != kNone && !ids_.contains(from);
    if (made_here) {
      ids_[from] = to;
      keep_type(into_.value(to), body_.value(from));
    } else {
      handed_on_.emplace_back(from, to);
    }
  }

  static void keep_type(Value& value, const Value& known) {
    const bool vague =
        value.type.kind == Type::Kind::Unknown || (value.type.is_tensor() && !value.type.shape);
    if (vague && known.type.kind != Type::Kind::Unknown) value.type = known.type;
  }

  void add_values() {
    for (const Value& value : body_.values()) {
      if (ids_.contains(value.id)) continue;
      if (value.is_outer) {
        const bool known = into_.find_value(value.name) != kNone;
        ids_[value.id] = into_.value_named(value.name);
        if (!known) {  // of a graph further out
          into_.value(ids_[value.id]).is_outer = true;
          into_.value(ids_[value.id]).type = value.type;
        }
        continue;
      }
      const ValueId id = into_.value_named(fresh_name(value.name));
      ids_[value.id] = id;
      into_.value(id).type = value.type;
      into_.value(id).quantization = value.quantization;
      if (value.constant != nullptr) into_.add_initializer(id, value.constant);
    }
  }

  /// A name that neither graph has, unless it is the value's own and free.
  std::string fresh_name(const std::string& wanted) const {
    if (into_.find_value(wanted) == kNone) return wanted;
    for (std::size_t number = into_.value_count();; ++number) {
      std::string candidate = text(wanted, "_", number);
      if (into_.find_value(candidate) == kNone && body_.find_value(candidate) == kNone)
        return candidate;
    }
  }

  ValueId moved(ValueId id) const { return id == kNone ? kNone : ids_.at(id); }

  void add_copy(const Node& from) {
    Node node = from;
    for (ValueId& input : node.inputs) input = moved(input);
    for (ValueId& output : node.outputs) output = moved(output);
    for (auto& [key, attribute] : node.attributes) {
      for (std::shared_ptr<Graph>& graph : attribute.graphs) {
        graph = std::make_shared<Graph>(*graph);
        rename_captured(from, *graph);
      }
    }
    node.captured.clear();
    node.after.clear();  // nodes of the body
    node.before.clear();
    if (node.origins.empty()) node.origins = node_.origins;
    nodes_[from.id] = into_.add_node(std::move(node));
  }

  /// Those of the body, and those of the node for everything that takes its place.
  void add_control_edges() {
    for (const auto& [old_id, id] : nodes_) {
      for (const NodeId earlier : body_.node(old_id).after)
        into_.add_control_edge(nodes_.at(earlier), id);
      for (const NodeId earlier : node_.after) into_.add_control_edge(earlier, id);
      for (const NodeId later : node_.before) into_.add_control_edge(id, later);
    }
  }

  /// Over names that nobody has, since a new name may be another one's old name.
  void rename_captured(const Node& from, Graph& graph) const {
    const auto passing = [](ValueId id) { return text("\x01", id); };
    for (const ValueId captured : from.captured)
      graph.rename_outer(body_.value(captured).name, passing(captured));
    for (const ValueId captured : from.captured) {
      const ValueId to = moved(captured);
      if (to == kNone) throw Error(Code::Internal, "a body reads an input that is left out");
      graph.rename_outer(passing(captured), into_.value(to).name);
    }
  }

  /// An output that the body does not make itself.
  void hand_on(ValueId from, ValueId to) {
    const ValueId source = moved(from);
    if (source == kNone) invalid("an output of a body is an input that is left out");
    Node node;
    node.name = into_.value(to).name + "/handed_on";
    node.op_type = "Identity";
    node.since_version = node_.since_version;
    node.origins = node_.origins;
    node.inputs = {source};
    node.outputs = {to};
    into_.add_node(std::move(node));
  }

  Graph& into_;
  const Graph& body_;
  const Node node_;  ///< a copy: the node itself is gone
  std::unordered_map<ValueId, ValueId> ids_;
  std::map<NodeId, NodeId> nodes_;  ///< by the body's node
  std::vector<std::pair<ValueId, ValueId>> handed_on_;
};

void Graph::splice(NodeId id, const Graph& body, const std::vector<ValueId>& body_inputs) {
  const std::shared_ptr<const Graph> kept = std::make_shared<Graph>(body);  // may be the node's own
  Splice(*this, id, *kept).run(body_inputs);
}

}  // namespace backplane::core
