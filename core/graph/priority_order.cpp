#include "core/graph/priority_order.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/data_type.hpp"

namespace backplane::core {
namespace {

/// A known dimension, or 1; saturates far above any memory.
std::uint64_t bytes_of(const Type& type) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;
  std::uint64_t count = 1;
  for (const Dim& dim : *type.shape) {
    const auto size = static_cast<std::uint64_t>(dim.known() ? dim.size : 1);
    if (size != 0 && count > kMost / size) return kMost;
    count *= size;
  }
  return std::min(kMost, storage_bytes(type.element, count).value_or(kMost));
}

bool counts(const Value& value) {
  return value.producer != kNone && !value.is_output && value.constant == nullptr;
}

/// The values that a node reads, each once.
std::vector<ValueId> reads_of(const Node& node) {
  std::vector<ValueId> reads;
  for (const std::vector<ValueId>* list : {&node.inputs, &node.captured}) {
    for (const ValueId input : *list) {
      if (input != kNone) reads.push_back(input);
    }
  }
  std::sort(reads.begin(), reads.end());
  reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  return reads;
}

/// How many nodes have still to read each value.
PerValue<std::uint32_t> reader_counts(const Graph& graph) {
  PerValue<std::uint32_t> counts(graph.value_count());
  for (const NodeId id : graph.node_ids()) {
    for (const ValueId value : reads_of(graph.node(id))) ++counts[value];
  }
  return counts;
}

/// Explicit priority, what decides among equals, index.
using Key = std::tuple<int, std::int64_t, NodeId>;

/// What decides among nodes of one priority.
enum class Among {
  Position,  ///< the order that is followed
  Freeing,   ///< nodes that free at least what they take, at once; else the order that is followed
  Growth,    ///< by how much the live bytes grow
};

/// List scheduling: of the nodes that can run, the one with the smallest key is next.
class Scheduler {
 public:
  /// `position` of each node in the order that is followed.
  Scheduler(const Graph& graph, const ValueBytes& bytes, const PerNode<std::size_t>& position,
            Among among)
      : graph_(graph),
        bytes_(bytes),
        position_(position),
        among_(among),
        readers_(reader_counts(graph)),
        missing_(graph.node_limit()),
        keys_(graph.node_limit(), Key{0, 0, kNone}),
        done_(graph.node_limit()) {}

  std::vector<NodeId> order() {
    for (const NodeId id : graph_.node_ids()) {
      missing_[id] = sources_of(id).size();
      if (missing_[id] == 0) offer(id);
    }
    std::vector<NodeId> result;
    result.reserve(graph_.node_count());
    while (!ready_.empty()) {
      const NodeId id = std::get<2>(*ready_.begin());
      ready_.erase(ready_.begin());
      done_[id] = true;
      result.push_back(id);
      release_inputs(id);
      for (const NodeId next : followers_of(id)) {
        if (--missing_[next] == 0) offer(next);
      }
    }
    return result;
  }

 private:
  std::vector<NodeId> sources_of(NodeId id) const {
    std::vector<NodeId> sources = graph_.node(id).after;
    for (const ValueId value : reads_of(graph_.node(id))) {
      if (graph_.value(value).producer != kNone) sources.push_back(graph_.value(value).producer);
    }
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    return sources;
  }

  std::vector<NodeId> followers_of(NodeId id) const {
    std::vector<NodeId> followers = graph_.node(id).before;
    for (const ValueId output : graph_.node(id).outputs) {
      if (output == kNone) continue;
      for (const Use& use : graph_.value(output).uses) followers.push_back(use.node);
    }
    std::sort(followers.begin(), followers.end());
    followers.erase(std::unique(followers.begin(), followers.end()), followers.end());
    return followers;
  }

  /// By how much the live bytes grow when the node runs now.
  std::int64_t growth(NodeId id) const {
    std::int64_t growth = 0;
    for (const ValueId output : graph_.node(id).outputs) {
      if (output != kNone && readers_[output] > 0)
        growth += static_cast<std::int64_t>(bytes_[output]);
    }
    for (const ValueId input : reads_of(graph_.node(id))) {
      if (readers_[input] == 1) growth -= static_cast<std::int64_t>(bytes_[input]);
    }
    return growth;
  }

  std::int64_t rank(NodeId id) const {
    const auto position = static_cast<std::int64_t>(position_[id]);
    if (among_ == Among::Position) return position;
    const std::int64_t grows = growth(id);
    if (among_ == Among::Growth) return grows;
    return grows <= 0 ? grows - 1 : position;
  }

  void offer(NodeId id) {
    keys_[id] = {graph_.node(id).priority, rank(id), id};
    ready_.insert(keys_[id]);
  }

  /// The last reader of a value frees it: when it can run already, it has become better.
  void release_inputs(NodeId id) {
    for (const ValueId input : reads_of(graph_.node(id))) {
      if (--readers_[input] != 1 || among_ == Among::Position) continue;
      for (const Use& use : graph_.value(input).uses) {
        if (done_[use.node]) continue;
        if (ready_.erase(keys_[use.node]) > 0) offer(use.node);
        break;
      }
    }
  }

  const Graph& graph_;
  const ValueBytes& bytes_;
  const PerNode<std::size_t>& position_;
  Among among_;
  PerValue<std::uint32_t> readers_;
  PerNode<std::size_t> missing_;
  PerNode<Key> keys_;
  PerNode<bool> done_;
  std::set<Key> ready_;
};

}  // namespace

ValueBytes estimated_bytes(const Graph& graph, const std::vector<NodeId>& order) {
  ValueBytes bytes(graph.value_count());
  ValueBytes all(
      graph.value_count());  // of those that count nothing, too: their readers are judged by them
  const auto estimate = [&](ValueId id, std::uint64_t otherwise) {
    const Type& type = graph.value(id).type;
    const bool known = type.is_tensor() && type.shape && type.element != DataType::None;
    all[id] = known ? bytes_of(type) : otherwise;
  };
  for (const ValueId id : graph.value_ids()) estimate(id, 0);
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    std::uint64_t largest = 0;
    for (const ValueId input : node.inputs) {
      if (input != kNone) largest = std::max(largest, all[input]);
    }
    for (const ValueId output : node.outputs) {
      if (output == kNone) continue;
      estimate(output, largest);
      if (counts(graph.value(output))) bytes[output] = all[output];
    }
  }
  return bytes;
}

std::uint64_t peak_bytes(const Graph& graph, const std::vector<NodeId>& order,
                         const ValueBytes& bytes) {
  PerValue<std::uint32_t> readers = reader_counts(graph);
  std::uint64_t live = 0, peak = 0;
  for (const NodeId id : order) {
    for (const ValueId output : graph.node(id).outputs) {
      if (output != kNone) live += bytes[output];
    }
    peak = std::max(peak, live);
    for (const ValueId output : graph.node(id).outputs) {
      if (output != kNone && readers[output] == 0) live -= bytes[output];
    }
    for (const ValueId input : reads_of(graph.node(id))) {
      if (--readers[input] == 0) live -= bytes[input];
    }
  }
  return peak;
}

std::vector<NodeId> priority_order(const Graph& graph, const ValueBytes& bytes) {
  const std::vector<NodeId> standard = topological_order(graph);
  PerNode<std::size_t> position(graph.node_limit());
  for (std::size_t i = 0; i < standard.size(); ++i) position[standard[i]] = i;
  std::vector<NodeId> best;
  std::uint64_t lowest = 0;
  for (const Among among : {Among::Position, Among::Freeing, Among::Growth}) {
    std::vector<NodeId> order = Scheduler(graph, bytes, position, among).order();
    const std::uint64_t peak = peak_bytes(graph, order, bytes);
    if (!best.empty() && peak >= lowest) continue;
    best = std::move(order);
    lowest = peak;
  }
  return best;
}

}  // namespace backplane::core
