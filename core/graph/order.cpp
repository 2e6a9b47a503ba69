// The default order of execution.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/graph/graph.hpp"

namespace backplane::core {
namespace {

class ReverseDepthFirst {
 public:
  explicit ReverseDepthFirst(const Graph& graph)
      : graph_(graph), state_(graph.node_limit(), State::New) {}

  std::vector<NodeId> order() {
    order_.reserve(graph_.node_count());
    std::vector<NodeId> leaves;
    for (const NodeId id : graph_.node_ids()) {
      if (is_leaf(id)) leaves.push_back(id);
    }
    walk(leaves);
    // Only a cycle that nobody outside reads is left; walking into it finds it.
    for (const NodeId id : graph_.node_ids()) {
      if (state_[id] == State::New) walk({id});
    }
    return std::move(order_);
  }

 private:
  enum class State : std::uint8_t { New, Entered, Left };
  struct Entry {
    NodeId node;
    bool leaving;
  };

  bool is_leaf(NodeId id) const {
    const Node& node = graph_.node(id);
    return node.before.empty() &&
           std::all_of(node.outputs.begin(), node.outputs.end(), [this](ValueId output) {
             return output == kNone || graph_.value(output).uses.empty();
           });
  }

  void walk(const std::vector<NodeId>& roots) {
    for (const NodeId root : roots) stack_.push_back({root, false});
    while (!stack_.empty()) {
      const auto [id, leaving] = stack_.back();
      stack_.pop_back();
      State& state = state_[id];
      if (leaving) {
        state = State::Left;
        order_.push_back(id);
      } else if (state == State::New) {
        state = State::Entered;
        stack_.push_back({id, true});
        push_producers(id);
      } else if (state == State::Entered) {
        fail_with_cycle(id);
      }
    }
  }

  void push_producers(NodeId id) {
    const Node& node = graph_.node(id);
    producers_.clear();
    for (const std::vector<ValueId>* list : {&node.inputs, &node.captured}) {
      for (const ValueId input : *list) {
        const NodeId producer = input == kNone ? kNone : graph_.value(input).producer;
        if (producer != kNone && state_[producer] != State::Left) producers_.push_back(producer);
      }
    }
    for (const NodeId earlier : node.after) {
      if (state_[earlier] != State::Left) producers_.push_back(earlier);
    }
    std::sort(producers_.begin(), producers_.end());
    producers_.erase(std::unique(producers_.begin(), producers_.end()), producers_.end());
    for (const NodeId producer : producers_) stack_.push_back({producer, false});
  }

  /// `id` was entered and is met again: the entries that are to be left, from its own upwards, are the cycle.
  [[noreturn]] void fail_with_cycle(NodeId id) const {
    constexpr std::size_t kShown = 8;
    std::vector<NodeId> cycle;
    bool inside = false;
    for (const Entry& entry : stack_) {
      inside = inside || (entry.leaving && entry.node == id);
      if (inside && entry.leaving) cycle.push_back(entry.node);
    }
    std::reverse(cycle.begin(), cycle.end());  // now each feeds the next
    std::string names;
    for (std::size_t i = 0; i < std::min(cycle.size(), kShown); ++i) {
      names += quoted(graph_.node(cycle[i]).name) + " -> ";
    }
    if (cycle.size() > kShown) names += text("... (", cycle.size(), " nodes) -> ");
    invalid("the graph has a cycle: ", names, quoted(graph_.node(cycle.front()).name),
            "; a node cannot need its own result");
  }

  const Graph& graph_;
  PerNode<State> state_;
  std::vector<Entry> stack_;
  std::vector<NodeId> producers_;
  std::vector<NodeId> order_;
};

}  // namespace

std::vector<NodeId> topological_order(const Graph& graph) {
  return ReverseDepthFirst(graph).order();
}

}  // namespace backplane::core
