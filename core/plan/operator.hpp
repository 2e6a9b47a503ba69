// Operators that kernels make to use other kernels: the host's side of bp.operators.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/compute_context.hpp"
#include "core/plan/kernel_choice.hpp"
#include "core/plan/prepare.hpp"
#include "core/plan/weight_store.hpp"
#include "core/plugin_host/graph_view.hpp"

namespace backplane::core {

class Operator;

/// Values and a context for one `compute` of a plan at a time, patched for each.
struct OperatorFrame {
  std::vector<std::unique_ptr<RuntimeValue>> inputs;  ///< null where the pointer is the plan's own
  std::vector<std::unique_ptr<RuntimeValue>> outputs;
  std::vector<const bp_value*> input_pointers, output_pointers;
  ComputeContext ctx;
};

/// An operator made ready for shapes: what plugins see as bp_operator_plan.
///
/// Lifetime: holds its operator, unless that holds it.
/// Threads:  immutable, but for the frames, which are taken with one exchange each.
struct OperatorPlan : bp_operator_plan {
  std::shared_ptr<const Operator> held;  ///< ends last: its kernel made `prepared`
  const Operator* op = nullptr;
  std::shared_ptr<OperatorPlan> kept;  ///< itself, while a plugin owns it
  PrepareResult prepared;
  std::vector<RuntimeValuePtr> inputs;  ///< types and dims; null: left out
  std::vector<WeightPtr> constants;     ///< by input; null where it is not constant
  std::vector<RuntimeValuePtr> output_infos;
  std::vector<const bp_tensor*> output_tensors;
  std::vector<WeightPtr> packs;
  std::vector<const bp_tensor*> packed;
  std::vector<std::uint32_t> input_state;
  std::vector<std::int32_t> input_roles, output_roles;
  std::string kernel_name;
  int call_output = -1;  ///< an output that is known in `compute` alone: for `call` only

  /// Calls `compute` of the kernel on the caller's tensors. Throws what it returns, and InvalidArgument for a tensor
  /// that does not fit.
  void compute(const bp_kctx* outer, const bp_operator_args& args) const;
  /// The plan's input as `call` hands it on: constant, left out, or `given`.
  const bp_value* argument(std::size_t input, const bp_value* given) const;

 private:
  static constexpr std::size_t kFrameCount = 8;
  struct FrameSlot {
    std::atomic<bool> taken{false};
    std::unique_ptr<OperatorFrame> frame;
  };
  std::unique_ptr<OperatorFrame> make_frame() const;
  void patch(OperatorFrame& frame, const bp_operator_args& args) const;
  void compute_in(OperatorFrame& frame, const bp_kctx* outer, const bp_operator_args& args) const;

  mutable std::array<FrameSlot, kFrameCount> frames_;
};

/// An operator of types and attributes: a graph of one node, with the kernels of a device that take it.
///
/// Lifetime: borrows the session's devices, schemas and weights.
/// Threads:  all functions may run concurrently.
class Operator : public std::enable_shared_from_this<Operator> {
 public:
  /// Throws InvalidArgument for what no model may say, Unsupported with the reasons when no kernel takes it.
  Operator(const CreateContext& ctx, const bp_operator_desc& desc);

  /// Plans for tensors, with elements where the caller gave them. Throws what the kernels return.
  std::shared_ptr<OperatorPlan> prepare(bp_threads* threads, const bp_tensor* const* inputs,
                                        std::uint32_t count);
  /// Computes with values into new ones; null for an output that is left out.
  std::vector<RuntimeValuePtr> call(const bp_kctx* ctx, const bp_value* const* inputs,
                                    std::uint32_t count);

  /// "operator 'name' (Softmax)".
  std::string describe() const;
  Device& device() const { return devices_.at(device_index_); }
  std::size_t output_count() const { return wanted_.size(); }

 private:
  using Inputs = std::vector<RuntimeValuePtr>;  ///< null: left out, or constant

  void make_node(const bp_operator_desc& desc);
  void add_input(const bp_operator_desc& desc, std::uint32_t index, Node& node);
  void find_kernels();
  const KernelHandle* kernel_at(std::size_t candidate);
  Inputs described(const bp_tensor* const* tensors, std::uint32_t count) const;
  Inputs described(const bp_value* const* values, std::uint32_t count) const;
  void check_given(std::size_t input, bool given, const std::string& type) const;
  std::shared_ptr<OperatorPlan> plan_for(bp_threads* threads, const Inputs& inputs);
  std::shared_ptr<OperatorPlan> plan_with(const KernelHandle& kernel, bp_threads* threads,
                                          const Inputs& inputs) const;
  void take_constants(OperatorPlan& plan, const KernelHandle& kernel, bp_threads* threads) const;
  void describe_outputs(OperatorPlan& plan) const;
  std::string key_of(const Inputs& inputs) const;

  const DeviceSet& devices_;
  int device_index_;
  int depth_;
  bp_threads* threads_;
  std::uint64_t flags_;
  std::string name_;
  Graph graph_;
  NodeId node_;
  std::vector<Type> types_;  ///< by input; Unknown: left out
  std::vector<ConstantPtr> constants_;
  std::vector<bool> wanted_;
  std::unique_ptr<GraphView> view_;
  std::vector<RegisteredKernel> candidates_;
  std::mutex mutex_;  ///< of what follows: kernels are prepared one at a time
  std::vector<KernelHandle> kernels_;
  std::vector<std::string> refusals_;  ///< by candidate that refused to be created
  std::vector<std::pair<std::string, std::shared_ptr<OperatorPlan>>> recent_;  ///< of `call`
};

/// The table of bp.operators.
const bp_operators_api& operators_api();

}  // namespace backplane::core
