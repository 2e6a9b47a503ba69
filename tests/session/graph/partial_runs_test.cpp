// Row T5 of core/SESSION.md: runs that end or start at inner values.
#include "session_test.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// x -> Neg n -> Identity i -> Relu r -> (+ w) y; and Neg second, equal to the first, -> Abs z. `left` leads nowhere else.
Graph chain() {
  Graph graph(environment());
  graph.add_value("x", floats({2})).add_value("other", floats({2}));
  graph.add_initializer("w", tensor({10, 20}));
  graph.add_initializer("folded_in", tensor({1, -1}));
  graph.add_node("Neg", {"x"}, {"n"});
  graph.add_node("Identity", {"n"}, {"i"});
  graph.add_node("Relu", {"i"}, {"r"});
  graph.add_node("Neg", {"folded_in"}, {"folded"});
  graph.add_node("Sum", {"r", "w", "folded"}, {"y"});
  graph.add_node("Neg", {"x"}, {"second"});
  graph.add_node("Abs", {"second"}, {"z"});
  graph.add_node("Add", {"x", "other"}, {"both"});
  return graph;
}

class InnerValues : public ::testing::TestWithParam<const char*> {
 protected:
  InnerValues()
      : graph_(chain()),
        session_(environment(), graph_, Options().set("optimization", GetParam())) {}
  std::vector<float> run(const Feeds& feeds, const std::string& fetch) {
    return elements(session_.run(feeds, {fetch})[0]);
  }
  Graph graph_;
  Session session_;
  Value x_ = tensor({-3, 4});
  Value replaced_ = tensor({7, 8});
};

TEST_P(InnerValues, T5AreFetched) {
  EXPECT_THAT(run({{"x", x_}}, "n"), ElementsAre(3, -4));
  EXPECT_THAT(run({{"x", x_}}, "i"), ElementsAre(3, -4))
      << "also where a pass has removed the node";
  EXPECT_THAT(run({{"x", x_}}, "second"), ElementsAre(3, -4))
      << "also where an equal one does the work";
  EXPECT_THAT(run({{"x", x_}}, "r"), ElementsAre(3, 0));
  EXPECT_THAT(run({}, "folded"), ElementsAre(-1, 1));
  EXPECT_THAT(run({}, "w"), ElementsAre(10, 20));
  EXPECT_THAT(run({{"x", x_}}, "x"), ElementsAre(-3, 4));
}

TEST_P(InnerValues, T5OnlyWhatIsNeededIsFedAndRun) {
  EXPECT_THAT(run({{"x", x_}}, "y"), ElementsAre(12, 21)) << "'other' leads elsewhere";
  EXPECT_THAT(error_of([&] { run({{"x", x_}}, "both"); }), HasSubstr("'other'"));
  EXPECT_THAT(error_of([&] { run({}, "n"); }), HasSubstr("'x'"));
}

TEST_P(InnerValues, T5CutTheGraphWhenTheyAreFed) {
  EXPECT_THAT(run({{"r", replaced_}}, "y"), ElementsAre(16, 29));
  EXPECT_THAT(run({{"n", replaced_}}, "y"), ElementsAre(16, 29));
  EXPECT_THAT(run({{"i", replaced_}}, "r"), ElementsAre(7, 8))
      << "also where a pass has removed the node";
  EXPECT_THAT(run({{"x", x_}, {"n", replaced_}}, "z"), ElementsAre(3, 4))
      << "an equal node is not fed with it";
  EXPECT_THAT(run({{"folded", replaced_}, {"x", x_}}, "y"), ElementsAre(20, 28))
      << "not folded past";
  EXPECT_THAT(run({{"x", x_}}, "y"), ElementsAre(12, 21)) << "and the next run is as ever";
}

TEST_P(InnerValues, T5FeedsAreChecked) {
  const Value wrong = tensor({1, 2, 3});
  EXPECT_THAT(error_of([&] {
                run({{"r", wrong}}, "y");
              }),
              HasSubstr("'r' should be tensor(float) [2]"));
  EXPECT_THAT(error_of([&] { run({{"nobody", replaced_}}, "y"); }), HasSubstr("no input 'nobody'"));
  EXPECT_THAT(error_of([&] { run({{"x", x_}}, "nobody"); }), HasSubstr("no value 'nobody'"));
}

TEST_P(InnerValues, T5AreBound) {
  Binding binding(session_);
  binding.bind_input("r", replaced_);
  binding.bind_output("y");
  for (int i = 0; i < 3; ++i) {
    binding.run();
    EXPECT_EQ(binding.output("y").data<float>()[0], 16);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, InnerValues, ::testing::Values("none", "basic", "extended", "all"),
                         [](const auto& instance) { return std::string(instance.param); });

/// Each set of fetches has a program of its own; the least recently used go.
TEST(PartialRuns, T5SetsWithoutEndAreNotAllKept) {
  constexpr int kNodes = 9;
  Graph graph(environment());
  graph.add_value("x", floats({2}));
  Names all;
  for (int i = 0; i < kNodes; ++i) {
    all.push_back("y" + std::to_string(i));
    graph.add_node(i % 2 == 0 ? "Neg" : "Abs", {i == 0 ? "x" : all[all.size() - 2]}, {all.back()});
  }
  graph.set_inputs({"x"});
  graph.set_outputs({all.back()});
  Session session(environment(), graph, Options());
  const Value x = tensor({-3, 4});
  for (int set = 1; set < 1 << kNodes; ++set) {
    Names fetches;
    for (int i = 0; i < kNodes; ++i) {
      if ((set >> i & 1) != 0) fetches.push_back(all[static_cast<std::size_t>(i)]);
    }
    const std::vector<Value> results = session.run({{"x", x}}, fetches);
    ASSERT_EQ(std::abs(elements(results[0])[0]), 3) << set;
  }
  EXPECT_LE(json::parse(session.statistics())["programs"], 64);
}

TEST(PartialRuns, T5NodesOffThePathDoNotRun) {
  Graph graph(environment());
  graph.add_value("x", floats({2})).add_value("where", GraphType::tensor(ElementType::Int64, {1}));
  graph.add_node("Neg", {"x"}, {"y"});
  graph.add_node("Gather", {"x", "where"}, {"fails"});
  const Session session(environment(), graph);
  const Value x = tensor({1, 2});
  const Value outside = Value::tensor<std::int64_t>({1}, {99});
  EXPECT_NE(error_of([&] { (void)session.run({{"x", x}, {"where", outside}}); }), "no error");
  EXPECT_THAT(elements(session.run({{"x", x}, {"where", outside}}, {"y"})[0]), ElementsAre(-1, -2));
}

}  // namespace
}  // namespace backplane::session_test
