#include "core/plan/host_evaluator.hpp"

#include <algorithm>

#include "core/plan/compute_context.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// Packs that a kernel asked for, made on the spot.
struct LocalPacks {
  std::vector<RuntimeValuePtr> values;
  std::vector<const bp_tensor*> tensors;

  LocalPacks(const std::vector<PackWish>& wishes, const std::vector<const bp_value*>& inputs,
             bp_threads* threads) {
    for (const PackWish& wish : wishes) {
      std::vector<const bp_tensor*> sources;
      for (const std::uint32_t input : wish.inputs) sources.push_back(inputs[input]->tensor);
      auto target = std::make_shared<RuntimeValue>();
      target->set_owned_tensor(DataType::UInt8, {static_cast<std::int64_t>(wish.bytes)});
      bp_pack_ctx ctx{};
      ctx.struct_size = sizeof(ctx);
      ctx.sources = sources.data();
      ctx.source_count = sources.size();
      ctx.target = target->tensor;
      ctx.threads = threads;
      check_status(wish.pack(wish.self, &ctx), "packing");
      tensors.push_back(target->tensor);
      values.push_back(std::move(target));
    }
  }
};

}  // namespace

std::optional<std::vector<RuntimeValuePtr>> make_host_outputs(const PrepareResult& prepared,
                                                              const std::vector<bool>& wanted,
                                                              std::uint64_t max_bytes) {
  std::vector<RuntimeValuePtr> outputs;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const OutputPlan& plan = prepared.outputs[i];
    auto value = std::make_shared<RuntimeValue>();
    if (!wanted[i]) {
      value->set_absent();
    } else if (plan.kind == OutputPlan::Kind::Object) {
      value->set_type(Type::parse(plan.object_type));
    } else if (plan.kind == OutputPlan::Kind::UnknownSize) {
      value->set_tensor(plan.type, {});
    } else {
      if (plan.bytes > max_bytes || plan.format != 0) return std::nullopt;
      value->set_owned_tensor(plan.type, plan.dims);
    }
    outputs.push_back(std::move(value));
  }
  return outputs;
}

void compute_on_host(const PrepareResult& prepared, Device& device, bp_threads* threads,
                     const StopSignal* stop, const std::vector<const bp_value*>& inputs,
                     const std::vector<RuntimeValuePtr>& outputs,
                     const std::vector<const bp_tensor*>& packed) {
  RuntimeValue workspace;
  workspace.set_owned_tensor(DataType::UInt8,
                             {static_cast<std::int64_t>(prepared.workspace_bytes)});
  std::vector<const bp_value*> output_pointers;
  for (const RuntimeValuePtr& output : outputs) output_pointers.push_back(output.get());
  const std::vector<std::uint32_t> states(inputs.size(), 0);
  ComputeContext ctx = make_compute_context(&device, threads);
  ctx.stop = stop;
  ctx.inputs = inputs.data();
  ctx.input_count = static_cast<std::uint32_t>(inputs.size());
  ctx.outputs = output_pointers.data();
  ctx.output_count = static_cast<std::uint32_t>(output_pointers.size());
  ctx.packed = packed.data();
  ctx.packed_count = static_cast<std::uint32_t>(packed.size());
  ctx.workspace = workspace.tensor;
  ctx.input_state = states.data();
  UnknownOutputs unknown(prepared);
  ctx.unknown = unknown.empty() ? nullptr : &unknown;
  bp_status* status = call_for_status(
      [&] { return prepared.prepared.def().compute(prepared.prepared.raw(), &ctx); });
  if (status == nullptr) status = unknown.end(ctx);
  if (status != nullptr) throw take_error(status);
}

HostEvaluator::HostEvaluator(const DeviceSet& devices, const SchemaRegistry& schemas,
                             bp_threads* threads)
    : devices_(devices), schemas_(schemas), threads_(threads) {}

std::unique_ptr<HostKernel> HostEvaluator::create(const Graph& graph, const Node& node) {
  if (devices_.host_evaluator < 0) return nullptr;
  const SessionDevice& device = devices_.entry(devices_.host_evaluator);
  auto made = std::make_unique<HostKernel>();
  made->view = std::make_unique<GraphView>(graph, std::vector<NodeId>{node.id});
  const bp_node* view_node = made->view->node(node.id);
  std::vector<Reason> reasons;
  for (const RegisteredKernel& kernel :
       matching_kernels(device, schemas_, graph, node, view_node, reasons)) {
    if ((kernel.def->flags & BP_KERNEL_NOT_DETERMINISTIC) != 0) return nullptr;
    try {
      made->kernel = create_kernel(devices_, devices_.host_evaluator, kernel, view_node, threads_,
                                   BP_CREATE_DETERMINISTIC);
      return made;
    } catch (const Error& error) {
      if (error.code() != Code::Unsupported) throw;
    }
  }
  return nullptr;
}

std::optional<std::vector<RuntimeValuePtr>> HostEvaluator::evaluate(
    const HostKernel& host, const Node& node, const std::vector<const bp_value*>& inputs,
    std::uint64_t max_bytes) {
  PrepareRequest request;
  request.kernel = &host.kernel;
  request.inputs = inputs;
  request.threads = threads_;
  request.flags = BP_CREATE_DETERMINISTIC;
  for (const bp_value* input : inputs)
    request.constant_inputs.push_back(input->tensor->host_ptr != nullptr);
  for (const ValueId output : node.outputs) request.wanted_outputs.push_back(output != kNone);
  PrepareResult prepared;
  try {
    prepared = prepare_kernel(request);
  } catch (const Error& error) {
    if (error.code() == Code::Unsupported) return std::nullopt;
    throw;
  }
  auto outputs = make_host_outputs(prepared, request.wanted_outputs, max_bytes);
  if (!outputs) return std::nullopt;
  const LocalPacks packs(prepared.packs, inputs, threads_);
  compute_on_host(prepared, devices_.at(devices_.host_evaluator), threads_, nullptr, inputs,
                  *outputs, packs.tensors);
  return outputs;
}

std::optional<std::vector<ConstantPtr>> HostEvaluator::fold(const Graph& graph, const Node& node,
                                                            std::uint64_t max_bytes) {
  const std::unique_ptr<HostKernel> kernel = create(graph, node);
  if (kernel == nullptr) return std::nullopt;
  std::vector<RuntimeValuePtr> held;
  std::vector<const bp_value*> inputs;
  for (const ValueId id : node.inputs) {
    auto value = std::make_shared<RuntimeValue>();
    if (id == kNone) {
      value->set_absent();
    } else if (graph.value(id).constant != nullptr) {
      value->set_constant(*graph.value(id).constant);
    } else {
      return std::nullopt;
    }
    inputs.push_back(value.get());
    held.push_back(std::move(value));
  }
  const auto outputs = evaluate(*kernel, node, inputs, max_bytes);
  if (!outputs) return std::nullopt;
  std::vector<ConstantPtr> constants;
  for (const RuntimeValuePtr& output : *outputs) {
    if (output->kind != BP_VALUE_ABSENT && !output->is_tensor()) return std::nullopt;
    constants.push_back(output->is_tensor() ? output->to_constant() : nullptr);
  }
  return constants;
}

}  // namespace backplane::core
