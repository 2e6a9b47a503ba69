// Graphs for tests, and what must always hold of one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// Adds a node by names; "" leaves an input or output out.
inline NodeId add(Graph& graph, const std::string& op, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs, const std::string& name = "") {
  Node node;
  node.name = name;
  node.op_type = op;
  for (const std::string& input : inputs)
    node.inputs.push_back(input.empty() ? kNone : graph.value_named(input));
  for (const std::string& output : outputs)
    node.outputs.push_back(output.empty() ? kNone : graph.value_named(output));
  return graph.add_node(std::move(node));
}

inline void add_attribute(Graph& graph, NodeId node, const std::string& name,
                          std::shared_ptr<Graph> body) {
  Attribute attribute;
  attribute.type = Attribute::Type::Graph;
  attribute.graphs.push_back(std::move(body));
  graph.node(node).attributes[name] = std::move(attribute);
}

inline std::multiset<std::pair<NodeId, std::int32_t>> uses_of(const Value& value) {
  std::multiset<std::pair<NodeId, std::int32_t>> uses;
  for (const Use& use : value.uses) uses.emplace(use.node, use.input);
  return uses;
}

/// Uses and producers agree with the nodes; names are unique and found; counts are right.
inline void expect_consistent(const Graph& graph) {
  PerValue<std::multiset<std::pair<NodeId, std::int32_t>>> uses(graph.value_count());
  PerValue<NodeId> producers(graph.value_count());
  std::set<std::string> node_names;
  std::size_t count = 0;
  for (const NodeId id : graph.node_ids()) {
    ++count;
    const Node& node = graph.node(id);
    EXPECT_EQ(node.id, id);
    EXPECT_TRUE(node_names.insert(node.name).second) << node.name;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] != kNone) uses[node.inputs[k]].emplace(id, k);
    }
    for (const ValueId captured : node.captured) uses[captured].emplace(id, -1);
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNone) continue;
      const ValueId index = node.outputs[k];
      EXPECT_EQ(producers[index], kNone)
          << "two producers of " << graph.value(node.outputs[k]).name;
      producers[index] = id;
      EXPECT_EQ(graph.value(node.outputs[k]).producer_output, static_cast<std::int32_t>(k));
    }
  }
  EXPECT_EQ(graph.node_count(), count);
  for (const ValueId id : graph.value_ids()) {
    const Value& value = graph.value(id);
    EXPECT_EQ(graph.find_value(value.name), id);
    EXPECT_EQ(value.producer, producers[id]) << value.name;
    EXPECT_EQ(uses_of(value), uses[id]) << value.name;
    EXPECT_EQ(value.is_input, std::count(graph.inputs.begin(), graph.inputs.end(), id) > 0)
        << value.name;
    EXPECT_EQ(value.is_output, std::count(graph.outputs.begin(), graph.outputs.end(), id) > 0)
        << value.name;
  }
}

}  // namespace backplane::core
