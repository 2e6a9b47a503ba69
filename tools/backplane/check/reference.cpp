#include "tools/backplane/check/reference.hpp"

namespace backplane::cli::check {
namespace {

void set_attribute(Graph::Node& node, const std::string& name, const AttributeValue& value) {
  std::visit([&](const auto& held) { node.set(name, held); }, value);
}

std::string input_name(const NodeCase& node, std::size_t i) {
  return node.inputs[i].tensor.dtype == BP_NONE ? "" : "in_" + std::to_string(i);
}

}  // namespace

void add_to(Graph& graph, const NodeCase& node) {
  graph.set_opset(node.domain, node.since_version);
  std::vector<std::string> inputs, outputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const NodeCase::Input& input = node.inputs[i];
    inputs.push_back(input_name(node, i));
    if (inputs.back().empty()) continue;
    if (input.is_constant) {
      graph.add_initializer(inputs.back(), to_value(input.tensor));
    } else {
      graph.add_value(inputs.back(), GraphType::tensor(static_cast<ElementType>(input.tensor.dtype),
                                                       input.tensor.dims));
    }
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    outputs.push_back("out_" + std::to_string(i));
  Graph::Node added = graph.add_node(node.op_type, inputs, outputs, "checked", node.domain);
  for (const auto& [name, value] : node.attributes) set_attribute(added, name, value);
  graph.set_outputs(outputs);
}

std::vector<std::pair<std::string, Value>> feeds_of(const NodeCase& node) {
  std::vector<std::pair<std::string, Value>> feeds;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].tensor.dtype == BP_NONE || node.inputs[i].is_constant) continue;
    feeds.emplace_back(input_name(node, i), to_value(node.inputs[i].tensor));
  }
  return feeds;
}

Feeds views_of(const std::vector<std::pair<std::string, Value>>& feeds) {
  Feeds views;
  for (const auto& [name, value] : feeds) views.emplace_back(name, value);
  return views;
}

std::optional<std::vector<Tensor>> CpuReference::compute(const NodeCase& node) {
  try {
    if (environment_ == nullptr) {
      Options options;
      options.set("environment.threads", "1");
      environment_ = std::make_unique<Environment>(options, [](int, const std::string&) {});
    }
    Options options;
    options.set("providers", "cpu").set("fallback", "forbid").set("optimization", "none");
    Graph graph(*environment_, options);
    add_to(graph, node);
    const Session session(*environment_, graph, options);
    const auto feeds = feeds_of(node);
    std::vector<Tensor> outputs;
    for (const Value& value : session.run(views_of(feeds))) outputs.push_back(from_value(value));
    return outputs;
  } catch (const Error&) {  // no CPU provider, a type or form that it does not take
    return std::nullopt;
  }
}

}  // namespace backplane::cli::check
