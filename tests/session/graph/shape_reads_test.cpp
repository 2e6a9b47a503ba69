// Sizes are read from whichever feed has them, and stay those of the value that the model reads them from.
#include "session_test.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;

/// a [n, 2], b [n] -> Relu r -> Shape -> `size`; b -> Concat(b, b) `twice`, an output that the model calls [n], -> Shape ->
/// `twice_size`; b -> NonZero `found` -> Shape -> `found_size`, and `found` -> Identity, likewise called [1, n]; w [n], which may
/// be replaced, -> Neg -> Shape -> `w_size`.
Graph sizes() {
  Graph graph(environment());
  graph.add_value("a", floats({-1, 2}, {"n", ""})).add_value("b", floats({-1}, {"n"}));
  graph.add_value("w", floats({-1}, {"n"})).add_initializer("w", tensor({1, 2, 3}));
  graph.add_node("Relu", {"b"}, {"r"});
  graph.add_node("Neg", {"w"}, {"v"});
  graph.add_node("Concat", {"b", "b"}, {"twice"}).set("axis", 0);
  graph.add_node("Abs", {"a"}, {"of_a"});
  graph.add_node("NonZero", {"b"}, {"found"});
  graph.add_node("Identity", {"found"}, {"found_out"});
  graph.add_value("found_out", GraphType::tensor(ElementType::Int64, {1, -1}, {"", "n"}));
  for (const auto& [value, size] : {std::pair<const char*, const char*>{"r", "size"},
                                    {"twice", "twice_size"},
                                    {"v", "w_size"},
                                    {"found", "found_size"}}) {
    graph.add_node("Shape", {value}, {std::string(size) + "_int"});
    graph.add_node("Cast", {std::string(size) + "_int"}, {size}).set("to", 1);
  }
  graph.add_value("twice", floats({-1}, {"n"}));
  graph.set_inputs({"a", "b", "w"});
  graph.set_outputs({"size", "twice", "twice_size", "w_size", "of_a", "found_size", "found_out"});
  return graph;
}

class ShapeReads : public ::testing::Test {
 protected:
  ShapeReads() : graph_(sizes()), session_(environment(), graph_, Options()) {}
  std::vector<float> run(const Feeds& feeds, const std::string& fetch) {
    return elements(session_.run(feeds, {fetch})[0]);
  }
  Graph graph_;
  Session session_;
  Value a_ = tensor({3, 2}, {1, 2, 3, 4, 5, 6});
  Value b_ = tensor({7, 8, 9});
};

TEST_F(ShapeReads, AllAreFed) { EXPECT_THAT(run({{"a", a_}, {"b", b_}}, "size"), ElementsAre(3)); }

TEST_F(ShapeReads, AnInputThatTheModelDoesNotReadThereNeedNotBeFed) {
  EXPECT_THAT(run({{"b", b_}}, "size"), ElementsAre(3));
}

TEST_F(ShapeReads, AnInnerValueThatIsFedHasItsOwnSize) {
  EXPECT_THAT(run({{"a", a_}, {"r", tensor({1, 2, 3, 4, 5})}}, "size"), ElementsAre(5));
}

TEST_F(ShapeReads, AnOutputsDeclaredSymbolIsNotBelieved) {
  EXPECT_THAT(run({{"a", a_}, {"b", b_}}, "twice_size"), ElementsAre(6));
  const Value b = tensor({7, 0, 9});
  EXPECT_THAT(run({{"a", a_}, {"b", b}}, "found_size"), ElementsAre(1, 2));
  const std::vector<Value> all = session_.run({{"a", a_}, {"b", b}}, {"found_size", "found_out"});
  EXPECT_THAT(elements(all[0]), ElementsAre(1, 2));
}

TEST_F(ShapeReads, AnInitializerThatIsNotReplacedHasItsOwnSize) {
  EXPECT_THAT(run({{"a", tensor({2, 2}, {1, 2, 3, 4})}, {"b", tensor({1, 2})}}, "w_size"),
              ElementsAre(3));
}

}  // namespace
}  // namespace backplane::session_test
