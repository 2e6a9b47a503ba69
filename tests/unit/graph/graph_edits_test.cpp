// Whatever is done to a graph, its indices agree with one another.
#include <gtest/gtest.h>
#include <random>

#include "graph_check.hpp"

namespace backplane::core {
namespace {

class RandomEdits {
 public:
  explicit RandomEdits(unsigned seed) : random_(seed) {
    for (int i = 0; i < 4; ++i) graph_.add_input(graph_.value_named("x" + std::to_string(i)));
  }

  void step() {
    switch (pick(6)) {
      case 0:
      case 1:
        add_node();
        break;
      case 2:
        remove_node();
        break;
      case 3:
        set_input();
        break;
      case 4:
        graph_.replace_uses(any_value(), any_value(), pick(2) == 0);
        break;
      default:
        mark_or_move_output();
        break;
    }
  }

  const Graph& graph() const { return graph_; }

 private:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  std::size_t pick_index(std::size_t count) {
    return static_cast<std::size_t>(pick(static_cast<int>(count)));
  }
  ValueId any_value() { return ValueId(pick_index(graph_.value_count())); }
  NodeId any_node() {
    if (graph_.node_count() == 0) return kNone;
    for (;;) {
      const NodeId id(pick_index(graph_.node_limit()));
      if (graph_.has_node(id)) return id;
    }
  }

  void add_node() {
    Node node;
    node.op_type = "Op";
    for (int i = pick(4); i > 0; --i) node.inputs.push_back(pick(5) == 0 ? kNone : any_value());
    for (int i = pick(3); i >= 0; --i)
      node.outputs.push_back(pick(5) == 0 ? kNone : graph_.new_value("v"));
    graph_.add_node(std::move(node));
  }

  void remove_node() {
    if (const NodeId id = any_node(); id != kNone) graph_.remove_node(id);
  }

  void set_input() {
    const NodeId id = any_node();
    if (id == kNone || graph_.node(id).inputs.empty()) return;
    const auto index =
        static_cast<std::size_t>(pick(static_cast<int>(graph_.node(id).inputs.size())));
    graph_.set_input(id, index, pick(4) == 0 ? kNone : any_value());
  }

  void mark_or_move_output() {
    const NodeId id = any_node();
    if (id == kNone) return;
    const auto index =
        static_cast<std::size_t>(pick(static_cast<int>(graph_.node(id).outputs.size())));
    if (pick(2) == 0) {
      graph_.set_output(id, index, pick(4) == 0 ? kNone : graph_.new_value("moved"));
    } else if (graph_.node(id).outputs[index] != kNone) {
      graph_.add_output(graph_.node(id).outputs[index]);
    }
  }

  std::mt19937 random_;
  Graph graph_;
};

TEST(GraphEdits, KeepTheGraphConsistent) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    RandomEdits edits(seed);
    for (int i = 0; i < 200; ++i) {
      edits.step();
      if (i % 10 == 0) expect_consistent(edits.graph());
    }
    expect_consistent(Graph(edits.graph()));
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace backplane::core
