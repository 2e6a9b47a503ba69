// Schemas of custom operators, and the inference that comes with them.
#include <cstdint>
#include <set>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/limits.hpp"
#include "core/plugin_host/plugin_call.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// What a plugin's inference sees, with the result behind it.
struct InferCall : bp_infer_ctx {
  std::vector<Type>* types;

  Type& output(std::uint32_t index) const {
    if (index >= types->size()) {
      invalid("output ", index, " does not exist; the node has ", types->size());
    }
    return (*types)[index];
  }
};

const InferCall& call_of(const bp_infer_ctx* ctx) {
  if (ctx == nullptr) invalid("the inference context is NULL");
  return *static_cast<const InferCall*>(ctx);
}

bp_status* set_output(const bp_infer_ctx* ctx, std::uint32_t output, bp_dtype dtype,
                      std::int32_t rank, const std::int64_t* dims, const char* const* symbols) {
  return status_of([&] {
    Type& type = call_of(ctx).output(output);
    const auto element = static_cast<DataType>(dtype);
    if (element != DataType::String && element_bits(element) == 0) {
      invalid("output ", output, ": the element type ", dtype, " is not known");
    }
    if (rank < 0) {
      type = Type::tensor(element);
      return;
    }
    if (rank > kMaxRank) invalid("output ", output, ": a rank of ", rank, " is above ", kMaxRank);
    if (rank > 0 && dims == nullptr) invalid("output ", output, ": its dims are NULL");
    Shape shape(static_cast<std::size_t>(rank));
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (dims[axis] < -1) invalid("output ", output, ": dim ", axis, " is ", dims[axis]);
      shape[axis].size = dims[axis];
      const char* symbol = symbols == nullptr ? nullptr : symbols[axis];
      if (dims[axis] < 0 && symbol != nullptr) shape[axis].symbol = plugin_text(symbol);
    }
    type = Type::tensor(element, std::move(shape));
  });
}

bp_status* set_output_type(const bp_infer_ctx* ctx, std::uint32_t output, const char* type) {
  return status_of([&] { call_of(ctx).output(output) = Type::parse(plugin_text(type)); });
}

const bp_infer_api& infer_api() {
  static const bp_infer_api api = [] {
    bp_infer_api table{};
    table.struct_size = sizeof(table);
    table.set_output = set_output;
    table.set_output_type = set_output_type;
    return table;
  }();
  return api;
}

std::vector<Type> infer(const bp_op_schema& schema, const std::string& what, const Graph& graph,
                        const Node& node) {
  std::vector<Type> types(node.outputs.size());
  const GraphView view(graph, {node.id});
  InferCall call{};
  call.struct_size = sizeof(bp_infer_ctx);
  call.api = &infer_api();
  call.node = view.node(node.id);
  call.types = &types;
  check_status(call_plugin(what, [&] { return schema.infer(schema.self, &call); }), what);
  return types;
}

std::string required_text(const char* text, const std::string& what) {
  if (!is_plain_text(text)) invalid(what, " is missing, or is no printable text");
  return text;
}

/// A type parameter of the schema, or an ONNX type string.
std::string param_type(const char* type, const CustomSchema& schema, const std::string& what) {
  std::string word = required_text(type, what + ": its type");
  for (const CustomSchema::TypeParam& param : schema.type_params) {
    if (param.name == word) return word;
  }
  return Type::parse(word).to_string();
}

std::vector<FormalParam> read_params(const bp_param* const* params, std::uint32_t count,
                                     const CustomSchema& schema, const std::string& which) {
  check_array(params, count, "its " + which + "s");
  std::vector<FormalParam> read;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bp_param* raw = params[i];
    const std::string what = text(which, " ", i);
    check_struct(raw, BP_SIZE_V1(bp_param, min_count), what);
    FormalParam param;
    param.name = required_text(raw->name, what + ": its name");
    param.type = param_type(raw->type, schema, what);
    switch (raw->kind) {
      case BP_PARAM_REQUIRED:
        param.kind = FormalParam::Kind::Required;
        break;
      case BP_PARAM_OPTIONAL:
        param.kind = FormalParam::Kind::Optional;
        break;
      case BP_PARAM_VARIADIC:
        param.kind = FormalParam::Kind::Variadic;
        break;
      default:
        invalid(what, ": the kind ", raw->kind, " is not known");
    }
    if (param.kind == FormalParam::Kind::Variadic && i + 1 != count) {
      invalid(what, " is variadic, but not the last one");
    }
    param.heterogeneous = raw->heterogeneous != 0;
    param.min_count = raw->min_count;
    read.push_back(std::move(param));
  }
  return read;
}

void read_type_params(const bp_op_schema& schema, CustomSchema& read) {
  check_array(schema.type_params, schema.type_param_count, "its type parameters");
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < schema.type_param_count; ++i) {
    const bp_type_param* raw = schema.type_params[i];
    const std::string what = text("type parameter ", i);
    check_struct(raw, BP_SIZE_V1(bp_type_param, type_count), what);
    CustomSchema::TypeParam param;
    param.name = required_text(raw->name, what + ": its name");
    if (!names.insert(param.name).second) invalid(what, " has the name of another one");
    check_array(raw->types, raw->type_count, what + ": its types");
    if (raw->type_count == 0) invalid(what, " ", quoted(param.name), " allows no type");
    for (std::uint64_t t = 0; t < raw->type_count; ++t) {
      param.types.push_back(
          Type::parse(required_text(raw->types[t], what + ": a type")).to_string());
    }
    read.type_params.push_back(std::move(param));
  }
}

/// Users are shown it: it must be a value of the attribute.
void check_default(const bp_attribute_def& attribute, const std::string& what) {
  if (attribute.default_value == nullptr) return;
  try {
    const auto [name, value] = read_attribute(*attribute.default_value);
    if (name != attribute.name) invalid("its name is ", quoted(name));
    if (static_cast<std::int32_t>(value.type) != attribute.type)
      invalid("its type is ", attribute.default_value->type, ", and the attribute's ",
              attribute.type);
  } catch (const Error& error) {
    throw error.within(what + ": its default value");
  }
}

void read_attributes(const bp_op_schema& schema, CustomSchema& read) {
  check_array(schema.attributes, schema.attribute_count, "its attributes");
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < schema.attribute_count; ++i) {
    const bp_attribute_def* raw = schema.attributes[i];
    const std::string what = text("attribute ", i);
    check_struct(raw, BP_SIZE_V1(bp_attribute_def, default_value), what);
    const std::string name = required_text(raw->name, what + ": its name");
    if (!names.insert(name).second) invalid(what, " has the name of another one");
    const bool known = (raw->type >= BP_ATTRIBUTE_FLOAT && raw->type <= BP_ATTRIBUTE_GRAPHS) ||
                       raw->type == BP_ATTRIBUTE_TYPE || raw->type == BP_ATTRIBUTE_TYPES;
    if (!known) invalid(what, ": the attribute type ", raw->type, " is not known");
    check_default(*raw, text(what, " ", quoted(name)));
    read.attributes.push_back({name, static_cast<Attribute::Type>(raw->type), raw->required != 0});
  }
}

void read_checked(const bp_op_schema& schema, CustomSchema& read) {
  if (schema.since_version < 1) invalid("its since_version is ", schema.since_version);
  read.since_version = schema.since_version;
  read.doc = plugin_text(schema.doc, kMaxCount);
  read_type_params(schema, read);
  read.inputs = read_params(schema.inputs, schema.input_count, read, "input");
  read.outputs = read_params(schema.outputs, schema.output_count, read, "output");
  read_attributes(schema, read);
}

}  // namespace

CustomSchema read_schema(const bp_op_schema& schema, const std::string& library) {
  check_struct(&schema, BP_SIZE_V1(bp_op_schema, infer), "an operator schema");
  CustomSchema read;
  read.library = library;
  read.name = required_text(schema.name, "an operator schema: its name");
  if (schema.domain == nullptr) invalid("operator ", quoted(read.name), ": its domain is NULL");
  const std::string domain = plugin_text(schema.domain);
  read.domain = domain == "ai.onnx" ? "" : domain;
  const std::string what =
      "operator " + quoted(read.domain.empty() ? read.name : read.domain + "::" + read.name);
  try {
    read_checked(schema, read);
  } catch (const Error& error) {
    throw error.within(what);
  }
  if (schema.infer != nullptr) {
    read.infer = [raw = &schema, what = what + ": its inference"](const Graph& graph,
                                                                  const Node& node) {
      return infer(*raw, what, graph, node);
    };
  }
  return read;
}

}  // namespace backplane::core
