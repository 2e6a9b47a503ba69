// Cutting a graph to what leads from feeds to fetches.
#include <algorithm>
#include <unordered_set>

#include "core/base/nearest_name.hpp"
#include "core/graph/verify.hpp"
#include "core/plan/program.hpp"

namespace backplane::core {
namespace {

std::vector<std::string> value_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value& value : graph.values()) names.push_back(value.name);
  return names;
}

std::string hint(const Graph& graph, const std::string& name) {
  std::string hint = did_you_mean(name, value_names(graph));
  if (!hint.empty()) return hint;
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(graph.inputs.size(), kShown); ++i)
    hint += (i == 0 ? "; its inputs: '" : ", '") + graph.value(graph.inputs[i]).name + "'";
  return hint;
}

ValueId known_value(const Graph& graph, const std::string& name, const char* what) {
  const ValueId id = graph.find_value(name);
  if (id == kNone) invalid("the model has no value '", name, "' to ", what, hint(graph, name));
  return id;
}

/// Makes a value an input, whatever it was.
void feed_value(Graph& graph, const std::string& name, std::int64_t ir_version) {
  Value& value = graph.value(known_value(graph, name, "feed"));
  if (value.constant != nullptr && !value.overridable) {
    const std::string reason = ir_version < 4
                                   ? text("the model has IR version ", ir_version,
                                          ", and before version 4 initializers are constants")
                                   : std::string("the model does not list it among its inputs");
    invalid("'", name, "' is an initializer that cannot be replaced: ", reason);
  }
  if (value.constant != nullptr) {
    value.constant = nullptr;
    std::erase(graph.initializers, value.id);
  }
  value.overridable = false;
  if (value.producer != kNone) {
    graph.node(value.producer).outputs[static_cast<std::size_t>(value.producer_output)] = kNone;
    value.producer = kNone;
    value.producer_output = -1;
  }
  if (!value.is_input) {
    value.is_input = true;
    graph.inputs.push_back(value.id);
  }
}

std::unordered_set<NodeId> needed_nodes(const Graph& graph) {
  std::unordered_set<NodeId> needed;
  std::vector<ValueId> open = graph.outputs;
  while (!open.empty()) {
    const NodeId producer = graph.value(open.back()).producer;
    open.pop_back();
    if (producer == kNone || !needed.insert(producer).second) continue;
    const Node& node = graph.node(producer);
    for (const ValueId input : node.inputs) {
      if (input != kNone) open.push_back(input);
    }
    open.insert(open.end(), node.captured.begin(), node.captured.end());
  }
  return needed;
}

void check_fed(const Graph& graph, const Cut& cut) {
  std::string missing;
  int count = 0;
  for (const Value& value : graph.values()) {
    if (value.producer != kNone || value.constant != nullptr ||
        (value.uses.empty() && !value.is_output))
      continue;
    if (std::find(cut.feeds.begin(), cut.feeds.end(), value.name) != cut.feeds.end()) continue;
    if (!value.is_input) continue;
    missing += text(count++ > 0 ? ", '" : "'", value.name, "' ", value.type.to_string(),
                    value.type.shape ? " " + to_string(*value.type.shape) : "");
  }
  if (count == 1) invalid("the input ", missing, " is not fed");
  if (count > 1) invalid("the inputs ", missing, " are not fed");
}

}  // namespace

std::vector<std::int32_t> remove_unneeded(Graph& graph) {
  std::vector<std::int32_t> origins;
  const std::unordered_set<NodeId> needed = needed_nodes(graph);
  for (const NodeId id : graph.node_ids()) {
    if (needed.contains(id)) continue;
    origins.insert(origins.end(), graph.node(id).origins.begin(), graph.node(id).origins.end());
    graph.remove_node(id);
  }
  return origins;
}

std::shared_ptr<Graph> cut_graph(const Graph& whole, const Cut& cut, std::int64_t ir_version) {
  auto graph = std::make_shared<Graph>(whole);
  for (const std::string& name : cut.feeds) feed_value(*graph, name, ir_version);
  for (const ValueId id : graph->outputs) graph->value(id).is_output = false;
  graph->outputs.clear();
  for (const std::string& name : cut.fetches) {
    const ValueId id = known_value(*graph, name, "fetch");
    graph->outputs.push_back(id);
    graph->value(id).is_output = true;
  }
  for (Value& value : graph->values()) value.overridable = false;
  remove_unneeded(*graph);
  check_fed(*graph, cut);
  if constexpr (kVerifiesGraphs) verify_graph(*graph, "after the cut");
  return graph;
}

}  // namespace backplane::core
