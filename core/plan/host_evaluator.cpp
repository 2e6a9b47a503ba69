#include "core/plan/host_evaluator.hpp"

#include <cstring>

#include "core/plan/compute_context.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// What `prepare` may go by: types, dims, and elements that the kernel's role asks for. False where that is not compared.
bool describe(const KernelHandle& kernel, const std::vector<const bp_value*>& inputs,
              std::vector<std::int64_t>& signature) {
  constexpr std::uint64_t kMostBytes = 512;
  signature.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    signature.push_back(inputs[i]->kind);
    if (inputs[i]->kind == BP_VALUE_ABSENT) continue;
    if (inputs[i]->kind != BP_VALUE_TENSOR) return false;
    const bp_tensor& tensor = *inputs[i]->tensor;
    signature.push_back(tensor.dtype);
    signature.push_back(tensor.rank);
    signature.insert(signature.end(), tensor.dims, tensor.dims + tensor.rank);
    if (kernel.input_role(i) != BP_INPUT_HOST_VALUE) continue;
    if (tensor.dtype == BP_STRING || tensor.bytes > kMostBytes) return false;
    const auto words = static_cast<std::size_t>((tensor.bytes + 7) / 8);
    signature.resize(signature.size() + words);
    if (words > 0) std::memcpy(&signature[signature.size() - words], tensor.host_ptr, tensor.bytes);
  }
  return true;
}

/// Inputs as `prepare` is shown them; `made` owns those without their elements.
std::vector<const bp_value*> shown_to_prepare(const KernelHandle& kernel,
                                              const std::vector<const bp_value*>& inputs,
                                              std::vector<RuntimeValuePtr>& made) {
  std::vector<const bp_value*> shown = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->kind != BP_VALUE_TENSOR || inputs[i]->tensor->host_ptr == nullptr ||
        kernel.input_role(i) == BP_INPUT_HOST_VALUE)
      continue;
    const bp_tensor& tensor = *inputs[i]->tensor;
    auto value = std::make_shared<RuntimeValue>();
    value->set_tensor(static_cast<DataType>(tensor.dtype),
                      {tensor.dims, tensor.dims + tensor.rank});
    shown[i] = value.get();
    made.push_back(std::move(value));
  }
  return shown;
}

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
  if (prepared.workspace_bytes > 0)
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

/// False where the kernel finds the shapes unsupported.
bool HostEvaluator::prepare(HostKernel& host, const Node& node,
                            const std::vector<const bp_value*>& inputs) {
  const bool is_compared = describe(host.kernel, inputs, signature_);
  if (is_compared && !host.prepared_for.empty() && host.prepared_for == signature_) return true;
  host.prepared_for.clear();
  std::vector<RuntimeValuePtr> made;
  PrepareRequest request;
  request.kernel = &host.kernel;
  request.inputs = shown_to_prepare(host.kernel, inputs, made);
  request.threads = threads_;
  request.flags = BP_CREATE_DETERMINISTIC;
  request.packs = false;
  request.constant_inputs.resize(inputs.size());
  request.wanted_outputs = wanted_outputs(node);
  try {
    host.prepared = prepare_kernel(request);
  } catch (const Error& error) {
    if (error.code() == Code::Unsupported) return false;
    throw;
  }
  if (is_compared) host.prepared_for = signature_;
  return true;
}

std::optional<std::vector<RuntimeValuePtr>> HostEvaluator::evaluate(
    HostKernel& host, const Node& node, const std::vector<const bp_value*>& inputs,
    std::uint64_t max_bytes) {
  if (!prepare(host, node, inputs)) return std::nullopt;
  auto outputs = make_host_outputs(host.prepared, wanted_outputs(node), max_bytes);
  if (!outputs) return std::nullopt;
  compute_on_host(host.prepared, devices_.at(devices_.host_evaluator), threads_, nullptr, inputs,
                  *outputs, {});
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
