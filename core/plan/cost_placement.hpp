// From what devices offer for nodes to the places where nodes and copies cost least together.
#pragma once

#include <vector>

#include "core/plan/kernel_choice.hpp"

namespace backplane::core {

/// What one device says to one node.
struct Offer {
  std::vector<RegisteredKernel> kernels;  ///< best first; empty: it does not take the node
  std::vector<Reason> reasons;
  bp_cost cost{};  ///< what the best kernel says; zeros where it says nothing
};
using NodeOffers = std::vector<Offer>;  ///< by device

struct CostedPlace {
  NodeId node;
  int device = -1;
  std::vector<RegisteredKernel> kernels;
  std::vector<Reason> reasons;  ///< of devices before it, and of the one that it was moved from
};

/// Starts with the first device that takes each node, and moves nodes as the devices' cost model (`devices.costs`, not
/// null) says. `offers` is parallel to `order`, and is taken from. Dimensions that are not known count as 1.
std::vector<CostedPlace> places_by_cost(const Graph& graph, const std::vector<NodeId>& order,
                                        std::vector<NodeOffers>& offers, const DeviceSet& devices);

}  // namespace backplane::core
