#include "core/onnx/opsets.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/attribute_check.hpp"

namespace backplane::core {
namespace {

// A name that no exporter uses; marks of this name that a file brings are removed.
constexpr const char* kVersionMark = "backplane.opset";

std::string listed(const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names)
    result += (result.empty() ? "" : ", ") + single_line(name, 120);
  return result;
}

[[noreturn]] void fail_unknown(const ::onnx::NodeProto& node, int version,
                               const SchemaRegistry& schemas) {
  const std::string domain = canonical_domain(node.domain());
  const std::string where = described(node);
  const std::span<const SchemaInfo> versions = schemas.versions(domain, node.op_type());
  if (!versions.empty()) {
    throw Error(
        Code::Unsupported,
        text(where, ": this operator of domain ", quoted(shown_domain(domain)), " came with opset ",
             versions.front().since_version, ", but the model imports opset ", version,
             "; export the model with a newer opset"));
  }
  if (domain == "com.microsoft.nchwc" || domain == "com.ms.internal.nhwc") {
    throw Error(Code::Unsupported,
                text(where, ": operators of the domain ", quoted(domain),
                     " belong to a layout that ONNX Runtime chose for one machine; save the model "
                     "from it again at the optimization level extended (ORT_ENABLE_EXTENDED) "
                     "instead of all, or load the model that it was made from"));
  }
  const std::vector<std::string> similar = schemas.similar(domain, node.op_type());
  const bool known_domain = schemas.impl().is_known_domain(domain);
  throw Error(Code::Unsupported,
              text(where, ": nobody knows an operator ", quoted(node.op_type()), " of domain ",
                   quoted(shown_domain(domain)),
                   known_domain ? text(" in opset ", version) : std::string(" (an unknown domain)"),
                   similar.empty() ? std::string() : "; nearest: " + listed(similar),
                   "; if it is a custom operator, give its library with --custom-ops"));
}

bool is_variadic(const ::onnx::OpSchema& schema) {
  return !schema.inputs().empty() &&
         schema.inputs().back().GetOption() == ::onnx::OpSchema::FormalParameterOption::Variadic;
}

/// ONNX's own check skips variadic inputs, none of which an operator of its own or of com.microsoft takes as optional.
void check_variadic(const ::onnx::NodeProto& node, const ::onnx::OpSchema& schema) {
  for (int i = static_cast<int>(schema.inputs().size()) - 1; i < node.input_size(); ++i) {
    if (node.input(i).empty())
      invalid(described(node), ": input ", i, " is left out, and must be given");
  }
}

/// A version that ONNX deprecated though it is still what models of its opsets mean: 21 gave the operator other
/// parameters. What else is deprecated (Scatter, Upsample) has another operator in its place.
bool is_still_meant(const ::onnx::OpSchema& schema) {
  return schema.deprecated() && schema.Name() == "GroupNormalization";
}

/// What ONNX checks nodes by, without the deprecation, which a schema cannot take back.
::onnx::OpSchema without_deprecation(const ::onnx::OpSchema& schema) {
  ::onnx::OpSchema copy(schema.Name(), schema.file(), schema.line());
  copy.SetDomain(schema.domain()).SinceVersion(schema.since_version());
  int count = 0;
  for (const auto& input : schema.inputs())
    copy.Input(count++, input.GetName(), "", input.GetTypeStr(), input.GetOption());
  count = 0;
  for (const auto& output : schema.outputs())
    copy.Output(count++, output.GetName(), "", output.GetTypeStr(), output.GetOption());
  for (const auto& param : schema.typeConstraintParams())
    copy.TypeConstraint(param.type_param_str, param.allowed_type_strs, "");
  for (const auto& [name, attribute] : schema.attributes()) copy.Attr(attribute);
  copy.Finalize();
  return copy;
}

void verify(const ::onnx::NodeProto& node, const Opsets& opsets, const SchemaRegistry& schemas) {
  for (const auto& attribute : node.attribute()) {
    if (!attribute.ref_attr_name().empty()) {
      invalid(described(node), ": attribute ", quoted(attribute.name()), " refers to ",
              quoted(attribute.ref_attr_name()), " of a function, but the node is in none");
    }
  }
  const ::onnx::OpSchema& schema = schema_of(node, opsets, schemas);
  try {
    if (is_still_meant(schema)) {
      without_deprecation(schema).Verify(node);
    } else {
      schema.Verify(node);
    }
  } catch (const std::exception& error) {
    invalid(described(node), ": ", single_line(error.what()));
  }
  if (is_variadic(schema)) {
    const bool is_custom = schemas.impl().custom(canonical_domain(node.domain()), node.op_type(),
                                                 opsets.version_for(node)) != nullptr;
    if (!is_custom) check_variadic(node, schema);
  }
  check_attributes(node);
}

}  // namespace

std::string described(const ::onnx::NodeProto& node) {
  const std::string kind = text(" (", single_line(node.op_type(), 120), ")");
  const auto made = std::find_if(node.output().begin(), node.output().end(),
                                 [](const std::string& output) { return !output.empty(); });
  if (node.name().empty() && made != node.output().end())
    return text("the node", kind, " that makes ", quoted(*made));
  return text("node ", quoted(node.name()), kind);
}

bool Opsets::add(const std::string& domain, std::int64_t version) {
  return imports_.emplace(canonical_domain(domain), version).first->second == version;
}

Opsets Opsets::of(const ::onnx::ModelProto& model) {
  Opsets opsets;
  for (const auto& entry : model.opset_import()) {
    const std::string shown = quoted(shown_domain(entry.domain()));
    if (entry.version() < 1 || entry.version() > std::numeric_limits<std::int32_t>::max()) {
      invalid("the model imports opset ", entry.version(), " of domain ", shown,
              ", which is no version");
    }
    if (!opsets.add(entry.domain(), entry.version())) {
      invalid("the model imports two versions of domain ", shown);
    }
  }
  if (opsets.imports_.empty()) {
    // Before IR version 3 there was only one opset.
    if (model.ir_version() >= 3)
      invalid("the model imports no opset; its opset_import must name at least one");
    opsets.imports_.emplace("", 1);
  }
  const int newest = SchemaRegistry::Impl::newest_version("").value_or(0);
  const auto standard = opsets.imports_.find("");
  if (standard != opsets.imports_.end() && standard->second > newest) {
    throw Error(Code::Unsupported, text("the model imports opset ", standard->second,
                                        " of domain 'ai.onnx', newer than this build knows (",
                                        newest, "); export it with an older opset"));
  }
  return opsets;
}

int Opsets::version_for(const ::onnx::NodeProto& node) const {
  for (const auto& property : node.metadata_props()) {
    if (property.key() == kVersionMark) return std::stoi(property.value());
  }
  const auto entry = imports_.find(canonical_domain(node.domain()));
  return entry == imports_.end() ? 0 : static_cast<int>(entry->second);
}

void Opsets::set_version(::onnx::NodeProto& node, std::int64_t version) {
  auto* property = node.add_metadata_props();
  property->set_key(kVersionMark);
  property->set_value(std::to_string(version));
}

void Opsets::remove_marks(::onnx::NodeProto& node) {
  auto& properties = *node.mutable_metadata_props();
  for (int i = properties.size() - 1; i >= 0; --i) {
    if (properties.Get(i).key() == kVersionMark) properties.DeleteSubrange(i, 1);
  }
}

const ::onnx::OpSchema& schema_of(const ::onnx::NodeProto& node, const Opsets& opsets,
                                  const SchemaRegistry& schemas) {
  const std::string domain = canonical_domain(node.domain());
  const int version = opsets.version_for(node);
  if (version == 0) {
    if (schemas.versions(domain, node.op_type()).empty()) fail_unknown(node, 0, schemas);
    invalid(described(node), ": the model does not import the node's domain ",
            quoted(shown_domain(domain)), "; add it to the model's opset_import");
  }
  const std::optional<int> newest = SchemaRegistry::Impl::newest_version(domain);
  const bool custom = schemas.impl().custom(domain, node.op_type(), version) != nullptr;
  if (newest && version > *newest && !custom) {
    throw Error(Code::Unsupported, text(described(node), ": the model imports opset ", version,
                                        " of domain ", quoted(shown_domain(domain)),
                                        ", newer than this build knows (", *newest, ")"));
  }
  const ::onnx::OpSchema* schema = schemas.impl().GetSchema(node.op_type(), version, domain);
  if (schema == nullptr) fail_unknown(node, version, schemas);
  return *schema;
}

void verify_nodes(const ::onnx::GraphProto& graph, const Opsets& opsets,
                  const SchemaRegistry& schemas) {
  for (const ::onnx::NodeProto& node : graph.node()) {
    verify(node, opsets, schemas);
    for_each_graph(node,
                   [&](const ::onnx::GraphProto& body) { verify_nodes(body, opsets, schemas); });
  }
}

}  // namespace backplane::core
