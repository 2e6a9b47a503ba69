#include "core/onnx/private_operators.hpp"

#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/base/text_stream.hpp"
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

}  // namespace

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
}

}  // namespace backplane::core
