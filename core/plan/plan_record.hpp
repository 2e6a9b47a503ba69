// What was decided of a program, by names: enough to make it again without asking any provider.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/plan/placement.hpp"

namespace backplane::core {

/// A program's placement, order and choices. Devices go by their labels, kernels by their names and their places among
/// the kernels that the device has for the operator.
struct PlanRecord {
  struct Kernel {
    std::size_t place = 0;
    std::string name;
  };
  struct PlacedNode {
    std::string node;
    std::string device;  ///< "": evaluated on the host
    std::vector<Kernel> kernels;
    std::vector<Reason> reasons;
  };
  struct Refused {
    std::string node;
    std::string device;
    std::string text;
    std::string code;
  };

  std::vector<std::string> feeds, fetches;
  std::vector<PlacedNode> placement;                ///< before rewrites
  std::vector<Refused> refused;                     ///< by create and prepare, or for memory
  std::map<std::string, std::string> claims;        ///< devices whose claims are not taken, and why
  std::map<std::string, std::string> rewrites;      ///< likewise rewrites
  std::vector<std::string> order;                   ///< after rewrites
  std::map<std::string, std::size_t> later_kernel;  ///< nodes that do not use their first kernel
};

/// Kernels as a record names them.
PlanRecord::PlacedNode record_of(const Node& node, const NodePlacement& placement,
                                 const DeviceSet& devices);

/// The placement that a record has of a graph. Throws Incompatible, naming node and device, when it does not fit.
Placement placement_of(const PlanRecord& record, const Graph& graph,
                       const std::vector<NodeId>& order, const DeviceSet& devices,
                       SchemaCache& schemas);

/// The nodes of a graph in the order of their names. Throws Incompatible when these are not its nodes, or one comes
/// before what it reads.
std::vector<NodeId> order_of(const std::vector<std::string>& names, const Graph& graph);

/// The device with a label. Throws Incompatible.
int device_named(const std::string& label, const DeviceSet& devices);

}  // namespace backplane::core
