// The C host interface: graphs that are resolved: what they hold, files, sessions.
#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/onnx/importer.hpp"
#include "core/onnx/model_file.hpp"
#include "core/runtime/c_graph.hpp"

namespace backplane::core {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kUsualIrVersion = 10;
constexpr std::int64_t kUsualOpset = 21;

const char* type_name(Attribute::Type type) {
  switch (type) {
    case Attribute::Type::Float:
      return "float";
    case Attribute::Type::Int:
      return "int";
    case Attribute::Type::String:
      return "string";
    case Attribute::Type::Tensor:
      return "tensor";
    case Attribute::Type::Graph:
      return "graph";
    case Attribute::Type::Floats:
      return "floats";
    case Attribute::Type::Ints:
      return "ints";
    case Attribute::Type::Strings:
      return "strings";
    case Attribute::Type::Tensors:
      return "tensors";
    case Attribute::Type::Graphs:
      return "graphs";
    case Attribute::Type::TypeProto:
      return "type";
    case Attribute::Type::TypeProtos:
      return "types";
  }
  return "";
}

Json json_of(const std::vector<ValueDescription>& values) {
  Json list = Json::array();
  for (const ValueDescription& value : values) {
    Json row = {{"name", value.name}, {"type", value.type}, {"shape", Json()}};
    if (value.rank >= 0) row["shape"] = Json::array();
    for (std::size_t axis = 0; axis < value.dims.size(); ++axis) {
      const std::string& symbol = value.symbols[axis];
      row["shape"].push_back(value.dims[axis] >= 0 ? Json(value.dims[axis])
                                                   : Json(symbol.empty() ? "?" : symbol));
    }
    list.push_back(std::move(row));
  }
  return list;
}

Json json_of(const Graph& graph, const Node& node) {
  const auto names = [&](const std::vector<ValueId>& values) {
    Json list = Json::array();
    for (const ValueId id : values) list.push_back(id == kNone ? "" : graph.value(id).name);
    return list;
  };
  Json attributes = Json::object();
  for (const auto& [name, attribute] : node.attributes)
    attributes[name] = type_name(attribute.type);
  Json after = Json::array();
  for (const NodeId earlier : node.after) after.push_back(graph.node(earlier).name);
  return {{"number", node.id.index()},
          {"name", node.name},
          {"op", node.op_type},
          {"domain", node.domain},
          {"inputs", names(node.inputs)},
          {"outputs", names(node.outputs)},
          {"attributes", std::move(attributes)},
          {"priority", node.priority},
          {"after", std::move(after)}};
}

/// Gives the graph the types that inference found where it has none, or knows less of a shape.
void take_types(Graph& graph, const Graph& inferred) {
  for (Value& value : graph.values()) {
    const ValueId found = inferred.find_value(value.name);
    if (found == kNone || value.is_input) continue;
    if (inferred.value(found).type.kind != Type::Kind::Unknown)
      value.type = inferred.value(found).type;
  }
}

template <class Keep>
std::vector<ValueId> values_where(const Graph& graph, const std::vector<ValueId>& values,
                                  Keep&& keep) {
  std::vector<ValueId> kept;
  for (const ValueId id : values) {
    if (keep(graph.value(id))) kept.push_back(id);
  }
  return kept;
}

std::vector<ValueId> inner_values(const Graph& graph) {
  std::vector<ValueId> inner;
  for (const NodeId id : graph.node_ids()) {
    for (const ValueId output : graph.node(id).outputs) {
      if (output == kNone) continue;
      const Value& value = graph.value(output);
      if (!value.uses.empty() && !value.is_output) inner.push_back(output);
    }
  }
  return inner;
}

const ValueDescription* find_value(const backplane_graph* graph, std::int32_t list,
                                   std::size_t index) {
  if (usable(graph) == nullptr || list < BACKPLANE_INPUTS || list > BACKPLANE_INNER_VALUES ||
      index >= graph->lists[list].size())
    return nullptr;
  return &graph->lists[list][index];
}

}  // namespace

std::string* text_of(Model& model, std::int32_t which) {
  switch (which) {
    case BACKPLANE_TEXT_PRODUCER_NAME:
      return &model.producer_name;
    case BACKPLANE_TEXT_PRODUCER_VERSION:
      return &model.producer_version;
    case BACKPLANE_TEXT_DOMAIN:
      return &model.domain;
    case BACKPLANE_TEXT_DESCRIPTION:
      return &model.doc;
    case BACKPLANE_TEXT_GRAPH_NAME:
      return &model.graph.name;
    case BACKPLANE_TEXT_GRAPH_DESCRIPTION:
      return &model.graph.doc;
    default:
      return nullptr;
  }
}

}  // namespace backplane::core

using namespace backplane::core;  // the functions below are C

backplane_graph::backplane_graph() {
  model.ir_version = kUsualIrVersion;
  model.opsets[""] = kUsualOpset;
  model.producer_name = "backplane";
  model.producer_version = BACKPLANE_VERSION;
}

void backplane_graph::add_schemas(SchemaRegistry& schemas) const {
  for (const PluginPtr& domain : options.domains) {
    for (const CustomSchema& schema : domain->schemas()) schemas.add(schema);
  }
  if (environment == nullptr) {
    if (!options.custom_ops.empty())
      invalid("libraries of custom operators need an environment; give one to the graph");
    return;
  }
  PluginSet& plugins = environment->plugins();
  const auto add = [&](const PluginPtr& plugin) {
    for (const CustomSchema& schema : plugin->schemas()) schemas.add(schema);
  };
  for (const auto& file : options.custom_ops) add(plugins.load(file));
  for (const PluginRow& row : plugins.rows()) {
    if (row.loaded && !row.provider.empty()) add(plugins.find_provider(row.provider, nullptr));
  }
}

void backplane_graph::resolve() {
  if (resolved) return;
  Model built(model);
  built.graph = draft.resolve(model.ir_version);
  SchemaRegistry schemas;
  add_schemas(schemas);
  ImportOptions import;
  import.dims = options.dims;
  const Model inferred = import_built(built, schemas, import);
  draft.learn(inferred.graph);
  take_types(built.graph, inferred.graph);
  model = std::move(built);
  const Graph& graph = model.graph;
  lists[BACKPLANE_ALL_INPUTS] = ::backplane::core::describe(graph, graph.inputs);
  lists[BACKPLANE_OUTPUTS] = ::backplane::core::describe(graph, graph.outputs);
  lists[BACKPLANE_INPUTS] = ::backplane::core::describe(
      graph, values_where(graph, graph.inputs, [](const Value& value) { return !value.constant; }));
  lists[BACKPLANE_OVERRIDABLE] = ::backplane::core::describe(
      graph,
      values_where(graph, graph.inputs, [](const Value& value) { return value.overridable; }));
  lists[BACKPLANE_INNER_VALUES] = ::backplane::core::describe(graph, inner_values(graph));
  resolved = true;
}

std::string backplane_graph::describe() {
  resolve();
  const Graph& graph = model.graph;
  Json json = {{"ir_version", model.ir_version}, {"opsets", model.opsets}};
  json["model"] = {{"producer_name", model.producer_name},
                   {"producer_version", model.producer_version},
                   {"domain", model.domain},
                   {"version", model.model_version},
                   {"description", model.doc},
                   {"graph", draft.name},
                   {"graph_description", draft.doc}};
  json["metadata"] = model.metadata;
  json["inputs"] = json_of(lists[BACKPLANE_INPUTS]);
  json["all_inputs"] = json_of(lists[BACKPLANE_ALL_INPUTS]);
  json["outputs"] = json_of(lists[BACKPLANE_OUTPUTS]);
  json["overridable_initializers"] = json_of(lists[BACKPLANE_OVERRIDABLE]);
  json["inner_values"] = json_of(lists[BACKPLANE_INNER_VALUES]);
  json["initializers"] = json_of(::backplane::core::describe(graph, graph.initializers));
  json["quantization"] = Json::object();
  for (const Value& value : graph.values()) {
    for (const auto& [parameter, tensor] : value.quantization)
      json["quantization"][value.name][parameter] = tensor;
  }
  json["nodes"] = Json::array();
  for (const NodeId id : draft.nodes()) json["nodes"].push_back(json_of(graph, graph.node(id)));
  json["order"] = Json::array();
  for (const NodeId id : topological_order(graph)) json["order"].push_back(graph.node(id).name);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

backplane_status* backplane_graph_load(backplane_environment* environment, const char* path,
                                       const backplane_options* options, backplane_graph** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = std::make_unique<backplane_graph>();
    if (environment != nullptr)
      made->environment = required(environment, "environment").environment;
    made->options = copy_of(options).session;
    SchemaRegistry schemas;
    made->add_schemas(schemas);
    ImportOptions import;
    import.dims = made->options.dims;
    import.external_data = made->options.external_data;
    made->model = import_file(&required(path, "path"), schemas, import);
    made->options.dims.clear();  // they are in the graph now
    made->draft = GraphDraft(made->model.graph);
    *out = made.release();
  });
}

backplane_status* backplane_graph_resolve(backplane_graph* graph) {
  return guarded([&] { required(graph, "graph").resolve(); });
}

std::size_t backplane_graph_count(const backplane_graph* graph, std::int32_t list) {
  const bool known =
      usable(graph) != nullptr && list >= BACKPLANE_INPUTS && list <= BACKPLANE_INNER_VALUES;
  return known ? graph->lists[list].size() : 0;
}

const char* backplane_graph_name(const backplane_graph* graph, std::int32_t list,
                                 std::size_t index) {
  const ValueDescription* value = find_value(graph, list, index);
  return value != nullptr ? value->name.c_str() : nullptr;
}

const char* backplane_graph_type(const backplane_graph* graph, std::int32_t list,
                                 std::size_t index) {
  const ValueDescription* value = find_value(graph, list, index);
  return value != nullptr ? value->type.c_str() : nullptr;
}

std::int32_t backplane_graph_rank(const backplane_graph* graph, std::int32_t list,
                                  std::size_t index) {
  const ValueDescription* value = find_value(graph, list, index);
  return value != nullptr ? value->rank : 0;
}

const std::int64_t* backplane_graph_dims(const backplane_graph* graph, std::int32_t list,
                                         std::size_t index) {
  const ValueDescription* value = find_value(graph, list, index);
  return value != nullptr ? value->dims.data() : nullptr;
}

const char* backplane_graph_symbol(const backplane_graph* graph, std::int32_t list,
                                   std::size_t index, std::int32_t axis) {
  const ValueDescription* value = find_value(graph, list, index);
  if (value == nullptr || axis < 0 || axis >= value->rank) return nullptr;
  const std::string& symbol = value->symbols[static_cast<std::size_t>(axis)];
  return symbol.empty() ? nullptr : symbol.c_str();
}

backplane_status* backplane_graph_describe(backplane_graph* graph, backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_string{required(graph, "graph").describe()};
  });
}

backplane_status* backplane_graph_save(backplane_graph* graph, const char* path,
                                       std::int32_t external) {
  return guarded([&] {
    const std::string file = &required(path, "path");
    if (external < BACKPLANE_EXTERNAL_AUTO || external > BACKPLANE_EXTERNAL_NEVER)
      invalid("the argument 'external' is ", external, "; see BACKPLANE_EXTERNAL_*");
    required(graph, "graph").resolve();
    save_model(graph->model, file, static_cast<ExternalContents>(external), false);
  });
}

backplane_status* backplane_graph_serialize(backplane_graph* graph, backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    required(graph, "graph").resolve();
    *out = new backplane_string{serialize_model(graph->model)};
  });
}

backplane_status* backplane_session_create_from_graph(backplane_environment* environment,
                                                      backplane_graph* graph,
                                                      const backplane_options* options,
                                                      backplane_session** out) {
  if (out != nullptr) *out = nullptr;
  backplane_status* status = guarded([&] { required(graph, "graph").resolve(); });
  if (status != nullptr) return status;
  return create_session(environment, nullptr, {}, &graph->model, options, out);
}
