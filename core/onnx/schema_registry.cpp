#include "core/onnx/schema_registry.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/function_operator.hpp"
#include "core/onnx/schema_registry_impl.hpp"
#include "core/onnx/standard_schemas.hpp"

namespace backplane::core {
namespace {

FormalParam to_formal_param(const ::onnx::OpSchema::FormalParameter& param) {
  using Option = ::onnx::OpSchema::FormalParameterOption;
  FormalParam result;
  result.name = param.GetName();
  result.type = param.GetTypeStr();
  if (param.GetOption() == Option::Optional) result.kind = FormalParam::Kind::Optional;
  if (param.GetOption() == Option::Variadic) {
    result.kind = FormalParam::Kind::Variadic;
    result.min_count = static_cast<std::uint64_t>(std::max(0, param.GetMinArity()));
    result.heterogeneous = !param.GetIsHomogeneous();
  }
  return result;
}

bool is_deterministic(const ::onnx::OpSchema& schema);

/// Whether the body of a function has none but deterministic nodes; false where there is no body.
bool has_deterministic_body(const ::onnx::OpSchema& schema) {
  const ::onnx::FunctionProto* const function = schema.GetFunction();
  if (function == nullptr) return false;
  return std::all_of(function->node().begin(), function->node().end(),
                     [&](const ::onnx::NodeProto& node) {
                       int version = 1;
                       for (const auto& import : function->opset_import()) {
                         if (import.domain() == node.domain())
                           version = static_cast<int>(import.version());
                       }
                       const auto* called = standard_schema(node.domain(), node.op_type(), version);
                       return called == nullptr || is_deterministic(*called);
                     });
}

/// ONNX's own answer asks its registry about the nodes of a body, and that makes the schemas of all operators.
bool is_deterministic(const ::onnx::OpSchema& schema) {
  return has_deterministic_body(schema) ||
         schema.GetNodeDeterminism() != ::onnx::OpSchema::NodeDeterminism::NonDeterministic;
}

SchemaInfo to_info(const ::onnx::OpSchema& schema) {
  SchemaInfo info;
  info.since_version = schema.since_version();
  for (const auto& param : schema.inputs()) info.inputs.push_back(to_formal_param(param));
  for (const auto& param : schema.outputs()) info.outputs.push_back(to_formal_param(param));
  for (const auto& param : schema.typeConstraintParams()) {
    info.type_params.emplace(param.type_param_str, param.allowed_type_strs);
  }
  info.deterministic = is_deterministic(schema);
  return info;
}

/// The versions of an operator of ONNX or of function_operators(), which are the same in all sessions: made once, when first
/// asked for. A provider of other people asks for hundreds in every session.
std::span<const SchemaInfo> own_versions(const std::pair<std::string, std::string>& key) {
  static std::mutex mutex;
  static auto* const made =
      new std::map<std::pair<std::string, std::string>, std::vector<SchemaInfo>>;
  const std::lock_guard lock(mutex);
  if (const auto entry = made->find(key); entry != made->end()) return entry->second;
  std::vector<SchemaInfo> infos;
  for (const ::onnx::OpSchema* schema : standard_versions(key.first, key.second))
    infos.push_back(to_info(*schema));
  if (infos.empty()) {
    const FunctionOperator* known = function_operator(key.first, key.second, kNewestVersion);
    if (known != nullptr) infos.push_back(to_info(known->schema));
  }
  if (infos.empty()) return {};
  return made->emplace(key, std::move(infos)).first->second;
}

const FormalParam* param_at(const std::vector<FormalParam>& params, std::size_t index) {
  if (index < params.size()) return &params[index];
  const bool variadic = !params.empty() && params.back().kind == FormalParam::Kind::Variadic;
  return variadic ? &params.back() : nullptr;
}

std::string described(const CustomSchema& schema) {
  return text("operator ", quoted(schema.name), " of domain ", quoted(shown_domain(schema.domain)),
              " (", schema.library.empty() ? std::string("no library named") : schema.library, ")");
}

void check_params(const CustomSchema& schema, const std::vector<FormalParam>& params,
                  const char* side) {
  const auto is_parameter = [&](const std::string& type) {
    return std::any_of(schema.type_params.begin(), schema.type_params.end(),
                       [&](const CustomSchema::TypeParam& param) { return param.name == type; });
  };
  bool optional_seen = false;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const FormalParam& param = params[i];
    const auto fail = [&](const std::string& reason) {
      invalid(described(schema), ": ", side, " ", i, " ", quoted(param.name), " ", reason);
    };
    if (param.name.empty()) fail("needs a name");
    if (!is_parameter(param.type)) {
      try {
        (void)Type::parse(param.type);
      } catch (const Error&) {
        fail("has the type " + quoted(param.type) +
             ", which is neither a type parameter nor an ONNX type");
      }
    }
    if (param.kind == FormalParam::Kind::Variadic && i + 1 != params.size())
      fail("is variadic, but not the last");
    if (param.kind == FormalParam::Kind::Required && optional_seen)
      fail("is required, but follows an optional one");
    optional_seen = optional_seen || param.kind == FormalParam::Kind::Optional;
  }
}

void check_definition(const CustomSchema& schema) {
  if (schema.name.empty()) invalid(described(schema), " needs a name");
  if (schema.since_version < 1)
    invalid(described(schema), ": since_version is ", schema.since_version,
            ", at least 1 is needed");
  std::set<std::string> names;
  for (const CustomSchema::TypeParam& param : schema.type_params) {
    if (param.name.empty() || param.types.empty() || !names.insert(param.name).second) {
      invalid(described(schema), ": type parameter ", quoted(param.name),
              " needs a name of its own and types");
    }
    for (const std::string& type : param.types) {
      try {
        (void)Type::parse(type);
      } catch (const Error& error) {
        throw error.within(described(schema) + ": type parameter " + quoted(param.name));
      }
    }
  }
  check_params(schema, schema.inputs, "input");
  check_params(schema, schema.outputs, "output");
  names.clear();
  for (const CustomSchema::AttributeDef& attribute : schema.attributes) {
    if (attribute.name.empty() || !names.insert(attribute.name).second) {
      invalid(described(schema), ": attribute ", quoted(attribute.name),
              " needs a name of its own");
    }
  }
}

template <class Add>
void add_params(const std::vector<FormalParam>& params, Add&& add) {
  using Option = ::onnx::OpSchema::FormalParameterOption;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const FormalParam& param = params[i];
    Option option = Option::Single;
    if (param.kind == FormalParam::Kind::Optional) option = Option::Optional;
    if (param.kind == FormalParam::Kind::Variadic) option = Option::Variadic;
    add(static_cast<int>(i), param, option,
        static_cast<int>(std::min<std::uint64_t>(param.min_count, 1u << 20)));
  }
}

::onnx::OpSchema to_onnx_schema(const CustomSchema& schema) {
  ::onnx::OpSchema result(schema.name, schema.library, 0);
  result.SetDomain(schema.domain).SinceVersion(schema.since_version).SetDoc(schema.doc);
  add_params(schema.inputs, [&](int index, const FormalParam& param, auto option, int least) {
    result.Input(index, param.name, std::string(), param.type, option, !param.heterogeneous, least);
  });
  add_params(schema.outputs, [&](int index, const FormalParam& param, auto option, int least) {
    result.Output(index, param.name, std::string(), param.type, option, !param.heterogeneous,
                  least);
  });
  for (const CustomSchema::TypeParam& param : schema.type_params) {
    result.TypeConstraint(param.name, param.types, std::string());
  }
  for (const CustomSchema::AttributeDef& attribute : schema.attributes) {
    const auto type = static_cast<::onnx::AttributeProto::AttributeType>(attribute.type);
    result.Attr(attribute.name, std::string(), type, attribute.required);
  }
  result.Finalize();
  return result;
}

}  // namespace

std::string canonical_domain(const std::string& domain) {
  return domain == "ai.onnx" ? std::string() : domain;
}
std::string shown_domain(const std::string& domain) {
  return domain.empty() ? std::string("ai.onnx") : domain;
}

const FormalParam* SchemaInfo::input(std::size_t index) const { return param_at(inputs, index); }
const FormalParam* SchemaInfo::output(std::size_t index) const { return param_at(outputs, index); }

const SchemaRegistry::Impl::CustomOp* SchemaRegistry::Impl::custom(const std::string& domain,
                                                                   const std::string& op_type,
                                                                   int version) const {
  if (ops.empty()) return nullptr;
  const auto entry = ops.find({domain, op_type});
  if (entry == ops.end()) return nullptr;
  const auto& versions = entry->second.ops;
  const auto after = versions.upper_bound(version);
  return after == versions.begin() ? nullptr : &std::prev(after)->second;
}

const ::onnx::OpSchema* SchemaRegistry::Impl::GetSchema(const std::string& op_type, int version,
                                                        const std::string& domain) const {
  const std::string canonical = canonical_domain(domain);
  if (const CustomOp* op = custom(canonical, op_type, version)) return &op->schema;
  if (const ::onnx::OpSchema* schema = standard_schema(canonical, op_type, version)) return schema;
  const FunctionOperator* known = function_operator(canonical, op_type, version);
  return known == nullptr ? nullptr : &known->schema;
}

bool SchemaRegistry::Impl::is_known_domain(const std::string& domain) const {
  if (newest_version(domain)) return true;
  for (const FunctionOperator& known : function_operators()) {
    if (known.schema.domain() == domain) return true;
  }
  const auto entry = ops.lower_bound({domain, std::string()});
  return entry != ops.end() && entry->first.first == domain;
}

std::optional<int> SchemaRegistry::Impl::newest_version(const std::string& domain) {
  const auto& ranges = ::onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  const auto entry = ranges.find(domain);
  if (entry == ranges.end()) return std::nullopt;
  return entry->second.second;
}

SchemaRegistry::SchemaRegistry() : impl_(std::make_unique<Impl>()) {}
SchemaRegistry::~SchemaRegistry() = default;

void SchemaRegistry::add(CustomSchema schema) {
  schema.domain = canonical_domain(schema.domain);
  check_definition(schema);
  if (standard_schema(schema.domain, schema.name, kNewestVersion) != nullptr) {
    invalid(described(schema), " is one of ONNX's own; give it a domain of its own");
  }
  auto& [versions, infos] = impl_->ops[{schema.domain, schema.name}];
  if (const auto known = versions.find(schema.since_version); known != versions.end()) {
    if (known->second.definition.library == schema.library) return;
    invalid("operator ", quoted(schema.name), " of domain ", quoted(shown_domain(schema.domain)),
            " version ", schema.since_version,
            " is defined by two libraries: ", known->second.definition.library, " and ",
            schema.library, "; load one of them");
  }
  try {
    ::onnx::OpSchema onnx_schema = to_onnx_schema(schema);
    const int version = schema.since_version;
    versions.emplace(version, Impl::CustomOp{std::move(schema), std::move(onnx_schema)});
    infos.clear();
    for (const auto& [since, op] : versions) infos.push_back(to_info(op.schema));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // what ONNX throws about a schema
    invalid(described(schema), ": ", single_line(error.what()));
  }
}

std::optional<SchemaInfo> SchemaRegistry::find(const std::string& domain,
                                               const std::string& op_type, int opset) const {
  const ::onnx::OpSchema* schema = impl_->GetSchema(op_type, opset, domain);
  if (schema == nullptr) return std::nullopt;
  return to_info(*schema);
}

std::span<const SchemaInfo> SchemaRegistry::versions(const std::string& domain,
                                                     const std::string& op_type) const {
  const std::pair<std::string, std::string> key(canonical_domain(domain), op_type);
  const auto entry = impl_->ops.find(key);
  if (entry != impl_->ops.end() && !entry->second.infos.empty()) return entry->second.infos;
  return own_versions(key);
}

std::vector<std::string> SchemaRegistry::similar(const std::string& domain,
                                                 const std::string& op_type) const {
  const std::string canonical = canonical_domain(domain);
  std::vector<std::string> names;
  std::vector<std::string> elsewhere;
  const auto collect = [&](const std::string& known_domain, const std::string& name) {
    (known_domain == canonical ? names : elsewhere).push_back(name);
  };
  for (const auto& [known_domain, name] : standard_operators()) collect(known_domain, name);
  for (const FunctionOperator& known : function_operators())
    collect(known.schema.domain(), known.schema.Name());
  for (const auto& [key, versions] : impl_->ops) collect(key.first, key.second);
  std::sort(names.begin(), names.end());
  std::sort(elsewhere.begin(), elsewhere.end());
  std::vector<std::string> nearest = nearest_names(op_type, names);
  if (nearest.empty()) nearest = nearest_names(op_type, elsewhere);
  return nearest;
}

}  // namespace backplane::core
