#include "core/onnx/private_operators.hpp"

#include <set>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/base/text_stream.hpp"
#include "core/graph/constant.hpp"
#include "core/onnx/exporter.hpp"
#include "core/onnx/opsets.hpp"

namespace backplane::core {
namespace {

using Operators = std::map<std::pair<std::string, std::string>, PrivateOperator>;

void collect(const ::onnx::GraphProto& graph, const std::set<std::string>& domains,
             Operators& operators) {
  for (const ::onnx::NodeProto& node : graph.node()) {
    for_each_graph(node,
                   [&](const ::onnx::GraphProto& body) { collect(body, domains, operators); });
    if (!domains.contains(node.domain())) continue;
    PrivateOperator& found = operators[{node.domain(), node.op_type()}];
    found.domain = node.domain();
    found.op_type = node.op_type();
    for (const auto& attribute : node.attribute())
      found.attributes[attribute.name()] = static_cast<Attribute::Type>(attribute.type());
  }
}

std::string value_of(const std::map<std::string, std::string>& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : found->second;
}

constexpr std::size_t kLeastLarge = 1024;  // bytes of contents that may lie outside of the proto

/// Leaves what says the same wherever the contents lie.
void leave_contents_out(::onnx::TensorProto& tensor) {
  tensor.clear_segment();
  tensor.clear_data_location();
  tensor.clear_external_data();
  if (tensor.raw_data().size() >= kLeastLarge) tensor.clear_raw_data();
}

void leave_contents_out(::onnx::GraphProto& graph) {
  for (auto& tensor : *graph.mutable_initializer()) leave_contents_out(tensor);
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) leave_contents_out(*attribute.mutable_t());
      for (auto& tensor : *attribute.mutable_tensors()) leave_contents_out(tensor);
    }
    for_each_graph(node, [](::onnx::GraphProto& body) { leave_contents_out(body); });
  }
}

/// Of all that gives the nodes their meaning.
std::string hash_of(const ::onnx::ModelProto& model) {
  ::onnx::ModelProto part;
  part.set_ir_version(model.ir_version());
  *part.mutable_opset_import() = model.opset_import();
  *part.mutable_functions() = model.functions();
  *part.mutable_graph() = model.graph();
  leave_contents_out(*part.mutable_graph());
  const std::string bytes = part.SerializeAsString();
  const auto count = static_cast<std::int64_t>(bytes.size());
  const ContentHash hash =
      Constant::copy_of(DataType::UInt8, {count}, std::as_bytes(std::span(bytes)))->hash();
  return text(std::hex, hash.high, '.', hash.low);
}

}  // namespace

std::string private_contents(const Model& model) {
  ExportSettings settings;
  settings.drop_unused = true;
  settings.contents = [](const ConstantPtr& contents, ::onnx::TensorProto& proto) {
    if (contents->type() == DataType::String || contents->stored_bytes().size() < kLeastLarge)
      write_inline(contents, proto);
  };
  return hash_of(export_model(model, settings));
}

void refuse_private(const std::map<std::string, std::string>& metadata, const std::string& here) {
  throw Error(Code::Unsupported,
              text("the model was saved after optimization for the device ",
                   quoted(value_of(metadata, kPrivateDeviceKey)),
                   " and holds operators of that provider's own (",
                   single_line(value_of(metadata, kPrivateDomainsKey), 120), "); ", here,
                   "; load the model that it was made from, or save it at optimization = basic"));
}

void accept_private_operators(const ::onnx::ModelProto& model, const ImportOptions& options) {
  std::map<std::string, std::string> metadata;
  for (const auto& property : model.metadata_props()) metadata[property.key()] = property.value();
  std::set<std::string> domains;
  TextInput list(value_of(metadata, kPrivateDomainsKey));
  for (std::string domain; std::getline(list, domain, ',');) domains.insert(domain);
  if (domains.empty()) return;
  Operators operators;
  collect(model.graph(), domains, operators);
  if (operators.empty()) return;
  if (!options.accept_private) refuse_private(metadata, "such a model can only be run");
  std::vector<PrivateOperator> found;
  for (auto& [name, entry] : operators) found.push_back(std::move(entry));
  options.accept_private(metadata, found);
  if (value_of(metadata, kPrivateContentsKey) != hash_of(model)) {
    invalid("the model was edited after it was saved; it holds operators of a provider's own (",
            single_line(value_of(metadata, kPrivateDomainsKey), 120),
            "), which can be run only as they were saved; load the model that it was made from");
  }
}

}  // namespace backplane::core
