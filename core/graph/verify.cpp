#include "core/graph/verify.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

std::string described(const Value& value) { return "the value " + quoted(value.name); }

constexpr std::int32_t kCapturedUse = -1;

/// Of the entries that an attribute of this type has: their number, and whether it is a list.
struct AttributeEntries {
  std::size_t count;
  bool is_list;
};

AttributeEntries entries_of(const Attribute& attribute) {
  switch (attribute.type) {
    case Attribute::Type::Float:
      return {attribute.floats.size(), false};
    case Attribute::Type::Floats:
      return {attribute.floats.size(), true};
    case Attribute::Type::Int:
      return {attribute.ints.size(), false};
    case Attribute::Type::Ints:
      return {attribute.ints.size(), true};
    case Attribute::Type::String:
      return {attribute.strings.size(), false};
    case Attribute::Type::Strings:
      return {attribute.strings.size(), true};
    case Attribute::Type::Tensor:
      return {attribute.tensors.size(), false};
    case Attribute::Type::Tensors:
      return {attribute.tensors.size(), true};
    case Attribute::Type::Graph:
      return {attribute.graphs.size(), false};
    case Attribute::Type::Graphs:
      return {attribute.graphs.size(), true};
    case Attribute::Type::TypeProto:
      return {attribute.types.size(), false};
    case Attribute::Type::TypeProtos:
      return {attribute.types.size(), true};
  }
  return {0, false};
}

std::size_t all_entries(const Attribute& attribute) {
  return attribute.floats.size() + attribute.ints.size() + attribute.strings.size() +
         attribute.tensors.size() + attribute.graphs.size() + attribute.types.size();
}

/// What is wrong with a type; "" when nothing is.
std::string fault_of(const Type& type) {
  const bool has_shape = type.is_tensor() || type.kind == Type::Kind::SparseTensor;
  if (type.shape && !has_shape) return "has a shape, though it is no tensor";
  if (type.inner != nullptr && (has_shape || type.kind == Type::Kind::Unknown))
    return "has a type within, though it is no sequence, optional or map";
  if (type.shape) {
    for (const Dim& dim : *type.shape) {
      if (dim.size < -1) return text("has the dimension ", dim.size);
    }
  }
  return type.inner != nullptr ? fault_of(*type.inner) : std::string();
}

bool fits(const Type& type, const Constant& constant) {
  if (type.kind == Type::Kind::Unknown) return true;
  if (!type.is_tensor()) return false;
  if (type.element != DataType::None && type.element != constant.type()) return false;
  if (!type.shape) return true;
  const auto fits_dim = [](const Dim& dim, std::int64_t size) {
    return !dim.known() || dim.size == size;
  };
  return std::equal(type.shape->begin(), type.shape->end(), constant.dims().begin(),
                    constant.dims().end(), fits_dim);
}

}  // namespace

/// Of one graph; bodies have their own.
class GraphVerifier {
 public:
  /// `around`: of the graph in one of whose nodes this one is; null: of none that is at hand.
  GraphVerifier(const Graph& graph, std::string where, const GraphSurroundings& surroundings,
                const GraphVerifier* around, std::set<const Graph*>& bodies)
      : graph_(graph),
        where_(std::move(where)),
        surroundings_(surroundings),
        around_(around),
        bodies_(bodies) {}

  void verify() {
    verify_ids();
    verify_names();
    verify_border();
    verify_edges();
    verify_sources();
    verify_control_edges();
    verify_order();
    for_each_value([&](const Value& value) { verify_type(value); });
    for_each_node([&](const Node& node) { verify_attributes(node); });
    for_each_node([&](const Node& node) { verify_bodies(node); });
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(Code::Internal, text(where_, parts...));
  }

  template <class Visit>
  void for_each_node(Visit&& visit) const {
    for (const NodeId id : graph_.node_ids()) visit(graph_.node(id));
  }
  template <class Visit>
  void for_each_value(Visit&& visit) const {
    for (const Value& value : graph_.values()) visit(value);
  }

  void verify_value_ids(const Node& node, const std::vector<ValueId>& ids, const char* what,
                        bool may_be_none) const {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (graph_.has_value(ids[i]) || (may_be_none && ids[i] == kNone)) continue;
      fail(described(node), ": its ", what, " ", i, " is the value ", ids[i], "; there are ",
           graph_.value_count());
    }
  }

  void verify_node_ids(const Node& node, const std::vector<NodeId>& ids, const char* what) const {
    for (const NodeId id : ids) {
      if (graph_.has_node(id)) continue;
      fail(described(node), " runs ", what, " the node ", id, ", which does not exist");
    }
  }

  /// That everything that is looked up below is there.
  void verify_ids() const {
    for (const NodeId id : graph_.node_ids()) {
      const Node& node = graph_.node(id);
      if (node.id != id)
        fail(described(node), " stands at ", id, " and says that its id is ", node.id);
      verify_value_ids(node, node.inputs, "input", true);
      verify_value_ids(node, node.outputs, "output", true);
      verify_value_ids(node, node.captured, "captured value", false);
      verify_node_ids(node, node.after, "after");
      verify_node_ids(node, node.before, "before");
    }
    for (const ValueId id : graph_.value_ids()) {
      const Value& value = graph_.value(id);
      if (value.id != id)
        fail(described(value), " stands at ", id, " and says that its id is ", value.id);
      if (value.producer != kNone && !graph_.has_node(value.producer))
        fail(described(value), " is made by the node ", value.producer, ", which does not exist");
      for (const Use& use : value.uses) {
        if (!graph_.has_node(use.node))
          fail(described(value), " is read by the node ", use.node, ", which does not exist");
      }
    }
    for (const auto& [list, what] : {std::pair{&graph_.inputs, "input"},
                                     {&graph_.outputs, "output"},
                                     {&graph_.initializers, "initializer"}}) {
      for (const ValueId id : *list) {
        if (!graph_.has_value(id))
          fail("an ", what, " is the value ", id, "; there are ", graph_.value_count());
      }
    }
  }

  void verify_names() const {
    std::size_t count = 0;
    for_each_node([&](const Node& node) {
      ++count;
      if (node.op_type.empty()) fail(described(node), " has no operator");
      if (node.name.empty() || graph_.find_node(node.name) != node.id)
        fail(described(node), " is not found by its name");
    });
    if (graph_.node_count() != count)
      fail("there are ", count, " nodes, and node_count says ", graph_.node_count());
    if (graph_.node_names_.size() != count)
      fail("there are ", count, " nodes, and names for ", graph_.node_names_.size());
    for_each_value([&](const Value& value) {
      if (value.name.empty() || graph_.find_value(value.name) != value.id)
        fail(described(value), " is not found by its name");
    });
    if (graph_.value_names_.size() != graph_.value_count())
      fail("there are ", graph_.value_count(), " values, and names for ",
           graph_.value_names_.size());
  }

  /// That a value is marked as what it stands among.
  void verify_mark(const Value& value, bool stands, bool is_marked, const char* word) const {
    if (is_marked == stands) return;
    fail(described(value), is_marked ? " is no longer" : " stands", " among the ", word,
         "s, but is_", word, " is ", is_marked ? "set" : "not set");
  }

  /// Inputs, outputs, initializers.
  void verify_border() const {
    PerValue<int> as_input(graph_.value_count()), as_output(graph_.value_count()),
        as_initializer(graph_.value_count());
    for (const ValueId id : graph_.inputs) ++as_input[id];
    for (const ValueId id : graph_.outputs) ++as_output[id];
    for (const ValueId id : graph_.initializers) ++as_initializer[id];
    for_each_value([&](const Value& value) {
      if (as_input[value.id] > 1) fail(described(value), " stands twice among the inputs");
      verify_mark(value, as_input[value.id] > 0, value.is_input, "input");
      verify_mark(value, as_output[value.id] > 0, value.is_output, "output");
      if (as_initializer[value.id] > 1)
        fail(described(value), " stands twice among the initializers");
      if (as_initializer[value.id] > 0 && value.constant == nullptr)
        fail(described(value), " stands among the initializers and has no contents");
      if (value.overridable && (value.constant == nullptr || !value.is_input))
        fail(described(value), " is overridable, but no input with contents");
    });
  }

  /// That values and nodes say the same of each other.
  void verify_edges() const {
    PerValue<std::size_t> reads(graph_.value_count());
    for_each_node([&](const Node& node) {
      for (const std::vector<ValueId>* list : {&node.inputs, &node.captured}) {
        for (const ValueId id : *list) {
          if (id != kNone) ++reads[id];
        }
      }
      verify_outputs(node);
    });
    for_each_value([&](const Value& value) {
      verify_producer(value);
      verify_uses(value);
      if (value.uses.size() != reads[value.id])
        fail(described(value), " is read ", reads[value.id], " times, and has ", value.uses.size(),
             " uses",
             value.uses.empty()
                 ? std::string()
                 : text(", the first by ", described(graph_.node(value.uses.front().node))));
    });
  }

  void verify_outputs(const Node& node) const {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      const Value& output = graph_.value(node.outputs[i]);
      if (output.producer == node.id && output.producer_output == static_cast<std::int32_t>(i))
        continue;
      fail(described(node), " makes ", described(output), " as its output ", i,
           ", which says that its maker is ",
           output.producer == kNone ? std::string("nobody")
                                    : text(described(graph_.node(output.producer)),
                                           ", by its output ", output.producer_output));
    }
  }

  void verify_producer(const Value& value) const {
    if (value.producer == kNone) {
      if (value.producer_output != -1)
        fail(described(value), " is output ", value.producer_output, " of nobody");
      return;
    }
    const Node& producer = graph_.node(value.producer);
    const auto output = static_cast<std::size_t>(value.producer_output);
    if (output >= producer.outputs.size() || producer.outputs[output] != value.id)
      fail(described(value), " says that it is output ", value.producer_output, " of ",
           described(producer), ", which it is not");
  }

  void verify_use(const Value& value, const Use& use) const {
    const Node& reader = graph_.node(use.node);
    const bool reads =
        use.input == kCapturedUse
            ? std::count(reader.captured.begin(), reader.captured.end(), value.id) == 1
            : static_cast<std::size_t>(use.input) < reader.inputs.size() &&
                  reader.inputs[static_cast<std::size_t>(use.input)] == value.id;
    const std::string place =
        use.input == kCapturedUse ? std::string("in a body") : text("as input ", use.input);
    if (!reads)
      fail(described(value), " says that ", described(reader), " reads it ", place,
           ", which it does not, or not once");
  }

  void verify_uses(const Value& value) const {
    std::set<std::pair<NodeId, std::int32_t>> met;
    for (const Use& use : value.uses) {
      verify_use(value, use);
      if (!met.emplace(use.node, use.input).second)
        fail(described(value), " has a use by ", described(graph_.node(use.node)), " twice");
    }
  }

  /// That each value comes from one place, or from none and nobody wants it.
  void verify_sources() const {
    for_each_value([&](const Value& value) {
      const bool is_made = value.producer != kNone;
      const bool is_given = surroundings_.is_given && surroundings_.is_given(value.id);
      const bool has_contents = value.constant != nullptr || is_given;
      if (is_made && value.is_input) fail(described(value), " is an input, and made by a node too");
      if (is_made && has_contents)
        fail(described(value), " has contents, and is made by a node too");
      if (value.is_outer && (is_made || value.is_input || has_contents))
        fail(described(value), " is of an enclosing graph, and of this one too");
      if (value.is_outer && around_ == nullptr && !surroundings_.is_body && is_wanted(value))
        fail(described(value), " is said to be of an enclosing graph, and there is none",
             reader_of(value));
      if (is_made || value.is_input || has_contents || value.is_outer || !is_wanted(value)) return;
      fail("nothing makes ", described(value), reader_of(value));
    });
  }

  static bool is_wanted(const Value& value) { return !value.uses.empty() || value.is_output; }
  std::string reader_of(const Value& value) const {
    if (value.uses.empty()) return ", which is an output";
    return text(", which ", described(graph_.node(value.uses.front().node)), " reads");
  }

  void verify_control_edges() const {
    for_each_node([&](const Node& node) {
      for (const NodeId other : node.after) verify_edge(node, node.after, other, &Node::before);
      for (const NodeId other : node.before) verify_edge(node, node.before, other, &Node::after);
    });
  }

  void verify_edge(const Node& node, const std::vector<NodeId>& edges, NodeId other,
                   std::vector<NodeId> Node::*back) const {
    const std::vector<NodeId>& others = graph_.node(other).*back;
    if (std::count(edges.begin(), edges.end(), other) != 1)
      fail(described(node), " has the control edge to ", described(graph_.node(other)), " twice");
    if (std::count(others.begin(), others.end(), node.id) != 1)
      fail(described(node), " has a control edge to ", described(graph_.node(other)),
           ", which knows nothing of it");
  }

  void verify_order() const {
    try {
      (void)topological_order(graph_);
    } catch (const Error& error) {
      fail(error.message());
    }
  }

  void verify_type(const Value& value) const {
    if (const std::string fault = fault_of(value.type); !fault.empty())
      fail("the type of ", described(value), " ", fault);
    if (value.constant == nullptr || fits(value.type, *value.constant)) return;
    fail(described(value), " has contents of type ", name(value.constant->type()),
         to_string(value.constant->dims()), ", and is ", value.type.to_string(),
         value.type.shape ? to_string(*value.type.shape) : std::string());
  }

  void verify_attributes(const Node& node) const {
    for (const auto& [key, attribute] : node.attributes) {
      const auto [count, is_list] = entries_of(attribute);
      if (count == all_entries(attribute) && (is_list || count == 1)) continue;
      fail(described(node), ": its attribute ", quoted(key), " of type ",
           static_cast<int>(attribute.type), " has ", count, " entries of this type, and ",
           all_entries(attribute), " in all");
    }
  }

  void verify_bodies(const Node& node) const {
    std::set<ValueId> read;
    for (const auto& [key, attribute] : node.attributes) {
      for (const std::shared_ptr<Graph>& body : attribute.graphs) {
        if (body == nullptr) fail(described(node), ": its body ", quoted(key), " is missing");
        if (!bodies_.insert(body.get()).second)
          fail(described(node), ": its body ", quoted(key), " is another node's too");
        const GraphSurroundings none;
        GraphVerifier(*body, text(where_, described(node), ": its body ", quoted(key), ": "), none,
                      this, bodies_)
            .verify();
        add_captured(node, *body, read);
      }
    }
    for (const ValueId id : node.captured) {
      if (read.erase(id) == 0)
        fail(described(node), " captures ", described(graph_.value(id)),
             ", which no body of it reads");
    }
    if (!read.empty())
      fail("a body of ", described(node), " reads ", described(graph_.value(*read.begin())),
           ", which is not among what the node captures");
  }

  void add_captured(const Node& node, const Graph& body, std::set<ValueId>& read) const {
    for (const Value& inner : body.values()) {
      if (!inner.is_outer || !is_wanted(inner)) continue;
      const ValueId id = graph_.find_value(inner.name);
      if (id == kNone)
        fail("a body of ", described(node), " reads ", described(inner),
             ", which is no value here");
      read.insert(id);
      const Type& outer = graph_.value(id).type;
      const bool agree = outer.kind == Type::Kind::Unknown ||
                         inner.type.kind == Type::Kind::Unknown ||
                         (outer.kind == inner.type.kind &&
                          (outer.element == inner.type.element || outer.element == DataType::None ||
                           inner.type.element == DataType::None));
      if (!agree)
        fail(described(inner), " is ", outer.to_string(), " here, and ", inner.type.to_string(),
             " in a body of ", described(node));
    }
  }

  const Graph& graph_;
  const std::string where_;
  const GraphSurroundings& surroundings_;
  const GraphVerifier* around_;
  std::set<const Graph*>& bodies_;  ///< met so far, of all graphs
};

void verify_graph(const Graph& graph, std::string_view when,
                  const GraphSurroundings& surroundings) {
  std::set<const Graph*> bodies;
  GraphVerifier(graph, text(when, ": "), surroundings, nullptr, bodies).verify();
}

}  // namespace backplane::core
