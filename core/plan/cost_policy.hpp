// The cost policy of placement: moves nodes to where they and their copies cost less together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/cost_model.hpp"

namespace backplane::core {

/// A value that is not constant.
struct CostedValue {
  struct Reader {
    int node;
    bool on_host;  ///< reads it on the host, wherever the node runs
  };
  int maker = -1;  ///< a node; -1: it comes from outside, and lies on the host
  std::uint64_t bytes = 0;
  std::vector<Reader> readers;
  bool is_fetched = false;  ///< the host reads it at the end
};

struct CostedNode {
  std::string name;
  /// By device, in nanoseconds; negative where the device does not take the node.
  std::vector<double> exec_ns;
  std::vector<int> values;  ///< that it reads or makes; each once
  int device = -1;          ///< -1: no device takes it; it stays where it is
};

/// What the policy looks at. Nodes are in an order that the graph allows.
struct CostedGraph {
  std::vector<CostedNode> nodes;
  std::vector<CostedValue> values;
};

/// Why a node is no longer where it was.
struct Move {
  int node = -1;
  int from = -1, to = -1;
  std::string why;  ///< a sentence with numbers
};

/// Merges islands, which are connected nodes of one device, into another device where execution and copies together
/// become cheaper, then single nodes, until nothing is left to gain. Changes `graph`'s devices; returns the nodes that
/// ended up elsewhere, in order. Depends on its arguments alone. `labels`: what devices are called.
std::vector<Move> find_cheaper(CostedGraph& graph, const CostModel& model,
                               const std::vector<std::string>& labels);

/// What all nodes and copies of the graph cost, in nanoseconds, one after the other.
double total_ns(const CostedGraph& graph, const CostModel& model);

}  // namespace backplane::core
