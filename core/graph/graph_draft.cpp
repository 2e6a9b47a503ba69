#include "core/graph/graph_draft.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

constexpr int kDeepestNesting = 64;

/// Nearest names of values that somebody makes.
std::string suggestion(const Graph& graph, const std::string& name) {
  constexpr std::size_t kMost = 5000;
  if (graph.value_count() > kMost) return {};
  std::vector<std::string> known;
  for (const Value& value : graph.values()) {
    if (value.producer != kNone || value.constant != nullptr || value.is_input)
      known.push_back(value.name);
  }
  return did_you_mean(name, known);
}

std::vector<std::string> each_once(const std::vector<std::string>& names) {
  std::vector<std::string> result;
  std::unordered_set<std::string> seen;
  for (const std::string& name : names) {
    if (seen.insert(name).second) result.push_back(name);
  }
  return result;
}

/// Calls `visit` for what a node reads: its inputs, then what its bodies capture.
template <class Visit>
void for_each_read(const Node& node, Visit&& visit) {
  for (const std::vector<ValueId>* list : {&node.inputs, &node.captured}) {
    for (const ValueId input : *list) {
      if (input != kNone) visit(input);
    }
  }
}

}  // namespace

GraphDraft::GraphDraft(const Graph& graph) : name(graph.name), doc(graph.doc), graph_(graph) {
  inputs_ = names_of(graph, graph.inputs);
  outputs_ = names_of(graph, graph.outputs);
  graph_.inputs.clear();
  graph_.outputs.clear();
  for (Value& value : graph_.values()) {
    const bool is_border = value.is_input || value.is_output;
    if (value.type.kind != Type::Kind::Unknown)
      (is_border ? declared_ : learned_)[value.name] = value.type;
    value.is_input = value.is_output = value.is_outer = value.overridable = false;
  }
  for (const NodeId id : graph_.node_ids()) {
    std::map<std::string, Attribute>& attributes = graph_.node(id).attributes;
    for (auto entry = attributes.begin(); entry != attributes.end();) {
      const Attribute& attribute = entry->second;
      if (attribute.graphs.empty()) {
        ++entry;
        continue;
      }
      BodyList& list = bodies_[id][entry->first];
      list.list = attribute.type == Attribute::Type::Graphs;
      for (const std::shared_ptr<Graph>& body : attribute.graphs) {
        list.bodies.emplace_back(*body);
        nesting_ = std::max(nesting_, list.bodies.back().nesting_ + 1);
      }
      entry = attributes.erase(entry);
    }
  }
  graph_.update_captures();
}

void GraphDraft::check_node(NodeId id) const {
  if (!graph_.has_node(id))
    invalid("the graph has no node ", id, "; nodes are numbered as add_node gave them");
}

NodeId GraphDraft::add_node(const std::string& op_type, const std::string& domain,
                            const std::string& node_name, const std::vector<std::string>& inputs,
                            const std::vector<std::string>& outputs) {
  if (op_type.empty()) invalid("a node needs an operator");
  if (!node_name.empty() && graph_.find_node(node_name) != kNone)
    invalid("the graph has a node ", quoted(node_name), " already; give this one another name");
  Node node;
  node.name = node_name;
  node.op_type = op_type;
  node.domain = domain == "ai.onnx" ? std::string() : domain;
  const auto value = [&](const std::string& value_name) {
    return value_name.empty() ? kNone : graph_.value_named(value_name);
  };
  for (const std::string& input : inputs) node.inputs.push_back(value(input));
  for (const std::string& output : outputs) node.outputs.push_back(value(output));
  return graph_.add_node(std::move(node));
}

void GraphDraft::remove_node(NodeId id) {
  check_node(id);
  graph_.remove_node(id);
  bodies_.erase(id);
}

const Node& GraphDraft::node(NodeId id) const {
  check_node(id);
  return graph_.node(id);
}

std::vector<NodeId> GraphDraft::nodes() const {
  std::vector<NodeId> ids;
  for (const NodeId id : graph_.node_ids()) ids.push_back(id);
  return ids;
}

void GraphDraft::set_attribute(NodeId id, const std::string& attribute_name, Attribute attribute) {
  check_node(id);
  if (attribute_name.empty()) invalid("an attribute needs a name");
  if (const auto bodies = bodies_.find(id); bodies != bodies_.end())
    bodies->second.erase(attribute_name);
  graph_.node(id).attributes[attribute_name] = std::move(attribute);
}

void GraphDraft::set_bodies(NodeId id, const std::string& attribute_name,
                            std::vector<GraphDraft> bodies, bool list) {
  check_node(id);
  if (attribute_name.empty()) invalid("an attribute needs a name");
  for (const GraphDraft& body : bodies) {
    if (body.nesting_ + 1 > kDeepestNesting)
      invalid("graphs are nested more than ", kDeepestNesting, " deep");
    nesting_ = std::max(nesting_, body.nesting_ + 1);
  }
  graph_.node(id).attributes.erase(attribute_name);
  bodies_[id][attribute_name] = {std::move(bodies), list};
}

void GraphDraft::remove_attribute(NodeId id, const std::string& attribute_name) {
  check_node(id);
  bool found = graph_.node(id).attributes.erase(attribute_name) > 0;
  if (const auto bodies = bodies_.find(id); bodies != bodies_.end())
    found = bodies->second.erase(attribute_name) > 0 || found;
  if (!found) invalid(described(graph_.node(id)), " has no attribute ", quoted(attribute_name));
}

void GraphDraft::set_priority(NodeId id, int priority) {
  check_node(id);
  graph_.node(id).priority = priority;
}

void GraphDraft::add_control_edge(NodeId earlier, NodeId later) {
  check_node(earlier);
  check_node(later);
  graph_.add_control_edge(earlier, later);
}

void GraphDraft::declare(const std::string& value_name, Type type) {
  (void)graph_.value_named(value_name);
  declared_[value_name] = std::move(type);
}

Type GraphDraft::type_of(const std::string& value_name) const {
  if (const auto found = declared_.find(value_name); found != declared_.end()) return found->second;
  const auto found = learned_.find(value_name);
  return found != learned_.end() ? found->second : Type();
}

void GraphDraft::learn(const Graph& inferred) {
  for (const Value& value : inferred.values()) {
    if (value.type.kind != Type::Kind::Unknown) learned_[value.name] = value.type;
  }
}

void GraphDraft::add_initializer(const std::string& value_name, ConstantPtr contents) {
  const ValueId id = graph_.value_named(value_name);
  Value& value = graph_.value(id);
  if (value.producer != kNone) {
    invalid("the initializer ", quoted(value_name), " is also made by ",
            described(graph_.node(value.producer)), "; give one of them another name");
  }
  if (value.constant == nullptr) graph_.initializers.push_back(id);
  value.constant = std::move(contents);
}

void GraphDraft::remove_initializer(const std::string& value_name) {
  const ValueId id = graph_.find_value(value_name);
  if (id == kNone || graph_.value(id).constant == nullptr) {
    invalid("the graph has no initializer ", quoted(value_name),
            did_you_mean(value_name, names_of(graph_, graph_.initializers)));
  }
  std::erase(graph_.initializers, id);
  graph_.value(id).constant = nullptr;
}

void GraphDraft::annotate(const std::string& value_name, const std::string& parameter,
                          const std::string& tensor_name) {
  if (parameter.empty()) invalid("a quantization annotation needs a parameter's name");
  graph_.value(graph_.value_named(value_name)).quantization[parameter] = tensor_name;
}

void GraphDraft::set_inputs(std::optional<std::vector<std::string>> names) {
  if (names) {
    for (const std::string& input : *names) (void)graph_.value_named(input);
    names = each_once(*names);
  }
  inputs_ = std::move(names);
}

void GraphDraft::set_outputs(std::optional<std::vector<std::string>> names) {
  if (names) {
    for (const std::string& output : *names) (void)graph_.value_named(output);
    names = each_once(*names);
  }
  outputs_ = std::move(names);
}

Graph GraphDraft::resolve(std::int64_t ir_version) const { return resolve_in(nullptr, ir_version); }

/// Whether one of the graphs around has a value of this name: made, given, read or declared there.
bool GraphDraft::knows(const Scope* scope, const std::string& value_name) {
  for (; scope != nullptr; scope = scope->enclosing) {
    const ValueId id = scope->graph->find_value(value_name);
    if (id == kNone) continue;
    const Value& value = scope->graph->value(id);
    if (value.producer != kNone || value.constant != nullptr || value.is_input ||
        !value.uses.empty() || scope->draft->declared_.contains(value_name))
      return true;
  }
  return false;
}

Graph GraphDraft::resolve_in(const Scope* enclosing, std::int64_t ir_version) const {
  Graph graph(graph_);
  graph.name = name;
  graph.doc = doc;
  for (Value& value : graph.values()) {
    value.type = type_of(value.name);
    const bool declared = declared_.contains(value.name);
    if (value.constant != nullptr && !declared)
      value.type = Type::tensor(value.constant->type(), value.constant->dims());
  }
  if (inputs_) set_given_inputs(graph, enclosing);
  resolve_bodies(graph, enclosing, ir_version);
  find_inputs(graph, enclosing, ir_version);
  find_outputs(graph, enclosing);
  (void)topological_order(graph);  // throws for a cycle
  return graph;
}

void GraphDraft::resolve_bodies(Graph& graph, const Scope* enclosing,
                                std::int64_t ir_version) const {
  const Scope scope{&graph, this, enclosing};
  for (const auto& [id, attributes] : bodies_) {
    for (const auto& [attribute_name, list] : attributes) {
      Attribute attribute;
      attribute.type = list.list ? Attribute::Type::Graphs : Attribute::Type::Graph;
      for (const GraphDraft& body : list.bodies) {
        try {
          attribute.graphs.push_back(std::make_shared<Graph>(body.resolve_in(&scope, ir_version)));
        } catch (const Error& error) {
          throw error.within(described(graph.node(id)) + ": its body " + quoted(attribute_name));
        }
      }
      graph.node(id).attributes[attribute_name] = std::move(attribute);
    }
  }
  graph.update_captures();
}

void GraphDraft::set_given_inputs(Graph& graph, const Scope* enclosing) const {
  for (const std::string& input : *inputs_) {
    const ValueId id = graph.value_named(input);
    Value& value = graph.value(id);
    if (value.producer != kNone) {
      invalid("the graph input ", quoted(input), " is also made by ",
              described(graph.node(value.producer)), "; rename one");
    }
    value.overridable = value.constant != nullptr && enclosing == nullptr;
    graph.add_input(id);
  }
}

/// The initializers that are not inputs yet become such: before IR version 4 all are, and none can be replaced.
void GraphDraft::list_initializers(Graph& graph) {
  const auto list = [&](ValueId id) {
    Value& value = graph.value(id);
    value.overridable = false;
    if (value.constant != nullptr && !value.is_input) graph.add_input(id);
  };
  for (const ValueId id : std::vector<ValueId>(graph.inputs)) list(id);
  for (const ValueId id : graph.initializers) list(id);
}

void GraphDraft::find_inputs(Graph& graph, const Scope* enclosing, std::int64_t ir_version) const {
  const bool lists_initializers = enclosing == nullptr && ir_version < 4;
  for (const NodeId id : graph.node_ids()) {
    for_each_read(graph.node(id), [&](ValueId input) {
      Value& value = graph.value(input);
      if (value.producer != kNone || value.is_input || value.is_outer) return;
      if (value.constant != nullptr) {
        if (lists_initializers && !inputs_) graph.add_input(input);
      } else if (knows(enclosing, value.name)) {
        value.is_outer = true;
      } else if (!inputs_) {
        graph.add_input(input);
      } else {
        invalid(described(graph.node(id)), ": its input ", quoted(value.name),
                " is made by no node, and is none of the graph inputs that were set and no "
                "initializer",
                suggestion(graph, value.name));
      }
    });
  }
  if (lists_initializers) list_initializers(graph);
  if (enclosing != nullptr) return;
  for (const ValueId input : graph.inputs) {
    if (graph.value(input).type.kind == Type::Kind::Unknown) {
      invalid("the graph input ", quoted(graph.value(input).name),
              " has no type; declare it, or make the value by a node");
    }
  }
}

void GraphDraft::find_outputs(Graph& graph, const Scope* enclosing) const {
  if (!outputs_) {
    for (const NodeId id : graph.node_ids()) {
      for (const ValueId output : graph.node(id).outputs) {
        if (output != kNone && graph.value(output).uses.empty()) graph.add_output(output);
      }
    }
    return;
  }
  for (const std::string& output : *outputs_) {
    const ValueId id = graph.value_named(output);
    Value& value = graph.value(id);
    const bool is_there = value.producer != kNone || value.constant != nullptr || value.is_input;
    if (!is_there && knows(enclosing, output)) {
      value.is_outer = true;
    } else if (!is_there) {
      invalid("the graph output ", quoted(output),
              " is made by no node, and is no input or initializer", suggestion(graph, output));
    }
    graph.add_output(id);
  }
}

}  // namespace backplane::core
