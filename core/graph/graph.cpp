#include "core/graph/graph.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
std::string described(const Node& node) {
  return text("node ", quoted(node.name), " (", single_line(node.op_type, 120), ")");
}

std::vector<std::string> names_of(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<std::string> names;
  for (const ValueId id : values) names.push_back(graph.value(id).name);
  return names;
}

bool Node::has_bodies() const {
  return std::any_of(attributes.begin(), attributes.end(),
                     [](const auto& entry) { return !entry.second.graphs.empty(); });
}

Graph::Graph(const Graph& other)
    : name(other.name),
      doc(other.doc),
      inputs(other.inputs),
      outputs(other.outputs),
      initializers(other.initializers),
      values_(other.values_),
      value_names_(other.value_names_),
      node_names_(other.node_names_),
      node_count_(other.node_count_) {
  nodes_.reserve(other.nodes_.size());
  for (const std::unique_ptr<Node>& node : other.nodes_) {
    const NodeId id = nodes_.add(node ? std::make_unique<Node>(*node) : nullptr);
    if (!node) continue;
    for (auto& [attribute_name, attribute] : nodes_[id]->attributes) {
      for (std::shared_ptr<Graph>& body : attribute.graphs) body = std::make_shared<Graph>(*body);
    }
  }
}

ValueId Graph::value_named(const std::string& value_name) {
  if (value_name.empty()) invalid("a value needs a name");
  const auto [entry, added] = value_names_.try_emplace(value_name, ValueId(values_.size()));
  if (added) {
    Value value;
    value.id = entry->second;
    value.name = value_name;
    values_.add(std::move(value));
  }
  return entry->second;
}

ValueId Graph::find_value(const std::string& value_name) const {
  const auto entry = value_names_.find(value_name);
  return entry == value_names_.end() ? kNone : entry->second;
}

std::string Graph::unique_value_name(const std::string& stem) const {
  if (!stem.empty() && !value_names_.contains(stem)) return stem;
  // Starting at the number of values keeps this from being quadratic in values of one stem.
  for (std::size_t number = values_.size();; ++number) {
    std::string candidate = text(stem, "_", number);
    if (!value_names_.contains(candidate)) return candidate;
  }
}

ValueId Graph::new_value(const std::string& stem) { return value_named(unique_value_name(stem)); }

std::string Graph::unique_node_name(const Node& node, NodeId id) const {
  if (!node.name.empty() && !node_names_.contains(node.name)) return node.name;
  const std::string stem = text(node.op_type, "_", id);
  std::string candidate = stem;
  for (int number = 1; node_names_.contains(candidate); ++number)
    candidate = text(stem, "_", number);
  return candidate;
}

NodeId Graph::add_node(Node node) {
  const NodeId id(nodes_.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (output == kNone) continue;
    const Value& target = value(output);
    const auto fail = [&](const std::string& reason) {
      invalid(described(node), ": its output ", quoted(target.name), " ", reason,
              "; give one of them another name");
    };
    if (target.producer != kNone) fail("is also made by " + described(this->node(target.producer)));
    if (target.is_input) fail("is also an input of the graph");
    if (target.constant) fail("is also an initializer");
    if (target.is_outer) fail("is also a value of an enclosing graph");
    const auto begin = node.outputs.begin();
    if (std::find(begin, begin + static_cast<std::ptrdiff_t>(i), output) !=
        begin + static_cast<std::ptrdiff_t>(i)) {
      fail("stands twice among its outputs");
    }
  }
  node.id = id;
  node.after.clear();
  node.before.clear();
  node.name = unique_node_name(node, id);
  node_names_.emplace(node.name, id);
  nodes_.add(std::make_unique<Node>(std::move(node)));
  ++node_count_;
  link(id);
  return id;
}

void Graph::link(NodeId id) {
  const Node& added = node(id);
  for (std::size_t i = 0; i < added.inputs.size(); ++i) {
    if (added.inputs[i] != kNone)
      value(added.inputs[i]).uses.push_back({id, static_cast<std::int32_t>(i)});
  }
  for (const ValueId captured : added.captured) value(captured).uses.push_back({id, -1});
  for (std::size_t i = 0; i < added.outputs.size(); ++i) {
    if (added.outputs[i] == kNone) continue;
    value(added.outputs[i]).producer = id;
    value(added.outputs[i]).producer_output = static_cast<std::int32_t>(i);
  }
}

void Graph::drop_use(ValueId id, Use use) {
  // From the back: whoever removes many nodes removes the youngest first, and they stand there.
  std::vector<Use>& uses = value(id).uses;
  const auto found = std::find(uses.rbegin(), uses.rend(), use);
  if (found != uses.rend()) uses.erase(std::next(found).base());
}

void Graph::remove_node(NodeId id) {
  const Node& removed = node(id);
  for (std::size_t i = 0; i < removed.inputs.size(); ++i) {
    if (removed.inputs[i] != kNone) drop_use(removed.inputs[i], {id, static_cast<std::int32_t>(i)});
  }
  for (const ValueId captured : removed.captured) drop_use(captured, {id, -1});
  for (const ValueId output : removed.outputs) {
    if (output == kNone) continue;
    value(output).producer = kNone;
    value(output).producer_output = -1;
  }
  const std::vector<NodeId> earlier = removed.after, later = removed.before;
  for (const NodeId other : earlier) remove_control_edge(other, id);
  for (const NodeId other : later) remove_control_edge(id, other);
  for (const NodeId first : earlier) {
    for (const NodeId second : later) add_control_edge(first, second);
  }
  node_names_.erase(removed.name);
  nodes_[id].reset();
  --node_count_;
}

void Graph::add_control_edge(NodeId earlier, NodeId later) {
  std::vector<NodeId>& after = node(later).after;
  if (std::find(after.begin(), after.end(), earlier) != after.end()) return;
  after.push_back(earlier);
  node(earlier).before.push_back(later);
}

void Graph::remove_control_edge(NodeId earlier, NodeId later) {
  std::erase(node(later).after, earlier);
  std::erase(node(earlier).before, later);
}

NodeId Graph::find_node(const std::string& node_name) const {
  const auto entry = node_names_.find(node_name);
  return entry == node_names_.end() ? kNone : entry->second;
}

void Graph::set_input(NodeId id, std::size_t index, ValueId new_value) {
  ValueId& input = node(id).inputs.at(index);
  if (input == new_value) return;
  const Use use{id, static_cast<std::int32_t>(index)};
  if (input != kNone) drop_use(input, use);
  input = new_value;
  if (new_value != kNone) value(new_value).uses.push_back(use);
}

void Graph::set_output(NodeId id, std::size_t index, ValueId new_value) {
  ValueId& output = node(id).outputs.at(index);
  if (output == new_value) return;
  if (new_value != kNone) {
    Value& target = value(new_value);
    if (target.producer != kNone || target.is_input || target.constant || target.is_outer) {
      invalid(described(node(id)), ": cannot make ", quoted(target.name),
              ", which something else makes");
    }
    target.producer = id;
    target.producer_output = static_cast<std::int32_t>(index);
  }
  if (output != kNone) {
    value(output).producer = kNone;
    value(output).producer_output = -1;
  }
  output = new_value;
}

void Graph::replace_uses(ValueId from, ValueId to, bool replace_outputs) {
  if (from == to) return;
  std::vector<Use> moved = std::exchange(value(from).uses, {});
  for (const Use& use : moved) {
    Node& reader = node(use.node);
    if (use.input >= 0) {
      reader.inputs[static_cast<std::size_t>(use.input)] = to;
      value(to).uses.push_back(use);
      continue;
    }
    for_each_body(reader,
                  [&](Graph& body) { body.rename_outer(value(from).name, value(to).name); });
    std::erase(reader.captured, from);
    if (std::find(reader.captured.begin(), reader.captured.end(), to) == reader.captured.end()) {
      reader.captured.push_back(to);
      value(to).uses.push_back(use);
    }
  }
  if (!replace_outputs || !value(from).is_output) return;
  std::replace(outputs.begin(), outputs.end(), from, to);
  value(from).is_output = false;
  value(to).is_output = true;
}

void Graph::rename_value(ValueId id, const std::string& new_name) {
  value_names_.erase(value(id).name);
  value_names_.emplace(new_name, id);
  value(id).name = new_name;
}

/// Gives a value of this graph another name, for the bodies in it too.
void Graph::rename_local(ValueId id) {
  const std::string fresh = unique_value_name(value(id).name);
  for (const Use& use : value(id).uses) {
    if (use.input >= 0) continue;
    for_each_body(node(use.node), [&](Graph& body) { body.rename_outer(value(id).name, fresh); });
  }
  rename_value(id, fresh);
}

/// In a body: what is read as `from` of the enclosing graph is read as `to`.
void Graph::rename_outer(const std::string& from, const std::string& to) {
  const ValueId old_value = find_value(from);
  if (old_value == kNone || !value(old_value).is_outer)
    return;  // not captured, or hidden by a value of the body
  ValueId target = find_value(to);
  if (target != kNone && !value(target).is_outer) {
    rename_local(target);
    target = kNone;
  }
  // Bodies inside this one follow first, while their nodes still list `from` as captured.
  for (const Use& use : value(old_value).uses) {
    if (use.input >= 0) continue;
    for_each_body(node(use.node), [&](Graph& body) { body.rename_outer(from, to); });
  }
  if (target == kNone) {
    rename_value(old_value, to);
    return;
  }
  replace_uses(old_value, target, true);
}

void Graph::add_input(ValueId id) {
  inputs.push_back(id);
  value(id).is_input = true;
}

void Graph::add_output(ValueId id) {
  outputs.push_back(id);
  value(id).is_output = true;
}

void Graph::add_initializer(ValueId id, ConstantPtr contents) {
  initializers.push_back(id);
  value(id).constant = std::move(contents);
}

/// Adds to `captured` the values of this graph that a body's nodes and outputs read, each once.
void Graph::capture_from(const Graph& body, std::vector<ValueId>& captured) {
  for (const Value& inner : body.values()) {
    if (!inner.is_outer || (inner.uses.empty() && !inner.is_output)) continue;
    const bool known = value_names_.contains(inner.name);
    const ValueId id = value_named(inner.name);
    if (!known) {  // a body in a body: the name belongs to a graph further out
      value(id).is_outer = true;
      value(id).type = inner.type;
    }
    if (std::find(captured.begin(), captured.end(), id) == captured.end()) captured.push_back(id);
  }
}

void Graph::update_captures() {
  for (const std::unique_ptr<Node>& entry : nodes_) {
    if (!entry) continue;
    for (const ValueId captured : entry->captured) drop_use(captured, {entry->id, -1});
    entry->captured.clear();
    if (!entry->has_bodies()) continue;
    for_each_body(*entry, [&](Graph& body) {
      body.update_captures();
      capture_from(body, entry->captured);
    });
    for (const ValueId captured : entry->captured) value(captured).uses.push_back({entry->id, -1});
  }
}

void inherit_control_edges(const Graph& before, const std::map<NodeId, NodeId>& heirs,
                           Graph& after) {
  const auto heir_of = [&](NodeId id) {
    const auto heir = heirs.find(id);
    return heir == heirs.end() ? id : heir->second;
  };
  const auto connect = [&](NodeId earlier, NodeId later) {
    earlier = heir_of(earlier);
    later = heir_of(later);
    if (earlier != later && after.has_node(earlier) && after.has_node(later))
      after.add_control_edge(earlier, later);
  };
  for (const auto& [old, heir] : heirs) {
    for (const NodeId earlier : before.node(old).after) connect(earlier, old);
    for (const NodeId later : before.node(old).before) connect(old, later);
  }
}

}  // namespace backplane::core
