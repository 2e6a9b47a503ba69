// Evaluating nodes on the host while a session plans: constants and shape arithmetic.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/plan/kernel_choice.hpp"
#include "core/plan/prepare.hpp"
#include "core/plan/stop_signal.hpp"
#include "core/plugin_host/graph_view.hpp"

namespace backplane::core {

/// A kernel of the host evaluator for one node.
///
/// Lifetime: borrows the graph that it was made for.
struct HostKernel {
  std::unique_ptr<GraphView> view;
  KernelHandle kernel;
  /// What it said last, and of which types, dims and elements: a loop counter's next number changes nothing of it. Empty
  /// where these are not to be compared.
  std::vector<std::int64_t> prepared_for;
  PrepareResult prepared;
};

/// Output values for a prepared kernel, with host memory where their size is known. nullopt when one is larger than
/// `max_bytes`, or in a private format.
std::optional<std::vector<RuntimeValuePtr>> make_host_outputs(const PrepareResult& prepared,
                                                              const std::vector<bool>& wanted,
                                                              std::uint64_t max_bytes);

/// Calls `compute` of a kernel on host memory, with a workspace of the call's own. Throws what it returns.
void compute_on_host(const PrepareResult& prepared, Device& device, bp_threads* threads,
                     const StopSignal* stop, const std::vector<const bp_value*>& inputs,
                     const std::vector<RuntimeValuePtr>& outputs,
                     const std::vector<const bp_tensor*>& packed);

/// Runs kernels of the device that the core may use for itself, outside any plan.
///
/// Threads: one at a time.
class HostEvaluator {
 public:
  HostEvaluator(const DeviceSet& devices, const SchemaRegistry& schemas, bp_threads* threads);

  /// The best kernel for a node; nullptr when there is none, or no host evaluator.
  std::unique_ptr<HostKernel> create(const Graph& graph, const Node& node);

  /// Computes a node. Inputs: with elements wherever the kernel's role for the input is not SHAPE_ONLY; `prepare` is shown
  /// those of HOST_VALUE alone, and no input as constant. nullopt when the kernel finds the shapes unsupported, or when an
  /// output of known size is larger than `max_bytes`. An output that the node leaves out is null. Throws other errors of the
  /// kernel.
  std::optional<std::vector<RuntimeValuePtr>> evaluate(HostKernel& kernel, const Node& node,
                                                       const std::vector<const bp_value*>& inputs,
                                                       std::uint64_t max_bytes);

  /// For passes: a node all of whose inputs are constants. nullopt as above, and for random operators.
  std::optional<std::vector<ConstantPtr>> fold(const Graph& graph, const Node& node,
                                               std::uint64_t max_bytes);

 private:
  bool prepare(HostKernel& kernel, const Node& node, const std::vector<const bp_value*>& inputs);

  const DeviceSet& devices_;
  SchemaCache schemas_;
  bp_threads* threads_;
  std::vector<std::int64_t> signature_;  ///< of one evaluation
};

}  // namespace backplane::core
