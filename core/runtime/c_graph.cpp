// The C host interface: graphs that are built, their nodes and attributes.
#include "core/runtime/c_graph.hpp"

#include <cstdint>
#include <optional>
#include <utility>

namespace backplane::core {
namespace {

NodeId node_id(std::int64_t node) {
  if (node < 0 || node > INT32_MAX) invalid("the graph has no node ", node);
  return NodeId(static_cast<std::size_t>(node));
}
std::int64_t number_of(NodeId id) { return static_cast<std::int64_t>(id.index()); }

/// NULL is the empty name.
std::string word(const char* text) { return text != nullptr ? text : ""; }

std::string name_of(const char* text, const char* what) {
  std::string name = &required(text, what);
  if (name.empty()) invalid("the argument '", what, "' is empty");
  return name;
}

std::vector<std::string> words(const char* const* texts, std::size_t count, const char* what) {
  if (count > 0) required(texts, what);
  std::vector<std::string> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(word(texts[i]));
  return result;
}

/// The type with this shape for the tensors in it.
Type with_shape(const Type& type, const Shape& shape) {
  Type result = type;
  if (type.inner != nullptr)
    result.inner = std::make_shared<const Type>(with_shape(*type.inner, shape));
  if (type.kind == Type::Kind::Tensor || type.kind == Type::Kind::SparseTensor)
    result.shape = shape;
  return result;
}

ConstantPtr contents_of(const backplane_value& value) {
  if (!value.value->is_tensor())
    invalid("the value given is ", value.value->type.to_string(), "; a tensor is needed");
  return value.value->to_constant();
}

/// Sets an attribute that `fill` fills in.
template <class Fill>
backplane_status* set_attribute(backplane_graph* graph, std::int64_t node, const char* name,
                                Attribute::Type type, Fill&& fill) {
  return guarded([&] {
    Attribute attribute;
    attribute.type = type;
    required(graph, "graph");
    const std::string attribute_name = name_of(name, "name");
    fill(attribute);
    graph->edit().set_attribute(node_id(node), attribute_name, std::move(attribute));
  });
}

/// Calls `take` for each of `count` objects of an array.
template <class Object, class Take>
void for_each_of(Object* const* objects, std::size_t count, const char* what, Take&& take) {
  if (count > 0) required(objects, what);
  for (std::size_t i = 0; i < count; ++i) take(required(objects[i], what));
}

backplane_status* set_bodies(backplane_graph* graph, std::int64_t node, const char* name,
                             const backplane_graph* const* bodies, std::size_t count, bool list) {
  return guarded([&] {
    required(graph, "graph");
    std::vector<GraphDraft> copies;
    for_each_of(bodies, count, "bodies",
                [&](const backplane_graph& body) { copies.push_back(body.draft); });
    graph->edit().set_bodies(node_id(node), name_of(name, "name"), std::move(copies), list);
  });
}

std::optional<std::vector<std::string>> given_names(const char* const* names, std::size_t count) {
  if (names == nullptr) {
    if (count > 0) invalid("the argument 'names' is null, but 'count' is ", count);
    return std::nullopt;
  }
  std::vector<std::string> list;
  for (std::size_t i = 0; i < count; ++i) list.push_back(name_of(names[i], "names"));
  return list;
}

}  // namespace
}  // namespace backplane::core

using namespace backplane::core;  // the functions below are C

backplane_status* backplane_type_create(const char* type, std::int32_t rank,
                                        const std::int64_t* dims, const char* const* symbols,
                                        backplane_type** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = std::make_unique<backplane_type>();
    made->type = Type::parse(&required(type, "type"));
    if (rank < -1 || rank > 1024) invalid("a rank of ", rank, " is not supported");
    if (rank > 0) required(dims, "dims");
    Shape shape;
    for (std::int32_t axis = 0; axis < rank; ++axis) {
      if (dims[axis] < -1) invalid("the dimension ", axis, " is ", dims[axis]);
      Dim dim{dims[axis], symbols != nullptr ? word(symbols[axis]) : ""};
      if (dim.known() && !dim.symbol.empty())
        invalid("the dimension ", axis, " has a size and a symbol; give it one of them");
      shape.push_back(std::move(dim));
    }
    if (rank >= 0) made->type = with_shape(made->type, shape);
    *out = made.release();
  });
}

void backplane_type_destroy(backplane_type* type) { destroy(type); }

backplane_status* backplane_graph_create(backplane_environment* environment,
                                         const backplane_options* options, backplane_graph** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = std::make_unique<backplane_graph>();
    if (environment != nullptr)
      made->environment = required(environment, "environment").environment;
    made->options = copy_of(options).session;
    *out = made.release();
  });
}

void backplane_graph_destroy(backplane_graph* graph) { destroy(graph); }

backplane_status* backplane_graph_set_ir_version(backplane_graph* graph, std::int64_t version) {
  return guarded([&] {
    required(graph, "graph");
    if (version < 1) invalid("there is no IR version ", version);
    graph->edit();
    graph->model.ir_version = version;
  });
}

backplane_status* backplane_graph_set_model_version(backplane_graph* graph, std::int64_t version) {
  return guarded([&] {
    required(graph, "graph").edit();
    graph->model.model_version = version;
  });
}

backplane_status* backplane_graph_set_opset(backplane_graph* graph, const char* domain,
                                            std::int64_t version) {
  return guarded([&] {
    required(graph, "graph").edit();
    if (version < 0) invalid("there is no opset version ", version);
    const std::string name = word(domain) == "ai.onnx" ? "" : word(domain);
    if (version == 0) {
      graph->model.opsets.erase(name);
    } else {
      graph->model.opsets[name] = version;
    }
  });
}

backplane_status* backplane_graph_set_text(backplane_graph* graph, std::int32_t which,
                                           const char* text) {
  return guarded([&] {
    required(graph, "graph").edit();
    const std::string words = &required(text, "text");
    if (which == BACKPLANE_TEXT_GRAPH_NAME) graph->draft.name = words;
    if (which == BACKPLANE_TEXT_GRAPH_DESCRIPTION) graph->draft.doc = words;
    std::string* place = text_of(graph->model, which);
    if (place == nullptr) invalid("there is no text ", which, "; see BACKPLANE_TEXT_*");
    *place = words;
  });
}

backplane_status* backplane_graph_set_metadata(backplane_graph* graph, const char* key,
                                               const char* value) {
  return guarded([&] {
    required(graph, "graph").edit();
    const std::string name = name_of(key, "key");
    if (value == nullptr) {
      graph->model.metadata.erase(name);
    } else {
      graph->model.metadata[name] = value;
    }
  });
}

backplane_status* backplane_graph_add_value(backplane_graph* graph, const char* name,
                                            const backplane_type* type) {
  return guarded([&] {
    required(graph, "graph");
    const Type& declared = required(type, "type").type;
    graph->edit().declare(name_of(name, "name"), declared);
  });
}

backplane_status* backplane_graph_add_initializer(backplane_graph* graph, const char* name,
                                                  const backplane_value* value) {
  return guarded([&] {
    required(graph, "graph");
    ConstantPtr contents = contents_of(required(value, "value"));
    graph->edit().add_initializer(name_of(name, "name"), std::move(contents));
  });
}

backplane_status* backplane_graph_remove_initializer(backplane_graph* graph, const char* name) {
  return guarded(
      [&] { required(graph, "graph").edit().remove_initializer(name_of(name, "name")); });
}

backplane_status* backplane_graph_annotate(backplane_graph* graph, const char* value,
                                           const char* parameter, const char* tensor) {
  return guarded([&] {
    required(graph, "graph")
        .edit()
        .annotate(name_of(value, "value"), name_of(parameter, "parameter"),
                  name_of(tensor, "tensor"));
  });
}

backplane_status* backplane_graph_add_node(backplane_graph* graph, const char* op_type,
                                           const char* domain, const char* name,
                                           const char* const* inputs, std::size_t input_count,
                                           const char* const* outputs, std::size_t output_count,
                                           std::int64_t* node) {
  return guarded([&] {
    if (node != nullptr) *node = -1;
    required(graph, "graph");
    const NodeId id = graph->edit().add_node(name_of(op_type, "op_type"), word(domain), word(name),
                                             words(inputs, input_count, "inputs"),
                                             words(outputs, output_count, "outputs"));
    if (node != nullptr) *node = number_of(id);
  });
}

backplane_status* backplane_graph_remove_node(backplane_graph* graph, std::int64_t node) {
  return guarded([&] { required(graph, "graph").edit().remove_node(node_id(node)); });
}

backplane_status* backplane_graph_find_node(backplane_graph* graph, const char* name,
                                            std::int64_t* node) {
  return guarded([&] {
    required(node, "node") = -1;
    const std::string wanted = name_of(name, "name");
    const NodeId id = required(graph, "graph").draft.find_node(wanted);
    if (id == kNone) throw Error(Code::NotFound, text("the graph has no node '", wanted, "'"));
    *node = number_of(id);
  });
}

backplane_status* backplane_graph_set_int(backplane_graph* graph, std::int64_t node,
                                          const char* name, std::int64_t value) {
  return set_attribute(graph, node, name, Attribute::Type::Int,
                       [&](Attribute& attribute) { attribute.ints = {value}; });
}

backplane_status* backplane_graph_set_float(backplane_graph* graph, std::int64_t node,
                                            const char* name, float value) {
  return set_attribute(graph, node, name, Attribute::Type::Float,
                       [&](Attribute& attribute) { attribute.floats = {value}; });
}

backplane_status* backplane_graph_set_string(backplane_graph* graph, std::int64_t node,
                                             const char* name, const char* data,
                                             std::uint64_t size) {
  return set_attribute(graph, node, name, Attribute::Type::String, [&](Attribute& attribute) {
    if (size > 0) required(data, "data");
    attribute.strings.emplace_back(size > 0 ? data : "", static_cast<std::size_t>(size));
  });
}

backplane_status* backplane_graph_set_tensor(backplane_graph* graph, std::int64_t node,
                                             const char* name, const backplane_value* value) {
  return set_attribute(graph, node, name, Attribute::Type::Tensor, [&](Attribute& attribute) {
    attribute.tensors = {contents_of(required(value, "value"))};
  });
}

backplane_status* backplane_graph_set_type(backplane_graph* graph, std::int64_t node,
                                           const char* name, const backplane_type* type) {
  return set_attribute(graph, node, name, Attribute::Type::TypeProto, [&](Attribute& attribute) {
    attribute.types = {required(type, "type").type};
  });
}

backplane_status* backplane_graph_set_body(backplane_graph* graph, std::int64_t node,
                                           const char* name, const backplane_graph* body) {
  return set_bodies(graph, node, name, &body, 1, false);
}

backplane_status* backplane_graph_set_ints(backplane_graph* graph, std::int64_t node,
                                           const char* name, const std::int64_t* values,
                                           std::size_t count) {
  return set_attribute(graph, node, name, Attribute::Type::Ints, [&](Attribute& attribute) {
    if (count > 0) attribute.ints.assign(&required(values, "values"), values + count);
  });
}

backplane_status* backplane_graph_set_floats(backplane_graph* graph, std::int64_t node,
                                             const char* name, const float* values,
                                             std::size_t count) {
  return set_attribute(graph, node, name, Attribute::Type::Floats, [&](Attribute& attribute) {
    if (count > 0) attribute.floats.assign(&required(values, "values"), values + count);
  });
}

backplane_status* backplane_graph_set_strings(backplane_graph* graph, std::int64_t node,
                                              const char* name, const char* const* data,
                                              const std::uint64_t* sizes, std::size_t count) {
  return set_attribute(graph, node, name, Attribute::Type::Strings, [&](Attribute& attribute) {
    if (count == 0) return;
    required(data, "data");
    required(sizes, "sizes");
    for (std::size_t i = 0; i < count; ++i)
      attribute.strings.emplace_back(sizes[i] > 0 ? &required(data[i], "data") : "",
                                     static_cast<std::size_t>(sizes[i]));
  });
}

backplane_status* backplane_graph_set_tensors(backplane_graph* graph, std::int64_t node,
                                              const char* name,
                                              const backplane_value* const* values,
                                              std::size_t count) {
  return set_attribute(graph, node, name, Attribute::Type::Tensors, [&](Attribute& attribute) {
    for_each_of(values, count, "values", [&](const backplane_value& value) {
      attribute.tensors.push_back(contents_of(value));
    });
  });
}

backplane_status* backplane_graph_set_types(backplane_graph* graph, std::int64_t node,
                                            const char* name, const backplane_type* const* types,
                                            std::size_t count) {
  return set_attribute(graph, node, name, Attribute::Type::TypeProtos, [&](Attribute& attribute) {
    for_each_of(types, count, "types",
                [&](const backplane_type& type) { attribute.types.push_back(type.type); });
  });
}

backplane_status* backplane_graph_set_bodies(backplane_graph* graph, std::int64_t node,
                                             const char* name, const backplane_graph* const* bodies,
                                             std::size_t count) {
  return set_bodies(graph, node, name, bodies, count, true);
}

backplane_status* backplane_graph_remove_attribute(backplane_graph* graph, std::int64_t node,
                                                   const char* name) {
  return guarded([&] {
    required(graph, "graph").edit().remove_attribute(node_id(node), name_of(name, "name"));
  });
}

backplane_status* backplane_graph_add_control_edge(backplane_graph* graph, std::int64_t earlier,
                                                   std::int64_t later) {
  return guarded(
      [&] { required(graph, "graph").edit().add_control_edge(node_id(earlier), node_id(later)); });
}

backplane_status* backplane_graph_set_priority(backplane_graph* graph, std::int64_t node,
                                               std::int32_t priority) {
  return guarded([&] { required(graph, "graph").edit().set_priority(node_id(node), priority); });
}

backplane_status* backplane_graph_set_inputs(backplane_graph* graph, const char* const* names,
                                             std::size_t count) {
  return guarded([&] { required(graph, "graph").edit().set_inputs(given_names(names, count)); });
}

backplane_status* backplane_graph_set_outputs(backplane_graph* graph, const char* const* names,
                                              std::size_t count) {
  return guarded([&] { required(graph, "graph").edit().set_outputs(given_names(names, count)); });
}
