// The C host interface: options, environments, sessions, bindings.
#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "core/graph/made_up_symbol.hpp"
#include "core/plugin_host/device_choice.hpp"
#include "core/runtime/c_objects.hpp"

namespace backplane::core {
namespace {

using Json = nlohmann::ordered_json;

/// What a provider takes: "meaning" and "range" are as its plugin writes them.
Json describe_option(const bp_option& option) {
  static const std::map<std::int32_t, const char*> kTypes = {{BP_OPTION_STRING, "string"},
                                                             {BP_OPTION_INT, "int"},
                                                             {BP_OPTION_FLOAT, "float"},
                                                             {BP_OPTION_BOOL, "bool"}};
  const auto type = kTypes.find(option.type);
  const auto words = [](const char* given) { return given == nullptr ? "" : given; };
  return {{"name", option.name},
          {"type", type == kTypes.end() ? Json() : Json(type->second)},
          {"default", option.default_value},
          {"range", words(option.range)},
          {"meaning", words(option.doc)}};
}

std::string describe_plugins(Environment& environment) {
  Json rows = Json::array();
  for (const PluginRow& row : environment.plugins().counted_rows()) {
    Json json = {{"file", row.file.string()}, {"status", row.loaded ? "loaded" : "refused"}};
    const std::string& reason = row.reason.empty() ? row.no_devices_reason : row.reason;
    json["reason"] = reason.empty() ? Json() : Json(reason);
    json["abi"] = row.abi.empty() ? Json() : Json(row.abi);
    json["provider"] = row.provider.empty() ? Json() : Json(row.provider);
    json["version"] = row.version.empty() ? Json() : Json(row.version);
    json["devices"] = Json::array();
    for (std::size_t i = 0; i < row.devices.size(); ++i) {
      json["devices"].push_back({{"id", i},
                                 {"name", row.devices[i]->name},
                                 {"memory_bytes", row.devices[i]->memory_bytes},
                                 {"score", row.devices[i]->score}});
    }
    json["best_device"] = row.devices.empty() ? Json() : Json(best_device(row.devices));
    json["kernels"] = row.kernel_count;
    json["options"] = Json::array();
    for (const bp_option* option : row.options) json["options"].push_back(describe_option(*option));
    rows.push_back(std::move(json));
  }
  return rows.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const ValueDescription* find_value(const backplane_session* session, std::int32_t list,
                                   std::size_t index) {
  if (usable(session) == nullptr || list < BACKPLANE_INPUTS || list > BACKPLANE_ALL_INPUTS ||
      index >= session->lists[list].size())
    return nullptr;
  return &session->lists[list][index];
}

}  // namespace

Options copy_of(const backplane_options* options) {
  if (options == nullptr) return {};
  const backplane_options& from = required(options, "options");
  const UseGate::Reading reading(from.gate, "options object");
  return from.options;
}

std::vector<ValueDescription> describe(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<ValueDescription> list;
  for (const ValueId id : values) {
    const Value& value = graph.value(id);
    ValueDescription row{value.name, value.type.to_string(), -1, {}, {}};
    if (value.type.shape) {
      row.rank = static_cast<std::int32_t>(value.type.shape->size());
      for (const Dim& dim : *value.type.shape) {
        row.dims.push_back(dim.size);
        row.symbols.push_back(dim.symbol.starts_with(kMadeUpSymbol) ? "" : dim.symbol);
      }
    }
    list.push_back(std::move(row));
  }
  return list;
}

backplane_status* create_session(backplane_environment* environment, const char* path,
                                 std::span<const std::byte> bytes, const Model* built,
                                 const backplane_options* options, backplane_session** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = std::make_unique<backplane_session>();
    made->session = std::make_shared<Session>(required(environment, "environment").environment,
                                              path != nullptr ? path : "", bytes,
                                              copy_of(options).session, built);
    const Session& session = *made->session;
    made->lists[BACKPLANE_INPUTS] = describe(session.model().graph, session.inputs());
    made->lists[BACKPLANE_OUTPUTS] = describe(session.model().graph, session.outputs());
    made->lists[BACKPLANE_OVERRIDABLE] = describe(session.model().graph, session.overridable());
    made->lists[BACKPLANE_ALL_INPUTS] = describe(session.model().graph, session.all_inputs());
    *out = made.release();
  });
}

}  // namespace backplane::core

using namespace backplane::core;  // the functions below are C

backplane_status* backplane_options_create(backplane_options** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_options;
  });
}

void backplane_options_destroy(backplane_options* options) { destroy(options); }

backplane_status* backplane_options_set(backplane_options* options, const char* key,
                                        const char* value) {
  return guarded(
      [&] { ChangedOptions(options)->set(&required(key, "key"), &required(value, "value")); });
}

backplane_status* backplane_options_read_file(backplane_options* options, const char* path) {
  return guarded([&] { ChangedOptions(options)->read_file(&required(path, "path")); });
}

backplane_status* backplane_options_read_environment(backplane_options* options) {
  return guarded([&] { ChangedOptions(options)->read_environment(); });
}

backplane_status* backplane_options_append_provider(backplane_options* options, const char* name,
                                                    const char* const* keys,
                                                    const char* const* values, std::size_t count) {
  return guarded([&] {
    ProviderChoice choice;
    choice.name = &required(name, "name");
    if (choice.name.empty()) invalid("a provider needs a name");
    if (count > 0) {
      required(keys, "keys");
      required(values, "values");
    }
    for (std::size_t i = 0; i < count; ++i)
      choice.options.emplace_back(&required(keys[i], "keys"), &required(values[i], "values"));
    ChangedOptions(options)->append_provider(std::move(choice));
  });
}

backplane_status* backplane_options_register_custom_ops(backplane_options* options,
                                                        const char* path) {
  return guarded([&] { ChangedOptions(options)->add_custom_ops(&required(path, "path")); });
}

backplane_status* backplane_options_add_placement(backplane_options* options, const char* pattern,
                                                  const char* provider) {
  return guarded([&] {
    const std::string words = &required(pattern, "pattern");
    if (words.empty()) invalid("a placement rule needs a pattern");
    ChangedOptions(options)->add_placement({words, &required(provider, "provider")});
  });
}

backplane_status* backplane_environment_create(const backplane_options* options,
                                               backplane_log_fn log, void* log_context,
                                               backplane_environment** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    Logger::Sink sink;
    if (log != nullptr) {
      sink = [log, log_context](LogLevel level, std::string_view line) {
        log(log_context, static_cast<std::int32_t>(level), std::string(line).c_str());
      };
    }
    auto made = std::make_unique<backplane_environment>();
    made->environment =
        std::make_shared<Environment>(copy_of(options).environment, std::move(sink));
    *out = made.release();
  });
}

void backplane_environment_destroy(backplane_environment* environment) { destroy(environment); }

backplane_status* backplane_environment_providers(backplane_environment* environment,
                                                  backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out =
        new backplane_string(describe_plugins(*required(environment, "environment").environment));
  });
}

backplane_status* backplane_session_create(backplane_environment* environment, const char* path,
                                           const backplane_options* options,
                                           backplane_session** out) {
  if (out != nullptr) *out = nullptr;
  if (path == nullptr || *path == '\0')
    return new_status(Code::InvalidArgument, "the model's path is empty");
  return create_session(environment, path, {}, nullptr, options, out);
}

backplane_status* backplane_session_create_from_memory(backplane_environment* environment,
                                                       const void* data, std::uint64_t bytes,
                                                       const backplane_options* options,
                                                       backplane_session** out) {
  if (out != nullptr) *out = nullptr;
  if (data == nullptr) return new_status(Code::InvalidArgument, "the argument 'data' is null");
  return create_session(environment, nullptr, {static_cast<const std::byte*>(data), bytes}, nullptr,
                        options, out);
}

void backplane_session_destroy(backplane_session* session) { destroy(session); }

std::size_t backplane_session_count(const backplane_session* session, std::int32_t list) {
  return usable(session) != nullptr && list >= BACKPLANE_INPUTS && list <= BACKPLANE_ALL_INPUTS
             ? session->lists[list].size()
             : 0;
}

const char* backplane_session_name(const backplane_session* session, std::int32_t list,
                                   std::size_t index) {
  const ValueDescription* value = find_value(session, list, index);
  return value != nullptr ? value->name.c_str() : nullptr;
}

const char* backplane_session_type(const backplane_session* session, std::int32_t list,
                                   std::size_t index) {
  const ValueDescription* value = find_value(session, list, index);
  return value != nullptr ? value->type.c_str() : nullptr;
}

std::int32_t backplane_session_rank(const backplane_session* session, std::int32_t list,
                                    std::size_t index) {
  const ValueDescription* value = find_value(session, list, index);
  return value != nullptr ? value->rank : 0;
}

const std::int64_t* backplane_session_dims(const backplane_session* session, std::int32_t list,
                                           std::size_t index) {
  const ValueDescription* value = find_value(session, list, index);
  return value != nullptr ? value->dims.data() : nullptr;
}

const char* backplane_session_symbol(const backplane_session* session, std::int32_t list,
                                     std::size_t index, std::int32_t axis) {
  const ValueDescription* value = find_value(session, list, index);
  if (value == nullptr || axis < 0 || axis >= value->rank) return nullptr;
  const std::string& symbol = value->symbols[static_cast<std::size_t>(axis)];
  return symbol.empty() ? nullptr : symbol.c_str();
}

const char* backplane_session_text(const backplane_session* session, std::int32_t which) {
  if (usable(session) == nullptr) return nullptr;
  const Model& model = session->session->model();
  switch (which) {
    case BACKPLANE_TEXT_PRODUCER_NAME:
      return model.producer_name.c_str();
    case BACKPLANE_TEXT_PRODUCER_VERSION:
      return model.producer_version.c_str();
    case BACKPLANE_TEXT_DOMAIN:
      return model.domain.c_str();
    case BACKPLANE_TEXT_DESCRIPTION:
      return model.doc.c_str();
    case BACKPLANE_TEXT_GRAPH_NAME:
      return model.graph.name.c_str();
    case BACKPLANE_TEXT_GRAPH_DESCRIPTION:
      return model.graph.doc.c_str();
    default:
      return nullptr;
  }
}

std::int64_t backplane_session_model_version(const backplane_session* session) {
  return usable(session) != nullptr ? session->session->model().model_version : 0;
}

std::int64_t backplane_session_ir_version(const backplane_session* session) {
  return usable(session) != nullptr ? session->session->model().ir_version : 0;
}

std::int64_t backplane_session_opset(const backplane_session* session, const char* domain) {
  if (usable(session) == nullptr) return 0;
  const std::string_view name = domain != nullptr ? domain : "";
  const std::map<std::string, std::int64_t>& opsets = session->session->model().opsets;
  const auto found = opsets.find(name == "ai.onnx" ? std::string() : std::string(name));
  return found != opsets.end() ? found->second : 0;
}

std::size_t backplane_session_metadata_count(const backplane_session* session) {
  return usable(session) != nullptr ? session->session->model().metadata.size() : 0;
}

const char* backplane_session_metadata_key(const backplane_session* session, std::size_t index) {
  if (index >= backplane_session_metadata_count(session)) return nullptr;
  return std::next(session->session->model().metadata.begin(), static_cast<std::ptrdiff_t>(index))
      ->first.c_str();
}

const char* backplane_session_metadata(const backplane_session* session, const char* key) {
  if (usable(session) == nullptr || key == nullptr) return nullptr;
  const auto found = session->session->model().metadata.find(key);
  return found != session->session->model().metadata.end() ? found->second.c_str() : nullptr;
}

const char* backplane_session_quantization(const backplane_session* session, const char* value,
                                           const char* parameter) {
  if (usable(session) == nullptr || value == nullptr || parameter == nullptr) return nullptr;
  const Graph& graph = session->session->original();
  const ValueId id = graph.find_value(value);
  if (id == kNone) return nullptr;
  const std::map<std::string, std::string>& annotation = graph.value(id).quantization;
  const auto found = annotation.find(parameter);
  return found != annotation.end() ? found->second.c_str() : nullptr;
}

backplane_status* backplane_session_explain(backplane_session* session, backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_string(required(session, "session").session->explain());
  });
}

backplane_status* backplane_session_statistics(backplane_session* session, backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_string(required(session, "session").session->statistics());
  });
}

backplane_status* backplane_session_trace(backplane_session* session, backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_string(required(session, "session").session->trace());
  });
}
