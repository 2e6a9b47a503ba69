#include "tools/backplane/check/bare_graph.hpp"

#include <algorithm>
#include <sstream>

#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

/// An attribute with the arrays that it points into.
struct StoredAttribute {
  std::string name;
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> texts;
  std::vector<bp_str> strings;
  Grown<bp_attribute> raw;
};

}  // namespace
}  // namespace backplane::cli::check

struct bp_value_info {
  std::string name;
  std::string type;
  bp_dtype dtype = BP_NONE;
  std::optional<backplane::cli::check::Dims> dims;
  const bp_node* producer = nullptr;
  std::vector<const bp_node*> consumers;
  bool is_output = false;
  bool is_constant = false;
  backplane::cli::check::Grown<bp_tensor> tensor;
  backplane::cli::check::Grown<bp_value> value;
};

struct bp_node {
  std::string name, domain, op_type;
  int since_version = 1;
  std::vector<const bp_value_info*> inputs, outputs;
  std::deque<backplane::cli::check::StoredAttribute> attributes;
};

struct bp_graph {
  std::deque<bp_node> nodes;
  std::deque<bp_value_info> values;
  std::vector<const bp_value_info*> inputs, outputs;

  bp_value_info* find(const std::string& name) {
    for (bp_value_info& value : values) {
      if (value.name == name) return &value;
    }
    return nullptr;
  }
};

namespace backplane::cli::check {
namespace {

template <class Entry>
const bp_value_info* entry_of(const std::vector<Entry>& list, std::uint64_t index) {
  return index < list.size() ? list[index] : nullptr;
}

void fill_graph_functions(bp_graph_api& api) {
  api.graph_name = [](const bp_graph*) { return "check"; };
  api.graph_node_count = [](const bp_graph* graph) -> std::uint64_t { return graph->nodes.size(); };
  api.graph_node = [](const bp_graph* graph, std::uint64_t index) -> const bp_node* {
    return index < graph->nodes.size() ? &graph->nodes[index] : nullptr;
  };
  api.graph_input_count = [](const bp_graph* graph) -> std::uint64_t {
    return graph->inputs.size();
  };
  api.graph_input = [](const bp_graph* graph, std::uint64_t index) {
    return entry_of(graph->inputs, index);
  };
  api.graph_output_count = [](const bp_graph* graph) -> std::uint64_t {
    return graph->outputs.size();
  };
  api.graph_output = [](const bp_graph* graph, std::uint64_t index) {
    return entry_of(graph->outputs, index);
  };
  api.graph_value = [](const bp_graph* graph, const char* name) -> const bp_value_info* {
    return name == nullptr ? nullptr : const_cast<bp_graph*>(graph)->find(name);
  };
}

void fill_node_functions(bp_graph_api& api) {
  api.node_name = [](const bp_node* node) { return node->name.c_str(); };
  api.node_op_type = [](const bp_node* node) { return node->op_type.c_str(); };
  api.node_domain = [](const bp_node* node) { return node->domain.c_str(); };
  api.node_since_version = [](const bp_node* node) -> std::int32_t { return node->since_version; };
  api.node_input_count = [](const bp_node* node) -> std::uint64_t { return node->inputs.size(); };
  api.node_input = [](const bp_node* node, std::uint64_t index) {
    return entry_of(node->inputs, index);
  };
  api.node_output_count = [](const bp_node* node) -> std::uint64_t { return node->outputs.size(); };
  api.node_output = [](const bp_node* node, std::uint64_t index) {
    return entry_of(node->outputs, index);
  };
  api.node_attribute_count = [](const bp_node* node) -> std::uint64_t {
    return node->attributes.size();
  };
  api.node_attribute_at = [](const bp_node* node, std::uint64_t index) -> const bp_attribute* {
    return index < node->attributes.size() ? &node->attributes[index].raw.base : nullptr;
  };
  api.node_attribute = [](const bp_node* node, const char* name) -> const bp_attribute* {
    for (const StoredAttribute& attribute : node->attributes) {
      if (attribute.name == name) return &attribute.raw.base;
    }
    return nullptr;
  };
}

void fill_value_functions(bp_graph_api& api) {
  api.value_name = [](const bp_value_info* value) { return value->name.c_str(); };
  api.value_type = [](const bp_value_info* value) { return value->type.c_str(); };
  api.value_dtype = [](const bp_value_info* value) { return value->dtype; };
  api.value_rank = [](const bp_value_info* value) {
    return value->dims ? static_cast<std::int32_t>(value->dims->size()) : -1;
  };
  api.value_dims = [](const bp_value_info* value) -> const std::int64_t* {
    return value->dims ? value->dims->data() : nullptr;
  };
  api.value_symbol = [](const bp_value_info*, std::int32_t) -> const char* { return nullptr; };
  api.value_constant = [](const bp_value_info* value) -> const bp_tensor* {
    return value->is_constant ? &value->tensor.base : nullptr;
  };
  api.value_constant_value = [](const bp_value_info* value) -> const bp_value* {
    return value->is_constant ? &value->value.base : nullptr;
  };
  api.value_producer = [](const bp_value_info* value) { return value->producer; };
  api.value_consumer_count = [](const bp_value_info* value) -> std::uint64_t {
    return value->consumers.size();
  };
  api.value_consumer = [](const bp_value_info* value, std::uint64_t index) -> const bp_node* {
    return index < value->consumers.size() ? value->consumers[index] : nullptr;
  };
  api.value_is_output = [](const bp_value_info* value) -> std::uint32_t {
    return value->is_output ? 1 : 0;
  };
}

void add_attribute(bp_node& node, const std::string& name, const AttributeValue& value) {
  StoredAttribute& stored = node.attributes.emplace_back();
  stored.name = name;
  bp_attribute& raw = stored.raw.base;
  if (const auto* one_int = std::get_if<std::int64_t>(&value)) {
    raw.type = BP_ATTRIBUTE_INT;
    stored.ints = {*one_int};
  } else if (const auto* one_float = std::get_if<float>(&value)) {
    raw.type = BP_ATTRIBUTE_FLOAT;
    stored.floats = {*one_float};
  } else if (const auto* one_text = std::get_if<std::string>(&value)) {
    raw.type = BP_ATTRIBUTE_STRING;
    stored.texts = {*one_text};
  } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
    raw.type = BP_ATTRIBUTE_INTS;
    stored.ints = *ints;
  } else if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
    raw.type = BP_ATTRIBUTE_FLOATS;
    stored.floats = *floats;
  } else {
    raw.type = BP_ATTRIBUTE_STRINGS;
    stored.texts = std::get<std::vector<std::string>>(value);
  }
  for (const std::string& text : stored.texts) stored.strings.push_back({text.data(), text.size()});
  raw.name = stored.name.c_str();
  raw.count =
      static_cast<std::uint32_t>(stored.ints.size() + stored.floats.size() + stored.strings.size());
  raw.ints = stored.ints.empty() ? nullptr : stored.ints.data();
  raw.floats = stored.floats.empty() ? nullptr : stored.floats.data();
  raw.strings = stored.strings.empty() ? nullptr : stored.strings.data();
}

template <class T>
std::string list_text(const std::vector<T>& values) {
  std::ostringstream stream;
  for (std::size_t i = 0; i < values.size(); ++i) stream << (i == 0 ? "[" : ",") << values[i];
  return stream.str() + (values.empty() ? "[]" : "]");
}

}  // namespace

std::string described(const Attributes& attributes) {
  std::string result;
  for (const auto& [name, value] : attributes) {
    result += (result.empty() ? "" : ", ") + name + "=";
    result += std::visit(
        [](const auto& held) {
          using Held = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<Held, std::string> || std::is_arithmetic_v<Held>) {
            return text(held);
          } else {
            return list_text(held);
          }
        },
        value);
  }
  return result;
}

bp_graph_api graph_api() {
  bp_graph_api api{};
  fill_graph_functions(api);
  fill_node_functions(api);
  fill_value_functions(api);
  return api;
}

Grown<bp_tensor> describe(const Tensor& tensor, const void* data) {
  Grown<bp_tensor> grown;
  bp_tensor& raw = grown.base;
  raw.bytes = static_cast<std::uint64_t>(tensor.size()) * element_bytes(tensor.dtype);
  raw.host_ptr = const_cast<void*>(data);
  raw.dims = tensor.dims.data();
  raw.rank = static_cast<std::int32_t>(tensor.dims.size());
  raw.dtype = tensor.dtype;
  raw.memory = BP_MEMORY_HOST;
  return grown;
}

BareGraph::BareGraph() : graph_(std::make_unique<bp_graph>()) {}
BareGraph::~BareGraph() = default;

void BareGraph::add_input(const std::string& name, bp_dtype dtype, const std::optional<Dims>& dims,
                          const Tensor* constant) {
  bp_value_info& value = graph_->values.emplace_back();
  value.name = name;
  value.dtype = dtype;
  value.type = type_string(dtype);
  value.dims = dims;
  if (constant != nullptr) {
    value.is_constant = true;
    value.tensor = describe(*constant, constant->data.data());
    value.value.base.kind = BP_VALUE_TENSOR;
    value.value.base.tensor = &value.tensor.base;
  } else {
    graph_->inputs.push_back(&value);
  }
}

const bp_node* BareGraph::add_node(const std::string& op_type, const std::string& domain,
                                   int since_version, const std::vector<std::string>& inputs,
                                   const std::vector<Output>& outputs,
                                   const Attributes& attributes) {
  bp_node& node = graph_->nodes.emplace_back();
  node.name = "node_" + std::to_string(graph_->nodes.size());
  node.op_type = op_type;
  node.domain = domain;
  node.since_version = since_version;
  for (const std::string& name : inputs) {
    bp_value_info* value = name.empty() ? nullptr : graph_->find(name);
    node.inputs.push_back(value);
    if (value != nullptr) value->consumers.push_back(&node);
  }
  for (const Output& output : outputs) {
    if (output.name.empty()) {
      node.outputs.push_back(nullptr);
      continue;
    }
    bp_value_info& value = graph_->values.emplace_back();
    value.name = output.name;
    value.dtype = output.dtype;
    value.type = type_string(output.dtype);
    value.dims = output.dims;
    value.producer = &node;
    node.outputs.push_back(&value);
  }
  for (const auto& [name, value] : attributes) add_attribute(node, name, value);
  return &node;
}

void BareGraph::mark_output(const std::string& name) {
  bp_value_info* value = graph_->find(name);
  value->is_output = true;
  graph_->outputs.push_back(value);
}

std::size_t BareGraph::node_count() const { return graph_->nodes.size(); }
const bp_node* BareGraph::node(std::size_t index) const { return &graph_->nodes[index]; }

}  // namespace backplane::cli::check
