#include "core/graph/priority_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "graph_check.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names(const Graph& graph, const std::vector<NodeId>& order) {
  std::vector<std::string> result;
  for (const NodeId id : order) result.push_back(graph.node(id).name);
  return result;
}

std::vector<NodeId> ids(const std::vector<std::size_t>& indices) {
  std::vector<NodeId> result;
  for (const std::size_t index : indices) result.emplace_back(index);
  return result;
}

/// `sizes` by value name; others take nothing.
ValueBytes bytes_of(const Graph& graph, const std::map<std::string, std::uint64_t>& sizes) {
  ValueBytes bytes(graph.value_count());
  for (const auto& [name, size] : sizes) bytes[graph.find_value(name)] = size;
  return bytes;
}

/// Two chains large -> small that meet at the end. The default order is n1 n3 n0 n2 n4.
Graph two_chains() {
  Graph graph;
  add(graph, "Op", {"x"}, {"large0"}, "n0");
  add(graph, "Op", {"x"}, {"large1"}, "n1");
  add(graph, "Op", {"large0"}, {"small0"}, "n2");
  add(graph, "Op", {"large1"}, {"small1"}, "n3");
  add(graph, "Op", {"small0", "small1"}, {"y"}, "n4");
  return graph;
}

TEST(PriorityOrder, PeakIsTheMostThatLivesAtOneTime) {
  const Graph graph = two_chains();
  const ValueBytes bytes =
      bytes_of(graph, {{"large0", 100}, {"large1", 50}, {"small0", 3}, {"small1", 4}});
  EXPECT_EQ(peak_bytes(graph, ids({0, 1, 2, 3, 4}), bytes), 153u);  // both large ones while n2 runs
  EXPECT_EQ(peak_bytes(graph, ids({0, 2, 1, 3, 4}), bytes), 103u);
  EXPECT_EQ(peak_bytes(graph, ids({1, 3, 0, 2, 4}), bytes), 107u);
}

TEST(PriorityOrder, ValuesThatNobodyReadsLiveForTheirNode) {
  Graph graph;
  add(graph, "Op", {"x"}, {"a", "unread"}, "n0");
  add(graph, "Op", {"a"}, {"y"}, "n1");
  EXPECT_EQ(peak_bytes(graph, ids({0, 1}), bytes_of(graph, {{"a", 1}, {"unread", 7}, {"y", 2}})),
            8u);
}

// The reader with the highest index is a leaf that reads the large value last; by leaves it is computed first, and held.
TEST(PriorityOrder, FreesWhatCanBeFreed) {
  Graph graph;
  add(graph, "Op", {"x"}, {"large"}, "n0");
  add(graph, "Op", {"large"}, {"part"}, "n1");
  add(graph, "Op", {"x"}, {"other"}, "n2");
  add(graph, "Op", {"part", "other"}, {"y"}, "n3");
  add(graph, "Op", {"large"}, {"z"}, "n4");
  const ValueBytes bytes = bytes_of(graph, {{"large", 100}, {"part", 1}, {"other", 60}});
  EXPECT_THAT(names(graph, topological_order(graph)), ElementsAre("n0", "n4", "n2", "n1", "n3"));
  EXPECT_EQ(peak_bytes(graph, topological_order(graph), bytes), 161u);
  const std::vector<NodeId> order = priority_order(graph, bytes);
  EXPECT_EQ(peak_bytes(graph, order, bytes), 101u);
  EXPECT_THAT(names(graph, order), ElementsAre("n0", "n4", "n1", "n2", "n3"));
}

TEST(PriorityOrder, ExplicitPrioritiesDecideFirst) {
  Graph graph = two_chains();
  graph.node(NodeId(0)).priority = -1;
  graph.node(NodeId(2)).priority = 1;
  const ValueBytes bytes = bytes_of(graph, {{"large0", 100}, {"large1", 50}});
  EXPECT_THAT(names(graph, priority_order(graph, bytes)),
              ElementsAre("n0", "n1", "n3", "n2", "n4"));
}

TEST(PriorityOrder, EqualNodesFollowTheDefaultOrder) {
  const Graph graph = two_chains();
  EXPECT_EQ(priority_order(graph, ValueBytes(graph.value_count())), topological_order(graph));
}

TEST(PriorityOrder, EstimatesUnknownSizes) {
  Graph graph;
  add(graph, "Op", {"x"}, {"a"});
  add(graph, "Op", {"a"}, {"b"});
  add(graph, "Op", {"b"}, {"y"});
  graph.add_input(graph.find_value("x"));
  graph.add_output(graph.find_value("y"));
  graph.value(graph.find_value("x")).type =
      Type::tensor(DataType::Float, std::vector<std::int64_t>{-1, 8});
  graph.value(graph.find_value("b")).type =
      Type::tensor(DataType::Double, std::vector<std::int64_t>{4});
  const ValueBytes bytes = estimated_bytes(graph, topological_order(graph));
  EXPECT_EQ(bytes[graph.find_value("x")], 0u) << "the caller's";
  EXPECT_EQ(bytes[graph.find_value("a")], 32u) << "as much as x, its dim counting 1";
  EXPECT_EQ(bytes[graph.find_value("b")], 32u);
  EXPECT_EQ(bytes[graph.find_value("y")], 0u) << "the caller's";
}

TEST(PriorityOrder, IsAnOrderAndNeverWorseForRandomGraphs) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Graph graph;
    for (int i = 0; i < 40; ++i) {
      std::vector<std::string> inputs;
      for (int k = 0; k < 2; ++k)
        inputs.push_back("v" + std::to_string(random() % static_cast<unsigned>(i + 1)));
      add(graph, "Op", inputs, {"v" + std::to_string(i + 1)});
    }
    for (int i = 0; i < 5; ++i) {
      const NodeId later(1 + random() % 39);
      graph.add_control_edge(NodeId(random() % later.index()), later);
    }
    ValueBytes bytes(graph.value_count());
    for (std::uint64_t& size : bytes) size = random() % 1000;
    const std::vector<NodeId> order = priority_order(graph, bytes);
    PerNode<std::size_t> place(graph.node_limit());
    ASSERT_EQ(order.size(), graph.node_count()) << "seed " << seed;
    for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    for (const NodeId id : order) {
      for (const NodeId earlier : graph.node(id).after)
        EXPECT_LT(place[earlier], place[id]) << "seed " << seed;
      for (const ValueId input : graph.node(id).inputs) {
        const NodeId producer = graph.value(input).producer;
        if (producer != kNone) {
          EXPECT_LT(place[producer], place[id]) << "seed " << seed;
        }
      }
    }
    EXPECT_LE(peak_bytes(graph, order, bytes), peak_bytes(graph, topological_order(graph), bytes))
        << "seed " << seed;
  }
}

TEST(ControlEdges, HoldWhenTheNodeBetweenGoes) {
  Graph graph;
  for (const char* name : {"n0", "n1", "n2", "n3"})
    add(graph, "Op", {"x"}, {std::string("y") + name}, name);
  graph.add_control_edge(NodeId(3), NodeId(1));
  graph.add_control_edge(NodeId(3), NodeId(1));
  graph.add_control_edge(NodeId(1), NodeId(0));
  EXPECT_EQ(graph.node(NodeId(1)).after.size(), 1u);
  EXPECT_THAT(names(graph, topological_order(graph)), ElementsAre("n2", "n3", "n1", "n0"));
  graph.remove_node(NodeId(1));
  EXPECT_THAT(names(graph, topological_order(graph)), ElementsAre("n2", "n3", "n0"));
  const Graph copy(graph);
  EXPECT_THAT(names(copy, topological_order(copy)), ElementsAre("n2", "n3", "n0"));
  graph.remove_control_edge(NodeId(3), NodeId(0));
  EXPECT_FALSE(graph.node(NodeId(0)).is_ordered());
}

TEST(ControlEdges, AreInheritedByWhoTakesTheNodesPlace) {
  Graph before;
  for (const char* name : {"n0", "n1", "n2", "n3"})
    add(before, "Op", {"x"}, {std::string("y") + name}, name);
  before.add_control_edge(NodeId(0), NodeId(1));
  before.add_control_edge(NodeId(1), NodeId(2));
  before.add_control_edge(NodeId(2), NodeId(3));
  Graph after(before);
  after.remove_node(NodeId(1));
  after.remove_node(NodeId(2));
  const NodeId heir = add(after, "Fused", {"x"}, {"fused"}, "fused");
  inherit_control_edges(before, {{NodeId(1), heir}, {NodeId(2), heir}}, after);
  EXPECT_EQ(after.node(heir).after, ids({0}));
  EXPECT_EQ(after.node(heir).before, ids({3}));
}

}  // namespace
}  // namespace backplane::core
