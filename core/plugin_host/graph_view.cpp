#include "core/plugin_host/graph_view.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/plugin_host/runtime_value.hpp"

namespace core = backplane::core;

/// An attribute, with the arrays that its bp_attribute points at.
struct AttributeView {
  bp_attribute raw{};
  std::vector<bp_str> strings;
  std::vector<core::RuntimeValuePtr> tensors;
  std::vector<const bp_tensor*> tensor_pointers;
  std::vector<const bp_value*> value_pointers;
  std::vector<std::unique_ptr<bp_graph>> graphs;
  std::vector<const bp_graph*> graph_pointers;
  std::vector<std::string> types;
  std::vector<const char*> type_pointers;
};

struct bp_value_info {
  const core::Value* value = nullptr;
  std::string type;
  std::vector<std::int64_t> dims;
  std::vector<const char*> symbols;
  bp_dtype dtype = BP_NONE;
  std::int32_t rank = -1;
  const core::Constant* constant = nullptr;
  mutable std::once_flag shown;
  mutable core::RuntimeValue contents;  ///< of a constant, once asked for
  const bp_node* producer = nullptr;
  std::vector<const bp_node*> consumers;
  bool is_output = false;

  /// Null where the value is no constant.
  const core::RuntimeValue* show_constant() const {
    if (constant == nullptr) return nullptr;
    std::call_once(shown, [this] { contents.set_constant(*constant); });
    return &contents;
  }
};

struct bp_node {
  const core::Node* node = nullptr;
  std::vector<const bp_value_info*> inputs;
  std::vector<const bp_value_info*> outputs;
  std::vector<std::unique_ptr<AttributeView>> attributes;
};

/// What a view is made of. A body's view knows the enclosing one, for values of outer scopes.
struct bp_graph {
  bp_graph(const core::Graph& of, const bp_graph* enclosing) : graph(&of), parent(enclosing) {}
  /// The nodes of the view; outputs are what is used outside of it.
  void add_part(const std::vector<core::NodeId>& ids);
  /// The whole graph as the body of a node: inputs and outputs are its own, in its order.
  void add_body();

  const core::Graph* graph;
  const bp_graph* parent;
  std::vector<std::unique_ptr<bp_node>> nodes;
  std::unordered_map<core::NodeId, bp_node*> by_id;
  std::unordered_map<core::ValueId, std::unique_ptr<bp_value_info>> values;
  std::unordered_map<std::string_view, const bp_value_info*> names;
  std::vector<core::ValueId> inputs;
  std::vector<core::ValueId> outputs;
  std::vector<const bp_value_info*> input_infos;
  std::vector<const bp_value_info*> output_infos;

 private:
  void add_nodes(const std::vector<core::NodeId>& ids);
  bp_value_info* value_of(core::ValueId id);
  void describe(bp_value_info& info) const;
  void add_attributes(bp_node& node) const;
  bool comes_from_outside(core::ValueId id) const;
  void set_border(std::vector<core::ValueId> in, std::vector<core::ValueId> out);
};

namespace {

/// What a feed cannot replace.
bool is_constant(const core::Value& value) {
  return value.constant != nullptr && !value.overridable;
}

/// The value of an enclosing graph that `name` is; null when the enclosing graphs are not known.
const core::Value* find_outer(const bp_graph* graph, const std::string& name) {
  for (; graph != nullptr; graph = graph->parent) {
    const core::ValueId id = graph->graph->find_value(name);
    if (id == core::kNone) continue;
    const core::Value& value = graph->graph->value(id);
    if (!value.is_outer || graph->parent == nullptr) return &value;
  }
  return nullptr;
}

void set_type(bp_value_info& info, const core::Type& type) {
  info.type = type.to_string();
  if (!type.is_tensor()) return;
  info.dtype = static_cast<bp_dtype>(type.element);
  if (!type.shape) return;
  info.rank = static_cast<std::int32_t>(type.shape->size());
  for (const core::Dim& dim : *type.shape) {
    info.dims.push_back(dim.known() ? dim.size : -1);
    info.symbols.push_back(dim.known() || dim.symbol.empty() ? nullptr : dim.symbol.c_str());
  }
}

std::unique_ptr<AttributeView> view_attribute(const std::string& name,
                                              const core::Attribute& attribute,
                                              const bp_graph* enclosing) {
  auto view = std::make_unique<AttributeView>();
  for (const std::string& string : attribute.strings) {
    view->strings.push_back({string.data(), string.size()});
  }
  for (const core::ConstantPtr& constant : attribute.tensors) {
    view->tensors.push_back(std::make_shared<core::RuntimeValue>());
    view->tensors.back()->set_constant(*constant);
    view->tensor_pointers.push_back(view->tensors.back()->tensor);
    view->value_pointers.push_back(view->tensors.back().get());
  }
  for (const std::shared_ptr<core::Graph>& body : attribute.graphs) {
    view->graphs.push_back(std::make_unique<bp_graph>(*body, enclosing));
    view->graphs.back()->add_body();
    view->graph_pointers.push_back(view->graphs.back().get());
  }
  for (const core::Type& type : attribute.types) view->types.push_back(type.to_string());
  for (const std::string& type : view->types) view->type_pointers.push_back(type.c_str());

  bp_attribute& raw = view->raw;
  raw.struct_size = sizeof(raw);
  raw.name = name.c_str();
  raw.type = static_cast<std::int32_t>(attribute.type);
  raw.count = static_cast<std::uint32_t>(
      std::max({attribute.floats.size(), attribute.ints.size(), view->strings.size(),
                view->tensors.size(), view->graphs.size(), view->types.size()}));
  const auto array = [](const auto& entries) { return entries.empty() ? nullptr : entries.data(); };
  raw.floats = array(attribute.floats);
  raw.ints = array(attribute.ints);
  raw.strings = array(view->strings);
  raw.tensors = array(view->tensor_pointers);
  raw.graphs = array(view->graph_pointers);
  raw.types = array(view->type_pointers);
  raw.values = array(view->value_pointers);
  return view;
}

/// The ids of `list` that are in `members`, each once, in the list's order; then the other members.
std::vector<core::ValueId> in_order_of(const std::vector<core::ValueId>& list,
                                       const std::vector<core::ValueId>& members) {
  std::set<core::ValueId> left(members.begin(), members.end());
  std::vector<core::ValueId> ordered;
  for (const core::ValueId id : list) {
    if (left.erase(id) != 0) ordered.push_back(id);
  }
  for (const core::ValueId id : members) {
    if (left.erase(id) != 0) ordered.push_back(id);
  }
  return ordered;
}

}  // namespace

void bp_graph::describe(bp_value_info& info) const {
  const core::Value& own = *info.value;
  const core::Value* outer = own.is_outer ? find_outer(parent, own.name) : nullptr;
  const bool borrowed = outer != nullptr && own.type.kind == core::Type::Kind::Unknown;
  set_type(info, borrowed ? outer->type : own.type);
  const core::Value& source = is_constant(own) || outer == nullptr ? own : *outer;
  if (is_constant(source)) info.constant = source.constant.get();
}

bp_value_info* bp_graph::value_of(core::ValueId id) {
  if (id == core::kNone) return nullptr;
  std::unique_ptr<bp_value_info>& info = values[id];
  if (info == nullptr) {
    info = std::make_unique<bp_value_info>();
    info->value = &graph->value(id);
    describe(*info);
    names.emplace(info->value->name, info.get());
  }
  return info.get();
}

bool bp_graph::comes_from_outside(core::ValueId id) const {
  const bp_value_info& info = *values.at(id);
  return info.constant == nullptr && info.producer == nullptr;
}

/// Nodes and the values that they read and make, linked; then the attributes, whose bodies look at
/// the values.
void bp_graph::add_nodes(const std::vector<core::NodeId>& ids) {
  for (const core::NodeId id : ids) {
    nodes.push_back(std::make_unique<bp_node>());
    bp_node& made = *nodes.back();
    made.node = &graph->node(id);
    by_id.emplace(id, &made);
    for (const core::ValueId input : made.node->inputs) made.inputs.push_back(value_of(input));
    for (const core::ValueId captured : made.node->captured) value_of(captured);
    for (const core::ValueId output : made.node->outputs) {
      bp_value_info* info = value_of(output);
      made.outputs.push_back(info);
      if (info != nullptr) info->producer = &made;
    }
  }
  for (auto& [id, info] : values) {
    for (const core::Use& use : info->value->uses) {
      const auto reader = by_id.find(use.node);
      if (reader != by_id.end()) info->consumers.push_back(reader->second);
    }
  }
  for (const std::unique_ptr<bp_node>& made : nodes) add_attributes(*made);
}

void bp_graph::add_attributes(bp_node& node) const {
  for (const auto& [name, attribute] : node.node->attributes) {
    node.attributes.push_back(view_attribute(name, attribute, this));
  }
}

void bp_graph::set_border(std::vector<core::ValueId> in, std::vector<core::ValueId> out) {
  inputs = std::move(in);
  outputs = std::move(out);
  for (const core::ValueId id : inputs) input_infos.push_back(value_of(id));
  for (const core::ValueId id : outputs) {
    bp_value_info* info = value_of(id);
    info->is_output = true;
    output_infos.push_back(info);
  }
}

void bp_graph::add_part(const std::vector<core::NodeId>& ids) {
  add_nodes(ids);
  std::vector<core::ValueId> in;
  std::vector<core::ValueId> out;
  for (const std::unique_ptr<bp_node>& made : nodes) {
    for (const auto* read : {&made->node->inputs, &made->node->captured}) {
      for (const core::ValueId id : *read) {
        if (id != core::kNone && comes_from_outside(id)) in.push_back(id);
      }
    }
    for (const core::ValueId id : made->node->outputs) {
      if (id == core::kNone) continue;
      const core::Value& value = graph->value(id);
      const bool used_outside =
          value.is_output || std::any_of(value.uses.begin(), value.uses.end(), [&](core::Use use) {
            return by_id.find(use.node) == by_id.end();
          });
      if (used_outside) out.push_back(id);
    }
  }
  set_border(in_order_of(graph->inputs, in), in_order_of(graph->outputs, out));
}

void bp_graph::add_body() {
  add_nodes(core::topological_order(*graph));
  std::vector<core::ValueId> in;
  for (const core::ValueId id : graph->inputs) {
    if (!is_constant(graph->value(id))) in.push_back(id);
  }
  for (const std::unique_ptr<bp_node>& made : nodes) {
    for (const auto* read : {&made->node->inputs, &made->node->captured}) {
      for (const core::ValueId id : *read) {
        if (id != core::kNone && comes_from_outside(id)) in.push_back(id);
      }
    }
  }
  for (const core::ValueId id : graph->outputs) {
    value_of(id);
    if (graph->value(id).is_outer && comes_from_outside(id)) in.push_back(id);
  }
  set_border(in_order_of(graph->inputs, in), graph->outputs);
}

namespace {

/// Entry `index`, null past the end.
template <class Entries>
auto entry(const Entries& entries, std::uint64_t index) -> decltype(&*entries[0]) {
  return index < entries.size() ? &*entries[static_cast<std::size_t>(index)] : nullptr;
}

/// Entry `index` of an array of pointers that may be null themselves.
template <class Pointer>
Pointer pointer_at(const std::vector<Pointer>& pointers, std::uint64_t index) {
  return index < pointers.size() ? pointers[static_cast<std::size_t>(index)] : nullptr;
}

const bp_attribute* find_attribute(const bp_node* node, const char* name) {
  if (node == nullptr || name == nullptr) return nullptr;
  for (const std::unique_ptr<AttributeView>& attribute : node->attributes) {
    if (std::string_view(attribute->raw.name) == name) return &attribute->raw;
  }
  return nullptr;
}

void fill_graph_functions(bp_graph_api& api) {
  api.graph_name = [](const bp_graph* graph) {
    return graph == nullptr ? "" : graph->graph->name.c_str();
  };
  api.graph_node_count = [](const bp_graph* graph) -> std::uint64_t {
    return graph == nullptr ? 0 : graph->nodes.size();
  };
  api.graph_node = [](const bp_graph* graph, std::uint64_t index) -> const bp_node* {
    return graph == nullptr ? nullptr : entry(graph->nodes, index);
  };
  api.graph_input_count = [](const bp_graph* graph) -> std::uint64_t {
    return graph == nullptr ? 0 : graph->input_infos.size();
  };
  api.graph_input = [](const bp_graph* graph, std::uint64_t index) -> const bp_value_info* {
    return graph == nullptr ? nullptr : pointer_at(graph->input_infos, index);
  };
  api.graph_output_count = [](const bp_graph* graph) -> std::uint64_t {
    return graph == nullptr ? 0 : graph->output_infos.size();
  };
  api.graph_output = [](const bp_graph* graph, std::uint64_t index) -> const bp_value_info* {
    return graph == nullptr ? nullptr : pointer_at(graph->output_infos, index);
  };
  api.graph_value = [](const bp_graph* graph, const char* name) -> const bp_value_info* {
    if (graph == nullptr || name == nullptr) return nullptr;
    const auto found = graph->names.find(name);
    return found == graph->names.end() ? nullptr : found->second;
  };
}

void fill_node_functions(bp_graph_api& api) {
  api.node_name = [](const bp_node* node) {
    return node == nullptr ? "" : node->node->name.c_str();
  };
  api.node_op_type = [](const bp_node* node) {
    return node == nullptr ? "" : node->node->op_type.c_str();
  };
  api.node_domain = [](const bp_node* node) {
    return node == nullptr ? "" : node->node->domain.c_str();
  };
  api.node_since_version = [](const bp_node* node) -> std::int32_t {
    return node == nullptr ? 0 : node->node->since_version;
  };
  api.node_input_count = [](const bp_node* node) -> std::uint64_t {
    return node == nullptr ? 0 : node->inputs.size();
  };
  api.node_input = [](const bp_node* node, std::uint64_t index) -> const bp_value_info* {
    return node == nullptr ? nullptr : pointer_at(node->inputs, index);
  };
  api.node_output_count = [](const bp_node* node) -> std::uint64_t {
    return node == nullptr ? 0 : node->outputs.size();
  };
  api.node_output = [](const bp_node* node, std::uint64_t index) -> const bp_value_info* {
    return node == nullptr ? nullptr : pointer_at(node->outputs, index);
  };
  api.node_attribute_count = [](const bp_node* node) -> std::uint64_t {
    return node == nullptr ? 0 : node->attributes.size();
  };
  api.node_attribute_at = [](const bp_node* node, std::uint64_t index) -> const bp_attribute* {
    const AttributeView* view = node == nullptr ? nullptr : entry(node->attributes, index);
    return view == nullptr ? nullptr : &view->raw;
  };
  api.node_attribute = find_attribute;
}

void fill_value_functions(bp_graph_api& api) {
  api.value_name = [](const bp_value_info* info) {
    return info == nullptr ? "" : info->value->name.c_str();
  };
  api.value_type = [](const bp_value_info* info) {
    return info == nullptr ? "" : info->type.c_str();
  };
  api.value_dtype = [](const bp_value_info* info) {
    return info == nullptr ? BP_NONE : info->dtype;
  };
  api.value_rank = [](const bp_value_info* info) -> std::int32_t {
    return info == nullptr ? -1 : info->rank;
  };
  api.value_dims = [](const bp_value_info* info) -> const std::int64_t* {
    static const std::int64_t scalar = 0;  // never read: a scalar has no entries
    if (info == nullptr || info->rank < 0) return nullptr;
    return info->dims.empty() ? &scalar : info->dims.data();
  };
  api.value_symbol = [](const bp_value_info* info, std::int32_t axis) -> const char* {
    if (info == nullptr || axis < 0) return nullptr;
    return pointer_at(info->symbols, static_cast<std::uint64_t>(axis));
  };
}

void fill_use_functions(bp_graph_api& api) {
  api.value_constant = [](const bp_value_info* info) -> const bp_tensor* {
    const core::RuntimeValue* const contents = info == nullptr ? nullptr : info->show_constant();
    return contents == nullptr ? nullptr : contents->tensor;
  };
  api.value_constant_value = [](const bp_value_info* info) -> const bp_value* {
    return info == nullptr ? nullptr : info->show_constant();
  };
  api.value_producer = [](const bp_value_info* info) -> const bp_node* {
    return info == nullptr ? nullptr : info->producer;
  };
  api.value_consumer_count = [](const bp_value_info* info) -> std::uint64_t {
    return info == nullptr ? 0 : info->consumers.size();
  };
  api.value_consumer = [](const bp_value_info* info, std::uint64_t index) -> const bp_node* {
    return info == nullptr ? nullptr : pointer_at(info->consumers, index);
  };
  api.value_is_output = [](const bp_value_info* info) -> std::uint32_t {
    return info != nullptr && info->is_output ? 1 : 0;
  };
  api.value_is_constant = [](const bp_value_info* info) -> std::uint32_t {
    return info != nullptr && info->constant != nullptr ? 1 : 0;
  };
  api.value_constant_stored = [](const bp_value_info* info, std::uint64_t* bytes) -> const void* {
    const bool is_constant = info != nullptr && info->constant != nullptr;
    const std::span<const std::byte> stored =
        is_constant ? info->constant->stored_bytes() : std::span<const std::byte>();
    if (bytes != nullptr) *bytes = stored.size();
    return stored.empty() ? nullptr : stored.data();
  };
}

}  // namespace

namespace backplane::core {

struct GraphView::Impl : bp_graph {
  using bp_graph::bp_graph;
};

GraphView::GraphView(const Graph& graph, const std::vector<NodeId>& nodes)
    : impl_(std::make_unique<Impl>(graph, nullptr)) {
  impl_->add_part(nodes);
}

GraphView::~GraphView() = default;

const bp_graph* GraphView::raw() const { return impl_.get(); }

const bp_node* GraphView::node(NodeId id) const {
  const auto found = impl_->by_id.find(id);
  return found == impl_->by_id.end() ? nullptr : found->second;
}

NodeId GraphView::id_of(const bp_node* node) { return node == nullptr ? kNone : node->node->id; }

const std::string& GraphView::name_of(const bp_value_info* value) { return value->value->name; }

const std::vector<ValueId>& GraphView::inputs() const { return impl_->inputs; }

const std::vector<ValueId>& GraphView::outputs() const { return impl_->outputs; }

const bp_graph_api& graph_api() {
  static const bp_graph_api api = [] {
    bp_graph_api table{};
    table.struct_size = sizeof(table);
    fill_graph_functions(table);
    fill_node_functions(table);
    fill_value_functions(table);
    fill_use_functions(table);
    return table;
  }();
  return api;
}

}  // namespace backplane::core
