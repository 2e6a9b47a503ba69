// Names and order of the nodes of protos: ONNX's library wants them in order before it infers anything.
#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/normal_form.hpp"
#include "core/onnx/opsets.hpp"

namespace backplane::core {
namespace {

using ::onnx::GraphProto;
using ::onnx::NodeProto;

/// A name that a body reads from outside, and who reads it, for messages.
using FreeNames = std::map<std::string, std::string>;

constexpr int kNotANode = -1;

class GraphSorter {
 public:
  explicit GraphSorter(GraphProto& graph) : graph_(graph) {}

  /// Sorts; returns the old index of each node.
  std::vector<int> sort() {
    define_values();
    find_dependencies();
    return order();
  }

  const FreeNames& free_names() const { return free_; }

  /// Nearest defined names, unless there are so many that comparing takes long.
  std::string suggestion(const std::string& name) const {
    constexpr std::size_t kMost = 5000;
    if (makers_.size() > kMost) return {};
    std::vector<std::string> names;
    for (const auto& [known, maker] : makers_) names.emplace_back(known);
    std::sort(names.begin(), names.end());
    return did_you_mean(name, names);
  }

 private:
  void define(const std::string& name, int maker, const char* as) {
    if (name.empty()) invalid("a graph ", as, " has no name");
    const auto [entry, added] = makers_.emplace(name, maker);
    if (added) return;
    if (maker == kNotANode) invalid("two graph ", as, "s are named ", quoted(name), "; rename one");
    const std::string second = described(graph_.node(maker));
    if (entry->second == kNotANode) {
      invalid(second, ": its output ", quoted(name),
              " is also a graph input or initializer; rename one");
    }
    invalid(second, ": its output ", quoted(name), " is also made by ",
            described(graph_.node(entry->second)), "; rename one");
  }

  void define_values() {
    for (const auto& input : graph_.input()) define(input.name(), kNotANode, "input");
    // An initializer may also be an input, but two cannot share a name.
    std::unordered_map<std::string_view, int> initializers;
    const auto define_initializer = [&](const std::string& name) {
      if (name.empty()) invalid("an initializer has no name");
      if (!initializers.emplace(name, 0).second)
        invalid("two initializers are named ", quoted(name), "; rename one");
      makers_.emplace(name, kNotANode);
    };
    for (const auto& initializer : graph_.initializer()) define_initializer(initializer.name());
    for (const auto& initializer : graph_.sparse_initializer())
      define_initializer(initializer.values().name());
    for (int i = 0; i < graph_.node_size(); ++i) {
      for (const std::string& output : graph_.node(i).output()) {
        if (!output.empty()) define(output, i, "output");
      }
    }
  }

  void read(const std::string& name, int reader) {
    const auto maker = makers_.find(name);
    if (maker == makers_.end()) {
      free_.emplace(name, described(graph_.node(reader)));
    } else if (maker->second != kNotANode) {
      sources_[static_cast<std::size_t>(reader)].push_back(maker->second);
    }
  }

  void find_dependencies() {
    sources_.resize(static_cast<std::size_t>(graph_.node_size()));
    for (int i = 0; i < graph_.node_size(); ++i) {
      NodeProto& node = *graph_.mutable_node(i);
      for (const std::string& input : node.input()) {
        if (!input.empty()) read(input, i);
      }
      for_each_graph(node, [&](GraphProto& body) {
        GraphSorter inner(body);
        inner.sort();
        for (const auto& [name, reader] : inner.free_) {
          if (!makers_.contains(name)) {
            free_.emplace(name, reader);
          } else {
            read(name, i);
          }
        }
      });
    }
    for (const auto& output : graph_.output()) {
      if (output.name().empty()) invalid("a graph output has no name");
      if (!makers_.contains(output.name())) free_.emplace(output.name(), std::string());
    }
  }

  /// Of the nodes whose sources are all placed, always the first in the file: a sorted file stays as it is.
  std::vector<int> order() {
    const auto count = static_cast<std::size_t>(graph_.node_size());
    std::vector<std::vector<int>> readers(count);
    std::vector<int> missing(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<int>& list = sources_[i];
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
      missing[i] = static_cast<int>(list.size());
      for (const int source : list)
        readers[static_cast<std::size_t>(source)].push_back(static_cast<int>(i));
    }
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (std::size_t i = 0; i < count; ++i) {
      if (missing[i] == 0) ready.push(static_cast<int>(i));
    }
    std::vector<int> result;
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      result.push_back(node);
      for (const int reader : readers[static_cast<std::size_t>(node)]) {
        if (--missing[static_cast<std::size_t>(reader)] == 0) ready.push(reader);
      }
    }
    if (result.size() < count) fail_with_cycle(missing);
    if (!std::is_sorted(result.begin(), result.end())) rearrange(result);
    return result;
  }

  void rearrange(const std::vector<int>& order) {
    auto& nodes = *graph_.mutable_node();
    std::vector<NodeProto*> old(order.size());
    for (std::size_t i = order.size(); i > 0; --i) old[i - 1] = nodes.ReleaseLast();
    for (const int index : order) nodes.AddAllocated(old[static_cast<std::size_t>(index)]);
  }

  /// Each node that is not placed waits for another such; following them must come back.
  [[noreturn]] void fail_with_cycle(const std::vector<int>& missing) const {
    constexpr std::size_t kShown = 8;
    const auto waits = [&](int node) { return missing[static_cast<std::size_t>(node)] > 0; };
    std::vector<int> seen_at(missing.size(), -1);
    std::vector<int> path;
    int node =
        static_cast<int>(std::find_if(missing.begin(), missing.end(), [](int m) { return m > 0; }) -
                         missing.begin());
    while (seen_at[static_cast<std::size_t>(node)] < 0) {
      seen_at[static_cast<std::size_t>(node)] = static_cast<int>(path.size());
      path.push_back(node);
      const std::vector<int>& sources = sources_[static_cast<std::size_t>(node)];
      node = *std::find_if(sources.begin(), sources.end(), waits);
    }
    path.erase(path.begin(), path.begin() + seen_at[static_cast<std::size_t>(node)]);
    std::reverse(path.begin(), path.end());  // now each feeds the next
    std::string names;
    for (std::size_t i = 0; i < std::min(path.size(), kShown); ++i) {
      names += quoted(graph_.node(path[i]).name()) + " -> ";
    }
    if (path.size() > kShown) names += text("... (", path.size(), " nodes) -> ");
    invalid("the graph has a cycle: ", names, quoted(graph_.node(path.front()).name()),
            "; a node cannot need its own result");
  }

  GraphProto& graph_;
  std::unordered_map<std::string_view, int>
      makers_;  // views into the protos, whose strings stay in place
  std::vector<std::vector<int>> sources_;
  FreeNames free_;
};

}  // namespace

void sort_nodes(GraphProto& graph, std::vector<std::int32_t>& origins) {
  GraphSorter sorter(graph);
  const std::vector<int> order = sorter.sort();
  if (!sorter.free_names().empty()) {
    const auto& [name, reader] = *sorter.free_names().begin();
    const std::string suggestion = sorter.suggestion(name);
    if (reader.empty()) {
      invalid("the graph output ", quoted(name),
              " is made by no node, and is no input or initializer", suggestion);
    }
    invalid(reader, ": its input ", quoted(name),
            " is made by no node, and is no graph input or initializer", suggestion);
  }
  const std::vector<std::int32_t> old = origins;
  for (std::size_t i = 0; i < order.size(); ++i)
    origins[i] = old[static_cast<std::size_t>(order[i])];
}

}  // namespace backplane::core
