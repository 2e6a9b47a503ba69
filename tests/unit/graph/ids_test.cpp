#include "core/graph/ids.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "core/base/error.hpp"
#include "graph_check.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;

template <class From, class To>
constexpr bool kBecomes = std::is_convertible_v<From, To>;

static_assert(!kBecomes<NodeId, ValueId> && !kBecomes<ValueId, NodeId>);
static_assert(!std::is_constructible_v<NodeId, ValueId>);
static_assert(!kBecomes<int, NodeId> && !kBecomes<std::size_t, NodeId>);
static_assert(!kBecomes<NodeId, int> && !kBecomes<NodeId, std::size_t> && !kBecomes<NodeId, bool>);
static_assert(kBecomes<NoId, NodeId> && kBecomes<NoId, ValueId>);
static_assert(!std::is_invocable_v<std::equal_to<>, NodeId, ValueId>);
static_assert(!std::is_invocable_v<std::equal_to<>, NodeId, int>);
static_assert(sizeof(NodeId) == 4 && std::is_trivially_copyable_v<NodeId>);

TEST(Ids, AreNoneUntilTheyAreSet) {
  NodeId id;
  EXPECT_EQ(id, kNone);
  EXPECT_NE(NodeId(0), kNone);
  id = NodeId(3);
  EXPECT_EQ(id.index(), 3u);
  id = kNone;
  EXPECT_EQ(text(id, " ", NodeId(7)), "-1 7");
}

TEST(Ids, AreOrderedAndHashedByIndex) {
  EXPECT_LT(ValueId(), ValueId(0));
  EXPECT_LT(ValueId(2), ValueId(10));
  const std::unordered_set<ValueId> some{ValueId(1), ValueId(1), kNone};
  EXPECT_EQ(some.size(), 2u);
  EXPECT_EQ(std::hash<ValueId>()(ValueId(5)), std::hash<std::size_t>()(5));
}

TEST(Ids, IndexTheirVectors) {
  PerValue<std::unique_ptr<int>> owners(2);  // entries need not be copied
  const ValueId last = owners.add(std::make_unique<int>(4));
  EXPECT_EQ(last, ValueId(2));
  EXPECT_EQ(*owners[last], 4);
  PerNode<bool> marks(3, false);
  marks[NodeId(1)] = true;
  EXPECT_TRUE(marks[NodeId(1)]);
  EXPECT_FALSE(marks[NodeId(2)]);
  EXPECT_TRUE(marks.contains(NodeId(2)));
  EXPECT_FALSE(marks.contains(NodeId(3)));
  EXPECT_FALSE(marks.contains(kNone));
}

TEST(Ids, OfAGraphAreThoseOfTheNodesThatThereAre) {
  Graph graph;
  std::vector<NodeId> nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back(add(graph, "Relu", {"x"}, {}));
  graph.remove_node(nodes[0]);
  graph.remove_node(nodes[2]);
  EXPECT_TRUE(graph.has_node(nodes[1]));
  EXPECT_FALSE(graph.has_node(nodes[2]));
  EXPECT_FALSE(graph.has_node(NodeId(4)));
  EXPECT_FALSE(graph.has_node(kNone));
  std::vector<NodeId> met;
  for (const NodeId id : graph.node_ids()) {
    met.push_back(id);
    if (id == nodes[1]) add(graph, "Neg", {"x"}, {});  // not met
  }
  EXPECT_THAT(met, ElementsAre(nodes[1], nodes[3]));
  met.clear();
  for (const NodeId id : graph.node_ids()) {
    met.push_back(id);
    if (id == nodes[1]) graph.remove_node(nodes[3]);
    graph.remove_node(id);
  }
  EXPECT_THAT(met, ElementsAre(nodes[1], NodeId(4)));
  EXPECT_EQ(graph.node_count(), 0u);
}

TEST(Ids, OfValuesAreInTheirOrder) {
  Graph graph;
  for (const char* const name : {"a", "b"}) graph.value_named(name);
  std::string names;
  for (const ValueId id : graph.value_ids()) names += graph.value(id).name;
  for (const Value& value : graph.values()) names += value.name;
  EXPECT_EQ(names, "abab");
  EXPECT_TRUE(graph.has_value(ValueId(1)));
  EXPECT_FALSE(graph.has_value(ValueId(2)));
  EXPECT_FALSE(graph.has_value(kNone));
}

}  // namespace
}  // namespace backplane::core
