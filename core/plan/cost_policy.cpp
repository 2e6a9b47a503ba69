#include "core/plan/cost_policy.hpp"

#include <algorithm>
#include <iomanip>
#include <numeric>

#include "core/base/error.hpp"

namespace backplane::core {
namespace {

constexpr int kMaxPasses = 8;
/// Estimates are rough: what gains less than this is left alone.
constexpr double kLeastGain = 0.02;

std::string microseconds(double ns) {
  return text(std::fixed, std::setprecision(1), ns / 1000, " us");
}

/// Copies of one value for where its maker and readers are.
class CopyCosts {
 public:
  CopyCosts(const CostedGraph& graph, const CostModel& model)
      : graph_(graph), model_(model), reads_(model.space_count()) {}

  double of(const CostedValue& value) {
    std::fill(reads_.begin(), reads_.end(), false);
    const int from = value.maker < 0 ? kHostSpace : space_of(value.maker);
    if (value.is_fetched) reads_[kHostSpace] = true;
    for (const CostedValue::Reader& reader : value.readers) {
      const int space = reader.on_host ? kHostSpace : space_of(reader.node);
      reads_[static_cast<std::size_t>(space)] = true;
    }
    reads_[static_cast<std::size_t>(from)] = false;
    bool over_host = reads_[kHostSpace];
    double sum = 0;
    for (std::size_t to = kHostSpace + 1; to < reads_.size(); ++to) {
      if (!reads_[to]) continue;
      const int target = static_cast<int>(to);
      const bool direct = from == kHostSpace || model_.has_peer_copy(from, target);
      over_host = over_host || !direct;
      sum += model_.copy_ns(direct ? from : kHostSpace, target, value.bytes);
    }
    return over_host && from != kHostSpace ? sum + model_.copy_ns(from, kHostSpace, value.bytes)
                                           : sum;
  }

 private:
  int space_of(int node) const {
    const int device = graph_.nodes[static_cast<std::size_t>(node)].device;
    return device < 0 ? kHostSpace : model_.space_of(device);
  }

  const CostedGraph& graph_;
  const CostModel& model_;
  std::vector<char> reads_;  ///< by space
};

/// Execution and copies of some nodes.
struct Costs {
  double exec = 0, copies = 0;
  double sum() const { return exec + copies; }
};

class Search {
 public:
  Search(CostedGraph& graph, const CostModel& model, const std::vector<std::string>& labels)
      : graph_(graph),
        model_(model),
        labels_(labels),
        copies_(graph, model),
        first_(graph.nodes.size()),
        why_(graph.nodes.size()),
        seen_(graph.values.size()) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) first_[i] = graph.nodes[i].device;
  }

  std::vector<Move> run() {
    bool changed = true;
    for (int pass = 0; pass < kMaxPasses && changed; ++pass) {
      changed = false;
      for (const std::vector<int>& island : islands()) changed = improve(island) || changed;
      for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
        changed = improve({static_cast<int>(i)}) || changed;
    }
    std::vector<Move> moves;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const int device = graph_.nodes[i].device;
      if (device != first_[i]) moves.push_back({static_cast<int>(i), first_[i], device, why_[i]});
    }
    return moves;
  }

 private:
  int device_of(int node) const { return graph_.nodes[static_cast<std::size_t>(node)].device; }

  /// Connected nodes of one device, the smallest islands first.
  std::vector<std::vector<int>> islands() const {
    std::vector<int> root(graph_.nodes.size());
    std::iota(root.begin(), root.end(), 0);
    const auto find = [&](int node) {
      while (root[static_cast<std::size_t>(node)] != node) {
        int& above = root[static_cast<std::size_t>(node)];
        above = root[static_cast<std::size_t>(above)];
        node = above;
      }
      return node;
    };
    for (const CostedValue& value : graph_.values) {
      if (value.maker < 0) continue;
      for (const CostedValue::Reader& reader : value.readers) {
        if (device_of(reader.node) != device_of(value.maker)) continue;
        const int a = find(reader.node), b = find(value.maker);
        root[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
      }
    }
    std::vector<std::vector<int>> by_root(graph_.nodes.size()), islands;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].device >= 0)
        by_root[static_cast<std::size_t>(find(static_cast<int>(i)))].push_back(static_cast<int>(i));
    }
    for (std::vector<int>& island : by_root) {
      if (!island.empty()) islands.push_back(std::move(island));
    }
    std::stable_sort(islands.begin(), islands.end(),
                     [](const auto& a, const auto& b) { return a.size() < b.size(); });
    return islands;
  }

  /// What the nodes cost with all copies of values that they touch.
  Costs costs_of(const std::vector<int>& nodes) {
    Costs costs;
    ++round_;
    for (const int id : nodes) {
      const CostedNode& node = graph_.nodes[static_cast<std::size_t>(id)];
      costs.exec += node.exec_ns[static_cast<std::size_t>(node.device)];
      for (const int value : node.values) {
        int& seen = seen_[static_cast<std::size_t>(value)];
        if (seen == round_) continue;
        seen = round_;
        costs.copies += copies_.of(graph_.values[static_cast<std::size_t>(value)]);
      }
    }
    return costs;
  }

  bool take(const std::vector<int>& nodes, int device) const {
    return std::all_of(nodes.begin(), nodes.end(), [&](int node) {
      return graph_.nodes[static_cast<std::size_t>(node)]
                 .exec_ns[static_cast<std::size_t>(device)] >= 0;
    });
  }

  void put(const std::vector<int>& nodes, int device) {
    for (const int node : nodes) graph_.nodes[static_cast<std::size_t>(node)].device = device;
  }

  /// Only devices that hold a neighbour are worth a try: elsewhere an island has as many copies, or more.
  bool has_neighbour(const std::vector<int>& nodes, int device) const {
    const int space = model_.space_of(device);
    for (const int id : nodes) {
      for (const int index : graph_.nodes[static_cast<std::size_t>(id)].values) {
        const CostedValue& value = graph_.values[static_cast<std::size_t>(index)];
        if (space == kHostSpace && (value.maker < 0 || value.is_fetched)) return true;
        if (value.maker >= 0 && device_of(value.maker) == device) return true;
        for (const CostedValue::Reader& reader : value.readers) {
          if (device_of(reader.node) == device || (reader.on_host && space == kHostSpace))
            return true;
        }
      }
    }
    return false;
  }

  bool improve(const std::vector<int>& nodes) {
    const int from = device_of(nodes.front());
    if (from < 0) return false;
    const Costs now = costs_of(nodes);
    if (nodes.size() == 1 && now.copies <= 0) return false;  // nothing to save
    int best = -1;
    Costs least = now;
    for (int device = 0; device < static_cast<int>(model_.device_count()); ++device) {
      if (device == from || !take(nodes, device) || !has_neighbour(nodes, device)) continue;
      put(nodes, device);
      const Costs there = costs_of(nodes);
      if (there.sum() < least.sum() && there.sum() < now.sum() * (1 - kLeastGain)) {
        best = device;
        least = there;
      }
    }
    put(nodes, best < 0 ? from : best);
    if (best >= 0) explain(nodes, from, best, now, least);
    return best >= 0;
  }

  void explain(const std::vector<int>& nodes, int from, int to, const Costs& before,
               const Costs& after) {
    const std::string& first = graph_.nodes[static_cast<std::size_t>(nodes.front())].name;
    const std::string who =
        nodes.size() == 1
            ? text("it takes ")
            : text("it and the ", nodes.size() - 1, " nodes with it, from '", first, "' on, take ");
    const std::string why = text(
        who, microseconds(before.exec), " on ", labels_[static_cast<std::size_t>(from)], " and ",
        microseconds(before.copies), " of copies; on ", labels_[static_cast<std::size_t>(to)], " ",
        microseconds(after.exec), " and ", microseconds(after.copies));
    for (const int node : nodes) why_[static_cast<std::size_t>(node)] = why;
  }

  CostedGraph& graph_;
  const CostModel& model_;
  const std::vector<std::string>& labels_;
  CopyCosts copies_;
  std::vector<int> first_;
  std::vector<std::string> why_;
  std::vector<int> seen_;  ///< by value: the last round that counted it
  int round_ = 0;
};

}  // namespace

std::vector<Move> find_cheaper(CostedGraph& graph, const CostModel& model,
                               const std::vector<std::string>& labels) {
  return Search(graph, model, labels).run();
}

double total_ns(const CostedGraph& graph, const CostModel& model) {
  CopyCosts copies(graph, model);
  double sum = 0;
  for (const CostedNode& node : graph.nodes) {
    if (node.device >= 0) sum += node.exec_ns[static_cast<std::size_t>(node.device)];
  }
  for (const CostedValue& value : graph.values) sum += copies.of(value);
  return sum;
}

}  // namespace backplane::core
