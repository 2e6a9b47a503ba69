// Rows G2 to G6 of core/SESSION.md: what a graph's inputs and outputs are.
#include "session_test.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// y = (b + a) * w, z = Relu(c), in this order; nothing is said of inputs and outputs.
Graph two_branches() {
  Graph graph(environment());
  for (const char* input : {"a", "b", "c", "w"}) graph.add_value(input, floats({2}));
  graph.add_node("Add", {"b", "a"}, {"sum"}, "add");
  graph.add_node("Mul", {"sum", "w"}, {"y"}, "mul");
  graph.add_node("Relu", {"c"}, {"z"}, "relu");
  return graph;
}

TEST(GraphInputs, G2FirstUseOrder) {
  Graph graph = two_branches();
  graph.resolve();
  EXPECT_THAT(names(graph.inputs()), ElementsAre("b", "a", "w", "c"));
  EXPECT_THAT(names(graph.outputs()), ElementsAre("y", "z"));
  EXPECT_THAT(names(graph.inner_values()), ElementsAre("sum"));
}

TEST(GraphInputs, G2InitializersAreNoInputs) {
  Graph graph = two_branches();
  graph.add_initializer("w", tensor({2, 3}));
  graph.resolve();
  EXPECT_THAT(names(graph.inputs()), ElementsAre("b", "a", "c"));
  EXPECT_THAT(names(graph.all_inputs()), ElementsAre("b", "a", "c"));
  EXPECT_THAT(graph.overridable_initializers(), IsEmpty());
  const Session session(environment(), graph);
  const Value a = tensor({1, 1}), b = tensor({10, 20}), c = tensor({-1, 4});
  const std::vector<Value> results = session.run({{"a", a}, {"b", b}, {"c", c}});
  EXPECT_THAT(elements(results[0]), ElementsAre(22, 63));
  EXPECT_THAT(elements(results[1]), ElementsAre(0, 4));
}

TEST(GraphInputs, G2ChangesWithTheNodes) {
  Graph graph = two_branches();
  graph.resolve();
  graph.remove_node(graph.find_node("add"));
  graph.resolve();  // what the node made becomes an input, of the type that it had
  EXPECT_THAT(names(graph.inputs()), ElementsAre("sum", "w", "c"));
  EXPECT_EQ(graph.inputs()[0].type, "tensor(float)");
  graph.add_node("Neg", {"y"}, {"negative"});
  graph.resolve();
  EXPECT_THAT(names(graph.outputs()), ElementsAre("z", "negative"));
  EXPECT_THAT(names(graph.inner_values()), ElementsAre("y"));
  const Session session(environment(), graph);
  const Value sum = tensor({1, 2}), w = tensor({3, 4}), c = tensor({5, -6});
  const std::vector<Value> results = session.run({{"sum", sum}, {"w", w}, {"c", c}});
  EXPECT_THAT(elements(results[0]), ElementsAre(5, 0));
  EXPECT_THAT(elements(results[1]), ElementsAre(-3, -8));
}

TEST(GraphInputs, G2NodesMayBeAddedInAnyOrder) {
  Graph graph(environment());
  graph.add_value("x", floats({2}));
  graph.add_node("Neg", {"r"}, {"y"});
  graph.add_node("Relu", {"x"}, {"r"});
  graph.resolve();
  EXPECT_THAT(names(graph.inputs()), ElementsAre("x"));
  const Session session(environment(), graph);
  const Value x = tensor({-1, 2});
  EXPECT_THAT(elements(session.run({{"x", x}})[0]), ElementsAre(0, -2));
}

TEST(GraphInputs, G2NamesOfAnOuterScopeAreNoInputsOfABody) {
  Graph then_body;
  then_body.add_node("Add", {"x", "made_here"}, {"then_y"});
  then_body.add_initializer("made_here", tensor({1, 1}));
  Graph else_body;
  else_body.add_node("Neg", {"before"}, {"else_y"});
  Graph graph(environment());
  graph.add_value("c", GraphType::tensor(ElementType::Bool, {}));
  graph.add_value("x", floats({2}));  // nobody but a body reads it
  graph.add_value("late", floats({2}));
  graph.add_node("If", {"c"}, {"y"}, "choice")
      .set("then_branch", then_body)
      .set("else_branch", else_body);
  graph.add_node("Relu", {"late"}, {"before"});
  graph.resolve();
  EXPECT_THAT(names(graph.inputs()), ElementsAre("c", "x", "late"));
  EXPECT_THAT(names(graph.outputs()), ElementsAre("y"));
  const json described = json::parse(graph.describe());
  EXPECT_EQ(described["inner_values"].size(), 1u)
      << "a body reads it: " << described["inner_values"];
}

TEST(GraphInputs, G2InputWithoutATypeIsAnError) {
  Graph graph(environment());
  graph.add_node("Relu", {"x"}, {"y"});
  EXPECT_THAT(error_of([&] { graph.resolve(); }), HasSubstr("'x' has no type"));
}

TEST(GraphInputs, G3SetByHandStaysAsSet) {
  Graph graph = two_branches();
  graph.set_inputs({"c", "w", "a", "b", "c"});
  graph.set_outputs({"z", "sum", "y", "z"});  // sum is read inside too
  graph.resolve();
  EXPECT_THAT(names(graph.inputs()), ElementsAre("c", "w", "a", "b"));
  EXPECT_THAT(names(graph.outputs()), ElementsAre("z", "sum", "y"));
  const Session session(environment(), graph);
  EXPECT_THAT(names(session.inputs()), ElementsAre("c", "w", "a", "b"));
  const Value a = tensor({1, 2}), b = tensor({3, 4}), c = tensor({-1, 1}), w = tensor({2, 2});
  const std::vector<Value> results = session.run({{"a", a}, {"b", b}, {"c", c}, {"w", w}});
  EXPECT_THAT(elements(results[0]), ElementsAre(0, 1));
  EXPECT_THAT(elements(results[1]), ElementsAre(4, 6));
  EXPECT_THAT(elements(results[2]), ElementsAre(8, 12));
}

TEST(GraphInputs, G3CanBeFoundAgain) {
  Graph graph = two_branches();
  graph.set_inputs({"c", "w", "a", "b"}).set_outputs({"sum"}).resolve();
  graph.find_inputs().find_outputs().resolve();
  EXPECT_THAT(names(graph.inputs()), ElementsAre("b", "a", "w", "c"));
  EXPECT_THAT(names(graph.outputs()), ElementsAre("y", "z"));
}

TEST(GraphInputs, G3InputThatNobodyGivesIsNamedWithItsNode) {
  Graph graph = two_branches();
  graph.set_inputs({"a", "b", "c"});
  std::int32_t code = BACKPLANE_OK;
  const std::string message = error_of([&] { graph.resolve(); }, &code);
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("node 'mul' (Mul)"));
  EXPECT_THAT(message, HasSubstr("its input 'w'"));
}

TEST(GraphInputs, G3WrongNamesAreErrors) {
  Graph graph = two_branches();
  graph.set_outputs({"yy"});
  EXPECT_THAT(error_of([&] { graph.resolve(); }),
              HasSubstr("the graph output 'yy' is made by no node"));
  graph.find_outputs();
  graph.set_inputs({"a", "b", "c", "w", "sum"});
  EXPECT_THAT(error_of([&] { graph.resolve(); }), HasSubstr("'sum' is also made by node 'add'"));
}

TEST(GraphInputs, G3NoInputsAtAllCanBeSet) {
  Graph graph(environment());
  graph.add_initializer("w", tensor({1, 2}));
  graph.add_node("Neg", {"w"}, {"y"});
  graph.set_inputs({}).resolve();
  EXPECT_THAT(graph.inputs(), IsEmpty());
  const Session session(environment(), graph);
  EXPECT_THAT(elements(session.run({})[0]), ElementsAre(-1, -2));
}

/// y = x * w + v over initializers w and v; both x and w are listed when `listed`.
Graph with_initializers(std::int64_t ir_version, bool listed) {
  Graph graph(environment());
  graph.set_ir_version(ir_version).set_opset("", 17);
  graph.add_value("x", floats({2})).add_value("w", floats({2}));
  graph.add_initializer("v", tensor({100, 100})).add_initializer("w", tensor({2, 3}));
  graph.add_node("Mul", {"w", "x"}, {"m"}, "mul");
  graph.add_node("Add", {"m", "v"}, {"y"}, "add");
  if (listed) graph.set_inputs({"w", "x"});
  return graph;
}

void expect_lists(const Graph& graph, const Names& inputs, const Names& all,
                  const Names& overridable) {
  EXPECT_EQ(names(graph.inputs()), inputs);
  EXPECT_EQ(names(graph.all_inputs()), all);
  EXPECT_EQ(names(graph.overridable_initializers()), overridable);
}

TEST(GraphInputs, G4BeforeIrVersion4InitializersAreInputs) {
  Graph graph = with_initializers(3, false);
  graph.resolve();
  expect_lists(graph, {"x"}, {"w", "x", "v"}, {});
  const Session session(environment(), graph);
  EXPECT_EQ(names(session.inputs()), (Names{"x"}));
  EXPECT_EQ(names(session.all_inputs()), (Names{"w", "x", "v"}));
  EXPECT_THAT(session.overridable_initializers(), IsEmpty());
}

TEST(GraphInputs, G4FromIrVersion4OnOnlyListedOnesAreOverridable) {
  Graph graph = with_initializers(8, true);
  graph.resolve();
  expect_lists(graph, {"x"}, {"w", "x"}, {"w"});
  const Session session(environment(), graph);
  EXPECT_EQ(names(session.all_inputs()), (Names{"w", "x"}));
  EXPECT_EQ(names(session.overridable_initializers()), (Names{"w"}));
  graph = with_initializers(8, false);
  graph.resolve();
  expect_lists(graph, {"x"}, {"x"}, {});
}

TEST(GraphInputs, G4AllListsHaveTheOrderOfTheInputs) {
  Graph graph(environment());
  for (const char* name : {"a", "b", "p", "q"}) graph.add_value(name, floats({1}));
  graph.add_initializer("p", tensor({1})).add_initializer("q", tensor({2}));  // p before q
  graph.add_node("Sum", {"a", "p", "b", "q"}, {"y"});
  graph.set_inputs({"q", "b", "p", "a"}).resolve();
  expect_lists(graph, {"b", "a"}, {"q", "b", "p", "a"}, {"q", "p"});
  const Session session(environment(), graph);
  EXPECT_EQ(names(session.overridable_initializers()), (Names{"q", "p"}));
}

TEST(GraphInputs, G5OverridesForOneRun) {
  for (const char* level : {"none", "basic", "all"}) {
    Graph graph = with_initializers(8, true);
    graph.add_node("Neg", {"w"}, {"folded_if_it_could"});
    const Session session(environment(), graph, Options().set("optimization", level));
    const Value x = tensor({1, 1}), w = tensor({5, 7});
    EXPECT_THAT(elements(session.run({{"x", x}})[0]), ElementsAre(102, 103)) << level;
    const std::vector<Value> overridden = session.run({{"x", x}, {"w", w}});
    EXPECT_THAT(elements(overridden[0]), ElementsAre(105, 107)) << level;
    EXPECT_THAT(elements(overridden[1]), ElementsAre(-5, -7)) << level;
    EXPECT_THAT(elements(session.run({{"x", x}})[0]), ElementsAre(102, 103)) << level;
  }
}

TEST(GraphInputs, G5FeedingAConstantSaysWhyNot) {
  Graph graph = with_initializers(8, true);
  const Session session(environment(), graph);
  const Value x = tensor({1, 1}), v = tensor({0, 0});
  std::int32_t code = BACKPLANE_OK;
  EXPECT_THAT(
      error_of(
          [&] {
            (void)session.run({{"x", x}, {"v", v}});
          },
          &code),
      HasSubstr("'v' is an initializer that cannot be replaced: the model does not list it"));
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  Graph old = with_initializers(3, false);
  const Session old_session(environment(), old);
  EXPECT_THAT(error_of([&] {
                (void)old_session.run({{"x", x}, {"w", v}});
              }),
              HasSubstr("IR version 3, and before version 4 initializers are constants"));
  EXPECT_THAT(elements(old_session.run({{"x", x}})[0]), ElementsAre(102, 103));
}

TEST(GraphInputs, G5FileKeepsItsOrderAndTypesAreFilledIn) {
  Graph graph = two_branches();
  graph.set_inputs({"c", "w", "a", "b"}).set_outputs({"z", "y"});
  const std::string bytes = graph.serialize();
  const Session session(environment(), bytes.data(), bytes.size());
  EXPECT_THAT(names(session.inputs()), ElementsAre("c", "w", "a", "b"));
  EXPECT_THAT(names(session.outputs()), ElementsAre("z", "y"));
  EXPECT_THAT(session.outputs()[1].dims, ElementsAre(2));
}

TEST(GraphInputs, G5UnknownShapesAreInferred) {
  Graph graph(environment());
  graph.add_value("x", floats({-1, 4}, {"batch"}));
  graph.add_node("Flatten", {"x"}, {"f"});
  graph.add_node("Transpose", {"f"}, {"y"}).set("perm", std::vector<std::int64_t>{1, 0});
  graph.resolve();
  EXPECT_THAT(graph.outputs()[0].dims, ElementsAre(4, -1));
  EXPECT_EQ(graph.outputs()[0].symbols[1], "batch");
}

TEST(GraphInputs, G6OutputsMayBeReadInside) {
  Graph graph(environment());
  graph.add_value("x", floats({2}));
  graph.add_node("Neg", {"x"}, {"n"});
  graph.add_node("Relu", {"n"}, {"y"});
  graph.set_outputs({"n", "y"});
  const Session session(environment(), graph);
  const Value x = tensor({1, -2});
  const std::vector<Value> results = session.run({{"x", x}});
  EXPECT_THAT(elements(results[0]), ElementsAre(-1, 2));
  EXPECT_THAT(elements(results[1]), ElementsAre(0, 2));
}

TEST(GraphInputs, G6OutputsMayBeInputsOrInitializers) {
  Graph graph(environment());
  graph.add_value("x", floats({2}));
  graph.add_initializer("w", tensor({8, 9}));
  graph.add_node("Neg", {"x"}, {"y"});
  graph.set_outputs({"w", "x", "y"});
  const Session session(environment(), graph);
  const Value x = tensor({1, -2});
  const std::vector<Value> results = session.run({{"x", x}});
  EXPECT_THAT(elements(results[0]), ElementsAre(8, 9));
  EXPECT_THAT(elements(results[1]), ElementsAre(1, -2));
  EXPECT_THAT(elements(results[2]), ElementsAre(-1, 2));
  EXPECT_NE(results[1].data<float>(), x.data<float>()) << "a copy, not the caller's memory";
}

TEST(GraphInputs, G6OneValueUnderTwoOutputs) {
  for (const char* level : {"none", "all"}) {
    Graph graph(environment());
    graph.add_value("x", floats({2}));
    graph.add_node("Neg", {"x"}, {"n"});
    graph.add_node("Identity", {"n"}, {"first"});
    graph.add_node("Identity", {"n"}, {"second"});
    const Session session(environment(), graph, Options().set("optimization", level));
    const Value x = tensor({1, -2});
    const std::vector<Value> results = session.run({{"x", x}}, {"first", "second", "first"});
    ASSERT_EQ(results.size(), 3u);
    for (const Value& result : results) EXPECT_THAT(elements(result), ElementsAre(-1, 2)) << level;
  }
}

/// Of a size that only a run knows: what is handed out is still read, or handed out again.
TEST(GraphInputs, G6OneValueOfUnknownSizeUnderTwoOutputsOrReadAfterwards) {
  for (const char* level : {"none", "all"}) {
    Graph graph(environment());
    graph.add_value("x", floats({4}));
    graph.add_node("NonZero", {"x"}, {"places"});
    graph.add_node("Identity", {"places"}, {"same"});
    graph.add_node("Neg", {"places"}, {"negated"});
    const Session session(environment(), graph, Options().set("optimization", level));
    const Value x = tensor({0, 1, 0, 1});
    for (const std::vector<std::string>& names : {std::vector<std::string>{"places", "places"},
                                                  {"places", "negated"},
                                                  {"same", "negated", "places", "same"}}) {
      const std::vector<Value> results = session.run({{"x", x}}, names);
      ASSERT_EQ(results.size(), names.size());
      for (std::size_t i = 0; i < names.size(); ++i) {
        const double sign = names[i] == "negated" ? -1 : 1;
        EXPECT_THAT(results[i].numbers(), ElementsAre(sign, 3 * sign)) << level << " " << names[i];
      }
    }
  }
}

TEST(GraphInputs, G6OmittedOutputsAndUnusedInputs) {
  Graph graph(environment());
  graph.set_opset("", 17);
  graph.add_value("x", floats({1, 4})).add_value("unused", floats({7}));
  graph.add_initializer("scale", tensor({1, 1, 1, 1}));
  graph.add_node("LayerNormalization", {"x", "scale"}, {"normal", "", "inverse"})
      .set("epsilon", 0.0f);
  graph.add_node("Dropout", {"x"}, {"y"});  // its mask is left out at the end
  graph.set_inputs({"unused", "x"}).set_outputs({"inverse", "y"});
  const Session session(environment(), graph);
  const Value x = tensor({1, 4}, {1, 1, 5, 5}), unused = tensor(std::vector<float>(7));
  const std::vector<Value> results = session.run({{"x", x}, {"unused", unused}});
  EXPECT_THAT(elements(results[0]), ElementsAre(0.5f));
  EXPECT_THAT(elements(results[1]), ElementsAre(1, 1, 5, 5));
  const std::vector<Value> without = session.run({{"x", x}});  // nothing needs it
  EXPECT_THAT(elements(without[1]), ElementsAre(1, 1, 5, 5));
}

}  // namespace
}  // namespace backplane::session_test
