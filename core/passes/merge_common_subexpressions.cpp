#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

/// A key of parts of any length, each counted, so that different parts never make the same key.
class Key {
 public:
  template <class Number>
  void number(Number value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void part(const std::string& part) {
    number(part.size());
    text_ += part;
  }
  template <class Number>
  void numbers(const std::vector<Number>& values) {
    number(values.size());
    for (const Number value : values) number(value);
  }
  void bytes(std::span<const std::byte> bytes) {
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// Type, dims and a few bytes: what tells most constants apart without reading them.
std::string sample_of(const Constant& constant) {
  constexpr std::size_t kSample = 64;
  Key key;
  key.number(static_cast<std::int32_t>(constant.type()));
  key.numbers(constant.dims());
  const auto bytes = constant.stored_bytes();
  const std::size_t size = std::min(kSample, bytes.size());
  key.bytes(bytes.first(size));
  key.bytes(bytes.last(size));
  key.bytes(bytes.subspan((bytes.size() - size) / 2, size));
  return key.take();
}

bool merge_constants(Graph& graph) {
  std::unordered_map<std::string, std::vector<ValueId>> alike;
  for (const Value& value : graph.values()) {
    if (value.constant && !value.overridable && !value.uses.empty())
      alike[sample_of(*value.constant)].push_back(value.id);
  }
  bool changed = false;
  for (const auto& [sample, values] : alike) {
    if (values.size() < 2) continue;
    std::map<ContentHash, ValueId>
        first;  // by value id, so that the outcome does not depend on the hash table
    for (const ValueId id : values) {
      const auto [entry, added] = first.emplace(graph.value(id).constant->hash(), id);
      if (added || !annotations_agree(graph.value(entry->second), graph.value(id))) continue;
      keep_annotation(graph.value(entry->second), graph.value(id));
      graph.replace_uses(id, entry->second, false);
      changed = true;
    }
  }
  return changed;
}

void add_attribute(Key& key, const Attribute& attribute) {
  key.number(static_cast<std::int32_t>(attribute.type));
  key.numbers(attribute.floats);
  key.numbers(attribute.ints);
  key.number(attribute.strings.size());
  for (const std::string& string : attribute.strings) key.part(string);
  key.number(attribute.tensors.size());
  for (const ConstantPtr& tensor : attribute.tensors) {
    const ContentHash hash = tensor->hash();
    key.number(hash.high);
    key.number(hash.low);
  }
  key.number(attribute.types.size());
  for (const Type& type : attribute.types) {
    key.part(type.to_string());
    key.part(type.shape ? to_string(*type.shape) : std::string("-"));
  }
}

std::string key_of(const Node& node) {
  Key key;
  key.part(node.domain);
  key.part(node.op_type);
  key.number(node.since_version);
  key.numbers(node.inputs);
  key.number(node.outputs.size());
  for (const ValueId output : node.outputs) key.number(output != kNone);
  for (const auto& [name, attribute] : node.attributes) {
    key.part(name);
    add_attribute(key, attribute);
  }
  return key.take();
}

bool makes_graph_output(const Graph& graph, const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
    return output != kNone && graph.value(output).is_output;
  });
}

void sort_origins(Node& node) {
  std::sort(node.origins.begin(), node.origins.end());
  node.origins.erase(std::unique(node.origins.begin(), node.origins.end()), node.origins.end());
}

bool outputs_agree(const Graph& graph, const Node& kept, const Node& gone) {
  for (std::size_t i = 0; i < gone.outputs.size(); ++i) {
    if (gone.outputs[i] != kNone &&
        !annotations_agree(graph.value(kept.outputs[i]), graph.value(gone.outputs[i])))
      return false;
  }
  return true;
}

/// Makes `kept` do the work of `gone` too, whose outputs nobody reads then.
void merge_into(Graph& graph, NodeId kept, NodeId gone) {
  const std::vector<ValueId> outputs = graph.node(gone).outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNone) continue;
    const ValueId heir = graph.node(kept).outputs[i];
    keep_annotation(graph.value(heir), graph.value(outputs[i]));
    graph.replace_uses(outputs[i], heir, false);
  }
  const std::vector<std::int32_t>& origins = graph.node(gone).origins;
  graph.node(kept).origins.insert(graph.node(kept).origins.end(), origins.begin(), origins.end());
}

/// The nodes by index where that is an order in which they can run, so that the first of equal nodes is the one in the
/// file; else the order in which they will run.
std::vector<NodeId> order_by_index(const Graph& graph) {
  std::vector<NodeId> order;
  for (const NodeId id : graph.node_ids()) {
    for (const std::vector<ValueId>* list : {&graph.node(id).inputs, &graph.node(id).captured}) {
      for (const ValueId input : *list) {
        if (input != kNone && graph.value(input).producer >= id) return topological_order(graph);
      }
    }
    order.push_back(id);
  }
  return order;
}

bool merge_nodes(Graph& graph, const PassRun& run) {
  std::unordered_map<std::string, NodeId> known;
  std::vector<NodeId> merged;
  std::set<NodeId> keepers;
  for (const NodeId id : order_by_index(graph)) {
    const Node& node = graph.node(id);
    if (node.has_bodies() || node.is_ordered() || run.is_random(node)) continue;
    const auto [entry, added] = known.emplace(key_of(node), id);
    if (added) continue;
    NodeId kept = entry->second;
    NodeId gone = id;
    // Graph outputs keep their names, so who makes one stays; two such nodes both stay.
    if (makes_graph_output(graph, graph.node(gone))) std::swap(kept, gone);
    if (makes_graph_output(graph, graph.node(gone))) continue;
    if (!outputs_agree(graph, graph.node(kept), graph.node(gone))) continue;
    merge_into(graph, kept, gone);
    entry->second = kept;
    merged.push_back(gone);
    keepers.insert(kept);
  }
  std::sort(merged.rbegin(), merged.rend());  // the youngest first: see Graph::drop_use
  for (const NodeId id : merged) graph.remove_node(id);
  for (const NodeId id : keepers) {
    if (graph.has_node(id)) sort_origins(graph.node(id));
  }
  return !merged.empty();
}

}  // namespace

bool merge_common_subexpressions(Graph& graph, PassRun& run) {
  const bool constants = merge_constants(graph);
  return merge_nodes(graph, run) || constants;
}

}  // namespace backplane::core
