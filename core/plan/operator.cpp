#include "core/plan/operator.hpp"

#include <algorithm>
#include <span>

#include "core/base/quote.hpp"
#include "core/plan/host_evaluator.hpp"
#include "core/plan/placement.hpp"
#include "core/plugin_host/limits.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// An operator whose kernel makes an operator, and so on: deeper than this it makes itself.
constexpr int kMaxDepth = 16;
/// How many shapes `call` remembers.
constexpr std::size_t kRecentPlans = 4;

constexpr std::string_view kPrivateDomain = "backplane.";

/// The version of the operator's schema that a version of its domain selects; an error when there is none.
int since_version(const SchemaRegistry& schemas, const Node& node, int opset) {
  if (node.domain.starts_with(kPrivateDomain)) return 1;
  const std::span<const SchemaInfo> versions = schemas.versions(node.domain, node.op_type);
  if (versions.empty()) {
    std::string near;
    for (const std::string& name : schemas.similar(node.domain, node.op_type))
      near += (near.empty() ? "; near names: " : ", ") + name;
    invalid("no schema defines it", near);
  }
  if (opset == 0) return versions.back().since_version;
  const std::optional<SchemaInfo> schema = schemas.find(node.domain, node.op_type, opset);
  if (!schema) {
    invalid("version ", opset, " of its domain does not have it; it came with version ",
            versions.front().since_version);
  }
  return schema->since_version;
}

ConstantPtr borrow_constant(const bp_value* value, const std::string& what) {
  check_struct(value, BP_SIZE_V1(bp_value, tensor), what);
  const auto& given = static_cast<const RuntimeValue&>(*value);
  if (!given.is_tensor()) invalid(what, " is no tensor");
  const bp_tensor& tensor = given.description;
  if (given.element() == DataType::String || tensor.strides != nullptr) return given.to_constant();
  if (tensor.bytes > 0 && tensor.host_ptr == nullptr) invalid(what, " has no host memory");
  const std::vector<std::int64_t> dims(tensor.dims, tensor.dims + tensor.rank);
  const std::span bytes(static_cast<const std::byte*>(tensor.host_ptr),
                        static_cast<std::size_t>(tensor.bytes));
  return std::make_shared<const Constant>(given.element(), dims, bytes, nullptr);
}

/// A tensor that a plugin made, as a value without elements, or with those that it points at.
RuntimeValuePtr describe_tensor(const bp_tensor* tensor, const std::string& what) {
  check_struct(tensor, BP_SIZE_V1(bp_tensor, format), what);
  const auto type = static_cast<DataType>(tensor->dtype);
  if (element_bits(type) == 0)
    invalid(what, " has element type ", tensor->dtype, "; strings go by `call`");
  check_dims(tensor->rank, tensor->dims, what);
  if (tensor->format != BP_FORMAT_PLAIN) invalid(what, " is in a private format");
  auto value = std::make_shared<RuntimeValue>();
  value->set_tensor(type, std::vector<std::int64_t>(tensor->dims, tensor->dims + tensor->rank));
  if (tensor->strides == nullptr) value->description.host_ptr = tensor->host_ptr;
  return value;
}

/// The same without elements.
RuntimeValuePtr without_elements(const RuntimeValue& value) {
  auto bare = std::make_shared<RuntimeValue>();
  if (value.is_tensor()) {
    bare->set_tensor(value.element(), value.dims);
  } else {
    bare->set_type(value.type);
  }
  return bare;
}

bool has_elements(const RuntimeValue& value) {
  return value.description.host_ptr != nullptr || value.description.bytes == 0;
}

void add_reason(std::string& reasons, const std::string& reason) {
  reasons += (reasons.empty() ? "" : "; ") + reason;
}

}  // namespace

Operator::Operator(const CreateContext& ctx, const bp_operator_desc& desc)
    : devices_(*ctx.devices),
      device_index_(desc.device == BP_OPERATOR_OWN_DEVICE ? ctx.device_index
                                                          : ctx.devices->host_evaluator),
      depth_(ctx.depth + 1),
      threads_(ctx.threads),
      flags_(ctx.flags) {
  if (desc.device != BP_OPERATOR_OWN_DEVICE && desc.device != BP_OPERATOR_HOST_DEVICE)
    invalid("an operator's device is ", desc.device, ", which this host does not know");
  if (!is_plain_text(desc.op_type) || desc.domain == nullptr)
    invalid("an operator has no op_type, or its domain is NULL");
  name_ = plugin_text(is_plain_text(desc.name) ? desc.name : desc.op_type);
  make_node(desc);
  try {
    if (devices_.schemas == nullptr || devices_.weights == nullptr || device_index_ < 0)
      throw Error(Code::Unsupported, "this session has no device for it");
    if (depth_ > kMaxDepth) {
      invalid("kernels make operators of operators ", depth_,
              " deep; does the kernel of one make the operator itself?");
    }
    graph_.node(node_).since_version =
        since_version(*devices_.schemas, graph_.node(node_), desc.version);
    view_ = std::make_unique<GraphView>(graph_, std::vector<NodeId>{node_});
    find_kernels();
  } catch (const Error& error) {
    throw error.within(describe());
  }
}

std::string Operator::describe() const {
  const Node& node = graph_.node(node_);
  return text("operator ", core::quoted(name_), " (",
              node.domain.empty() ? "" : node.domain + "::", node.op_type, ")");
}

void Operator::make_node(const bp_operator_desc& desc) {
  const std::string what = "operator " + core::quoted(name_);
  check_array(desc.attributes, desc.attribute_count, what + ": its attributes");
  check_array(desc.input_types, desc.input_count, what + ": its input types");
  if (desc.output_count < 1 || desc.output_count > 64)
    invalid(what, " has ", desc.output_count, " outputs; there may be 1 to 64");
  Node node;
  node.name = name_;
  node.op_type = plugin_text(desc.op_type);
  node.domain = plugin_text(desc.domain);
  if (node.domain == "ai.onnx") node.domain.clear();
  try {
    for (std::uint32_t i = 0; i < desc.attribute_count; ++i) {
      if (desc.attributes[i] == nullptr) invalid("attribute ", i, " is NULL");
      node.attributes.insert(read_attribute(*desc.attributes[i]));
    }
    for (std::uint32_t i = 0; i < desc.input_count; ++i) add_input(desc, i, node);
  } catch (const Error& error) {
    throw error.within(what);
  }
  for (std::uint32_t i = 0; i < desc.output_count; ++i) {
    wanted_.push_back((desc.omitted_outputs >> i & 1u) == 0);
    const ValueId output = wanted_.back() ? graph_.new_value("output") : kNone;
    if (output != kNone) graph_.add_output(output);
    node.outputs.push_back(output);
  }
  node_ = graph_.add_node(std::move(node));
}

void Operator::add_input(const bp_operator_desc& desc, std::uint32_t index, Node& node) {
  const std::string type = plugin_text(desc.input_types[index]);
  types_.push_back(type.empty() ? Type() : Type::parse(type));
  constants_.emplace_back();
  if (type.empty()) {
    node.inputs.push_back(kNone);
    return;
  }
  const ValueId id = graph_.new_value("input");
  node.inputs.push_back(id);
  Value& value = graph_.value(id);
  value.type = types_.back();
  const bp_value* constant = desc.constants != nullptr ? desc.constants[index] : nullptr;
  if (constant == nullptr) return graph_.add_input(id);
  constants_.back() = borrow_constant(constant, text("the constant of input ", index));
  if (!value.type.is_tensor() || value.type.element != constants_.back()->type()) {
    invalid("input ", index, " is ", type, ", but its constant is tensor(",
            core::name(constants_.back()->type()), ")");
  }
  value.type = Type::tensor(constants_.back()->type(), constants_.back()->dims());
  graph_.add_initializer(id, constants_.back());
}

void Operator::find_kernels() {
  const SessionDevice& device = devices_.entry(device_index_);
  SchemaCache schemas(*devices_.schemas);
  std::vector<Reason> reasons;
  candidates_ =
      matching_kernels(device, schemas, graph_, graph_.node(node_), view_->node(node_), reasons);
  kernels_.resize(candidates_.size());
  refusals_.resize(candidates_.size());
  std::string refusals;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (kernel_at(i) != nullptr) return;
    add_reason(refusals, refusals_[i]);
  }
  if (candidates_.empty()) refusals = core::describe(reasons);
  throw Error(Code::Unsupported, "no kernel takes it: " + refusals);
}

/// The candidate's kernel, created when first asked for; null when it refuses.
const KernelHandle* Operator::kernel_at(std::size_t candidate) {
  KernelHandle& kernel = kernels_[candidate];
  if (kernel) return &kernel;
  if (!refusals_[candidate].empty()) return nullptr;
  try {
    kernel = create_kernel(devices_, device_index_, candidates_[candidate], view_->node(node_),
                           threads_, flags_, depth_);
    return &kernel;
  } catch (const Error& error) {
    if (error.code() != Code::Unsupported) throw;
    refusals_[candidate] = error.message();
    return nullptr;
  }
}

/// Every input that is not left out is given or constant.
void Operator::check_given(std::size_t input, bool given, const std::string& type) const {
  const bool needed = types_[input].kind != Type::Kind::Unknown && constants_[input] == nullptr;
  if (needed && !given) invalid(describe(), ": input ", input, " is missing");
  if (needed && type != types_[input].to_string()) {
    invalid(describe(), ": input ", input, " is ", type, ", but it was made for ",
            types_[input].to_string());
  }
}

Operator::Inputs Operator::described(const bp_tensor* const* tensors, std::uint32_t count) const {
  if (count != types_.size() || (count > 0 && tensors == nullptr))
    invalid(describe(), " is given ", count, " inputs, but was made for ", types_.size());
  Inputs inputs(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (types_[i].kind == Type::Kind::Unknown || constants_[i] != nullptr) continue;
    const bool given = tensors[i] != nullptr && tensors[i]->dtype != BP_NONE;
    if (given) inputs[i] = describe_tensor(tensors[i], text(describe(), ": input ", i));
    check_given(i, given, given ? Type::tensor(inputs[i]->element()).to_string() : "");
  }
  return inputs;
}

Operator::Inputs Operator::described(const bp_value* const* values, std::uint32_t count) const {
  if (count != types_.size() || (count > 0 && values == nullptr))
    invalid(describe(), " is given ", count, " inputs, but was made for ", types_.size());
  Inputs inputs(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (types_[i].kind == Type::Kind::Unknown || constants_[i] != nullptr) continue;
    const bool given = values[i] != nullptr && values[i]->kind != BP_VALUE_ABSENT;
    if (!given) check_given(i, false, "");
    const auto& value = static_cast<const RuntimeValue&>(*values[i]);
    check_given(
        i, true,
        value.is_tensor() ? Type::tensor(value.element()).to_string() : value.type.to_string());
    const bp_tensor& tensor = value.description;
    if (value.is_tensor() && value.element() != DataType::String &&
        (!has_elements(value) || tensor.strides != nullptr || tensor.format != BP_FORMAT_PLAIN))
      invalid(describe(), ": input ", i, " is not dense in host memory");
    inputs[i] = without_elements(value);
    if (value.is_tensor()) {
      inputs[i]->description.host_ptr = tensor.host_ptr;
      inputs[i]->strings = value.strings;
    }
  }
  return inputs;
}

std::shared_ptr<OperatorPlan> Operator::plan_for(bp_threads* threads, const Inputs& inputs) {
  const std::lock_guard lock(mutex_);
  std::string refusals;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    try {
      if (const KernelHandle* kernel = kernel_at(i)) return plan_with(*kernel, threads, inputs);
      add_reason(refusals, refusals_[i]);
    } catch (const Error& error) {
      if (error.code() != Code::Unsupported) throw error.within(describe());
      add_reason(refusals, error.message());
    }
  }
  throw Error(Code::Unsupported, text(describe(), ": no kernel takes these shapes: ", refusals));
}

std::shared_ptr<OperatorPlan> Operator::plan_with(const KernelHandle& kernel, bp_threads* threads,
                                                  const Inputs& inputs) const {
  auto plan = std::make_shared<OperatorPlan>();
  plan->op = this;
  plan->inputs.resize(inputs.size());
  plan->input_state.resize(inputs.size());
  static const RuntimeValue kAbsent;
  std::vector<RuntimeValuePtr> shown(inputs.size());  // to `prepare`
  PrepareRequest request;
  request.kernel = &kernel;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    plan->input_roles.push_back(kernel.input_role(i));
    if (constants_[i] != nullptr) {
      shown[i] = std::make_shared<RuntimeValue>();
      if (kernel.is_weight(i)) {
        shown[i]->set_tensor(constants_[i]->type(), constants_[i]->dims());
      } else {
        shown[i]->set_constant(*constants_[i]);
      }
    } else if (inputs[i] != nullptr) {
      plan->inputs[i] = without_elements(*inputs[i]);
      const bool wants_value = plan->input_roles[i] == BP_INPUT_HOST_VALUE;
      if (wants_value && !has_elements(*inputs[i])) {
        invalid("input ", i, " decides the shapes: give its elements in `prepare`");
      }
      shown[i] = wants_value ? inputs[i] : plan->inputs[i];
    }
    request.inputs.push_back(shown[i] != nullptr ? shown[i].get() : &kAbsent);
    request.constant_inputs.push_back(constants_[i] != nullptr);
  }
  request.wanted_outputs = wanted_;
  request.threads = threads;
  request.flags = flags_;
  plan->prepared = prepare_kernel(request);
  describe_outputs(*plan);
  for (std::size_t i = 0; i < wanted_.size(); ++i)
    plan->output_roles.push_back(kernel.output_role(i));
  take_constants(*plan, kernel, threads);
  plan->kernel_name = kernel.def().name;
  if (!plan->prepared.variant.empty()) plan->kernel_name += " " + plan->prepared.variant;
  plan->struct_size = sizeof(bp_operator_plan);
  plan->kernel = plan->kernel_name.c_str();
  plan->workspace_bytes = plan->prepared.workspace_bytes;
  plan->workspace_alignment = plan->prepared.workspace_alignment;
  return plan;
}

void Operator::describe_outputs(OperatorPlan& plan) const {
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const OutputPlan& output = plan.prepared.outputs[i];
    auto info = std::make_shared<RuntimeValue>();
    if (wanted_[i] && output.kind == OutputPlan::Kind::Tensor) {
      if (output.format != BP_FORMAT_PLAIN)
        throw Error(Code::Unsupported, text("output ", i, " is in a private format"));
      info->set_tensor(output.type, output.dims);
      if (output.type == DataType::String) plan.call_output = static_cast<int>(i);
    } else if (wanted_[i]) {
      plan.call_output = static_cast<int>(i);
    }
    plan.output_tensors.push_back(info->tensor);
    plan.output_infos.push_back(std::move(info));
  }
  plan.outputs = plan.output_tensors.data();
  plan.output_count = static_cast<std::uint32_t>(plan.output_tensors.size());
}

/// Packs, and the memory of constants that `compute` reads.
void Operator::take_constants(OperatorPlan& plan, const KernelHandle& kernel,
                              bp_threads* threads) const {
  const DevicePtr& device = kernel.device();
  for (const PackWish& wish : plan.prepared.packs) {
    std::vector<ConstantRef> sources;
    for (const std::uint32_t input : wish.inputs) sources.push_back({constants_[input], nullptr});
    plan.packs.push_back(devices_.weights->packed(device, wish, sources, threads));
    plan.packed.push_back(plan.packs.back()->value.tensor);
  }
  plan.constants.resize(constants_.size());
  for (std::size_t i = 0; i < constants_.size(); ++i) {
    if (constants_[i] == nullptr) continue;
    const bool on_device = plan.input_roles[i] == BP_INPUT_DATA && !device->on_host_memory();
    if (on_device && !plan.prepared.inputs[i].is_ignored) {
      plan.constants[i] = devices_.weights->plain(device, {constants_[i], nullptr}, threads);
      continue;
    }
    auto weight = std::make_shared<Weight>();
    if (on_device) {
      weight->value.set_tensor(constants_[i]->type(), constants_[i]->dims());
    } else {
      weight->value.set_constant(*constants_[i]);
    }
    weight->source = constants_[i];
    plan.constants[i] = std::move(weight);
  }
}

std::shared_ptr<OperatorPlan> Operator::prepare(bp_threads* threads, const bp_tensor* const* inputs,
                                                std::uint32_t count) {
  std::shared_ptr<OperatorPlan> plan = plan_for(threads, described(inputs, count));
  if (plan->call_output >= 0) {
    throw Error(Code::Unsupported,
                text(describe(), ": output ", plan->call_output,
                     " is known in `compute` alone, or is no tensor of numbers: use `call`"));
  }
  plan->held = shared_from_this();
  return plan;
}

/// Types and dims, and the elements where a kernel may decide shapes by them.
std::string Operator::key_of(const Inputs& inputs) const {
  std::string key;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    key += ';';
    if (inputs[i] == nullptr || !inputs[i]->is_tensor()) continue;
    const RuntimeValue& value = *inputs[i];
    for (const std::int64_t dim : value.dims) key += text(dim, ',');
    const bool decides =
        std::any_of(candidates_.begin(), candidates_.end(), [&](const RegisteredKernel& kernel) {
          return KernelHandle::role(kernel.def->input_roles, kernel.def->input_role_count, i) ==
                 BP_INPUT_HOST_VALUE;
        });
    if (!decides) continue;
    if (value.description.host_ptr != nullptr) {
      key.append(static_cast<const char*>(value.description.host_ptr),
                 static_cast<std::size_t>(value.description.bytes));
    }
    for (const std::string& string : value.strings) key += text(string.size(), ':', string);
  }
  return key;
}

std::vector<RuntimeValuePtr> Operator::call(const bp_kctx* ctx, const bp_value* const* inputs,
                                            std::uint32_t count) {
  if (!device().on_host_memory()) {
    throw Error(Code::Unsupported, text(describe(), ": `call` is for devices on host memory, and ",
                                        device().label(), " is not one"));
  }
  const Inputs infos = described(inputs, count);
  bp_threads* const threads = ctx != nullptr ? ctx->threads : nullptr;
  const std::string key = key_of(infos);
  std::shared_ptr<OperatorPlan> plan;
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(recent_.begin(), recent_.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (known != recent_.end()) {
      plan = known->second;
      std::rotate(recent_.begin(), known, known + 1);
    }
  }
  if (plan == nullptr) {
    plan = plan_for(threads, infos);
    const std::lock_guard lock(mutex_);
    if (recent_.size() == kRecentPlans) recent_.pop_back();
    recent_.insert(recent_.begin(), {key, plan});
  }
  auto outputs = make_host_outputs(plan->prepared, wanted_, UINT64_MAX);
  std::vector<const bp_value*> arguments;
  for (std::uint32_t i = 0; i < count; ++i) arguments.push_back(plan->argument(i, inputs[i]));
  const StopSignal* stop = ctx != nullptr ? static_cast<const ComputeContext*>(ctx)->stop : nullptr;
  try {
    const std::unique_lock<std::mutex> turn = plan->prepared.prepared.take_turn();
    compute_on_host(plan->prepared, device(), threads, stop, arguments, *outputs, plan->packed);
  } catch (const Error& error) {
    throw error.within(describe());
  }
  for (std::size_t i = 0; i < outputs->size(); ++i) {
    if (!wanted_[i]) (*outputs)[i] = nullptr;
    if (wanted_[i]) (*outputs)[i]->is_element = true;  // nobody else has its memory
  }
  return std::move(*outputs);
}

}  // namespace backplane::core
