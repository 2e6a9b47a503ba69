// Rows T1 and T2 of core/SESSION.md: the order in which nodes run. No optimization, so that nodes stay what they are.
#include "session_test.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options plain(const std::string& order = "default") {
  Options options;
  options.set("optimization", "none").set("execution_order", order);
  return options;
}

json explained(Graph& graph, const Options& options) {
  return json::parse(Session(environment(), graph, options).explain());
}

Names order_of(Graph& graph, const Options& options = plain()) {
  return explained(graph, options)["order"].get<Names>();
}

/// Operators of one or two inputs under the names n0, n1 ..., in the order given: {inputs, output}.
Graph graph_of(const std::vector<std::pair<Names, std::string>>& nodes) {
  Graph graph(environment());
  for (const char* input : {"x", "x2"}) graph.add_value(input, floats({4}));
  for (std::size_t i = 0; i < nodes.size(); ++i)
    graph.add_node("Sum", nodes[i].first, {nodes[i].second}, "n" + std::to_string(i));
  return graph;
}

TEST(Order, T1NodesMayBeStoredInAnyOrder) {
  Graph graph = graph_of({{{"b", "x"}, "c"}, {{"a", "x"}, "b"}, {{"x", "x2"}, "a"}});
  EXPECT_THAT(order_of(graph), ElementsAre("n2", "n1", "n0"));
  const Value x = tensor({1, 2, 3, 4}), x2 = tensor({10, 20, 30, 40});
  const Session session(environment(), graph, plain());
  EXPECT_THAT(elements(session.run({{"x", x}, {"x2", x2}})[0]), ElementsAre(13, 26, 39, 52));
}

TEST(Order, T1ControlEdgesCount) {
  Graph graph = graph_of({{{"x"}, "a"}, {{"x2"}, "b"}, {{"x", "x2"}, "c"}});
  EXPECT_THAT(order_of(graph), ElementsAre("n2", "n1", "n0"));
  graph.find_node("n2").run_after(graph.find_node("n0"));
  EXPECT_THAT(order_of(graph), ElementsAre("n0", "n2", "n1"));
  graph.find_node("n0").run_after(graph.find_node("n1"));
  EXPECT_THAT(order_of(graph), ElementsAre("n1", "n0", "n2"));
  EXPECT_THAT(order_of(graph, plain("priority")), ElementsAre("n1", "n0", "n2"));
}

TEST(Order, T1ControlEdgesAreSavedAndSurviveOptimization) {
  Graph graph(environment());
  graph.add_value("x", floats({4}));
  graph.add_node("Neg", {"x"}, {"a"}, "first");
  graph.add_node("Identity", {"x"}, {"i"}, "gone_if_it_could");
  graph.add_node("Neg", {"x"}, {"b"}, "equal_but_last");
  graph.add_node("Abs", {"i"}, {"c"}, "abs");
  graph.find_node("equal_but_last").run_after(graph.find_node("abs"));
  graph.find_node("abs").run_after(graph.find_node("first"));
  const std::string bytes = graph.serialize();
  for (const char* level : {"none", "all"}) {
    const Session session(environment(), bytes.data(), bytes.size(),
                          Options().set("optimization", level));
    Names order = json::parse(session.explain())["order"].get<Names>();
    order.erase(std::remove(order.begin(), order.end(), "gone_if_it_could"), order.end());
    EXPECT_THAT(order, ElementsAre("first", "abs", "equal_but_last")) << level;
  }
}

TEST(Order, T1CyclesAreNamed) {
  Graph graph = graph_of({{{"x", "c"}, "a"}, {{"a"}, "b"}, {{"b"}, "c"}, {{"c"}, "outside"}});
  std::int32_t code = BACKPLANE_OK;
  EXPECT_THAT(error_of([&] { graph.resolve(); }, &code), HasSubstr("'n0' -> 'n1' -> 'n2' -> 'n0'"));
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  graph = graph_of({{{"x"}, "a"}, {{"a"}, "b"}});
  graph.find_node("n0").run_after(graph.find_node("n1"));
  EXPECT_THAT(error_of([&] { graph.resolve(); }), HasSubstr("cycle"));
}

TEST(Order, T1TheSameModelHasTheSameOrder) {
  Graph graph(environment());
  graph.add_value("v0", floats({4}));
  for (int i = 1; i < 60; ++i) {
    graph.add_node("Sum", {"v" + std::to_string(i / 2), "v" + std::to_string(i * 7 % i)},
                   {"v" + std::to_string(i)});
  }
  const Names order = order_of(graph);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(order_of(graph), order);
}

/// v0 + 1 + 1 ..., stored backwards.
Graph deep(int nodes) {
  Graph graph(environment());
  graph.add_value("v0", floats({1}));
  graph.add_initializer("one", tensor({1}));
  for (int i = nodes; i > 0; --i)
    graph.add_node("Add", {"v" + std::to_string(i - 1), "one"}, {"v" + std::to_string(i)});
  return graph;
}

TEST(Order, T1TakesChainsOf200000Nodes) {
  constexpr int kNodes = 200'000;
  Graph graph = deep(kNodes);
  graph.resolve();
  EXPECT_THAT(names(graph.inputs()), ElementsAre("v0"));
  EXPECT_THAT(names(graph.outputs()), ElementsAre("v" + std::to_string(kNodes)));
}

TEST(Order, T1DeepChainsRun) {
  constexpr int kNodes = 20'000;  // linear in time from here on; kept short for sanitizers
  Graph graph = deep(kNodes);
  const Session session(environment(), graph, plain());
  const Value x = tensor({0});
  EXPECT_THAT(elements(session.run({{"v0", x}})[0]), ElementsAre(kNodes));
}

// The default order, written out: leaves by index on a stack, so the last one is walked first; and of a node's
// inputs, the one with the highest index.
TEST(Order, T2DefaultOrderOfADiamond) {
  Graph graph = graph_of({{{"x"}, "a"}, {{"a"}, "b"}, {{"a"}, "c"}, {{"c", "b"}, "d"}});
  EXPECT_THAT(order_of(graph), ElementsAre("n0", "n2", "n1", "n3"));
}

TEST(Order, T2DefaultOrderOfTwoLeaves) {
  Graph graph = graph_of({{{"x"}, "a"}, {{"x2"}, "b"}, {{"a"}, "c"}, {{"b"}, "d"}});
  EXPECT_THAT(order_of(graph), ElementsAre("n1", "n3", "n0", "n2"));
}

TEST(Order, T2DefaultOrderOfALadder) {
  Graph graph = graph_of({{{"x"}, "a"},
                          {{"x2"}, "b"},
                          {{"b"}, "c"},
                          {{"a"}, "d"},
                          {{"a", "b", "c"}, "e"},
                          {{"d", "e"}, "f"}});
  EXPECT_THAT(order_of(graph), ElementsAre("n1", "n2", "n0", "n4", "n3", "n5"));
}

TEST(Order, T2DefaultOrderFollowsTheFilesIndices) {
  // The same ladder, stored from behind: n5 is the first node of the file.
  Graph graph(environment());
  for (const char* input : {"x", "x2"}) graph.add_value(input, floats({4}));
  graph.add_node("Sum", {"d", "e"}, {"f"}, "f");
  graph.add_node("Sum", {"a", "b", "c"}, {"e"}, "e");
  graph.add_node("Sum", {"a"}, {"d"}, "d");
  graph.add_node("Sum", {"b"}, {"c"}, "c");
  graph.add_node("Sum", {"x2"}, {"b"}, "b");
  graph.add_node("Sum", {"x"}, {"a"}, "a");
  EXPECT_THAT(order_of(graph), ElementsAre("a", "d", "b", "c", "e", "f"));
}

TEST(Order, T2ExplicitPrioritiesComeFirst) {
  Graph graph = graph_of({{{"x"}, "a"}, {{"x2"}, "b"}, {{"x"}, "c"}, {{"a", "b", "c"}, "d"}});
  EXPECT_THAT(order_of(graph), ElementsAre("n2", "n1", "n0", "n3"));
  graph.find_node("n1").set_priority(-1);
  graph.find_node("n2").set_priority(5);
  EXPECT_THAT(order_of(graph), ElementsAre("n2", "n1", "n0", "n3"))
      << "the default order knows none";
  EXPECT_THAT(order_of(graph, plain("priority")), ElementsAre("n1", "n0", "n2", "n3"));
  const std::string bytes = graph.serialize();
  const Session saved(environment(), bytes.data(), bytes.size(), plain("priority"));
  EXPECT_THAT(json::parse(saved.explain())["order"].get<Names>(),
              ElementsAre("n1", "n0", "n2", "n3"));
}

/// Branches that each blow a small value up and reduce it again.
Graph wide(int branches) {
  Graph graph(environment());
  graph.add_value("x", floats({1}));
  graph.add_initializer("shape", Value::tensor<std::int64_t>({1}, {1000}));
  graph.add_initializer("axes", Value::tensor<std::int64_t>({1}, {0}));
  Names reduced;
  for (int i = 0; i < branches; ++i) {
    const std::string n = std::to_string(i);
    graph.add_initializer("c" + n, tensor({static_cast<float>(i)}));
    graph.add_node("Add", {"x", "c" + n}, {"s" + n}, "small" + n);
    graph.add_node("Expand", {"s" + n, "shape"}, {"l" + n}, "large" + n);
    graph.add_node("ReduceSum", {"l" + n, "axes"}, {"r" + n}, "reduce" + n);
    reduced.push_back("r" + n);
  }
  graph.add_node("Sum", reduced, {"y"}, "sum");
  return graph;
}

TEST(Order, T2PriorityNeverHasAHigherPeak) {
  Graph graph = wide(6);
  for (const char* order : {"default", "priority"}) {
    const json orders = explained(graph, plain(order))["orders"];
    EXPECT_EQ(orders["used"], order);
    EXPECT_LE(orders["priority"]["peak_bytes"].get<std::uint64_t>(),
              orders["default"]["peak_bytes"].get<std::uint64_t>());
    EXPECT_EQ(explained(graph, plain(order))["order"], orders[order]["order"]);
  }
}

// By leaves, n4 and with it n0 come first, then n2, and what n0 made waits for n1. By memory, n1 frees it before n2.
TEST(Order, T2PriorityLowersThePeak) {
  Graph graph(environment());
  graph.add_value("x", floats({1}));
  graph.add_initializer("large_shape", Value::tensor<std::int64_t>({1}, {1000}));
  graph.add_initializer("other_shape", Value::tensor<std::int64_t>({1}, {600}));
  graph.add_initializer("axes", Value::tensor<std::int64_t>({1}, {0}));
  graph.add_node("Expand", {"x", "large_shape"}, {"large"}, "n0");  // 4,000 bytes
  graph.add_node("ReduceSum", {"large", "axes"}, {"part"}, "n1");   // 4 bytes
  graph.add_node("Expand", {"x", "other_shape"}, {"other"}, "n2");  // 2,400 bytes
  graph.add_node("Sum", {"part", "other"}, {"y"}, "n3");            // an output
  graph.add_node("ReduceMax", {"large", "axes"}, {"z"}, "n4");      // an output
  const json explanation = explained(graph, plain("priority"));
  const json& orders = explanation["orders"];
  EXPECT_EQ(orders["default"]["order"], (Names{"n0", "n4", "n2", "n1", "n3"}));
  EXPECT_EQ(orders["default"]["peak_bytes"], 6404);
  EXPECT_EQ(orders["priority"]["order"], (Names{"n0", "n4", "n1", "n2", "n3"}));
  EXPECT_EQ(orders["priority"]["peak_bytes"], 4004);
  EXPECT_EQ(explanation["order"], orders["priority"]["order"]);
  const Value x = tensor({2});
  const std::vector<Value> standard = Session(environment(), graph, plain()).run({{"x", x}});
  const std::vector<Value> frugal =
      Session(environment(), graph, plain("priority")).run({{"x", x}});
  for (std::size_t i = 0; i < standard.size(); ++i)
    EXPECT_EQ(elements(standard[i]), elements(frugal[i]));
}

TEST(Order, T2UnknownOrdersAreErrors) {
  EXPECT_THAT(error_of([] { Options().set("execution_order", "priorty"); }), HasSubstr("priority"));
}

}  // namespace
}  // namespace backplane::session_test
