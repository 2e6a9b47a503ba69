// Computing an operator's plan on tensors of the caller, and the table that plugins see.
#include <algorithm>

#include "core/plan/operator.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/status.hpp"

/// What plugins hold.
struct bp_operator {
  std::shared_ptr<backplane::core::Operator> held;
};

namespace backplane::core {
namespace {

/// What a tensor of `compute` must be.
struct Expected {
  const char* word;  ///< "input", "output"
  std::size_t index;
  const bp_tensor& info;
  bool on_host;
  bool may_be_strided;
  bool needs_memory;
};

std::string shape_words(const bp_tensor& tensor) {
  const bool has_dims = tensor.dims != nullptr && tensor.rank > 0;
  const std::vector<std::int64_t> dims(tensor.dims, tensor.dims + (has_dims ? tensor.rank : 0));
  return text("tensor(", name(static_cast<DataType>(tensor.dtype)), ") ", to_string(dims));
}

/// Sets a value's memory to that of a tensor which fits.
void point(RuntimeValue& value, const bp_tensor* tensor, const Expected& expected) {
  if (tensor == nullptr || tensor->struct_size < BP_SIZE_V1(bp_tensor, format))
    invalid(expected.word, " ", expected.index, " is missing");
  const bp_tensor& info = expected.info;
  const bool fits = tensor->dtype == info.dtype && tensor->rank == info.rank &&
                    (info.rank == 0 || tensor->dims != nullptr) && tensor->bytes == info.bytes &&
                    tensor->format == BP_FORMAT_PLAIN &&
                    std::equal(info.dims, info.dims + info.rank, tensor->dims);
  if (!fits) {
    invalid(expected.word, " ", expected.index, " is ", shape_words(*tensor),
            ", but the plan is for ", shape_words(info));
  }
  if (tensor->strides != nullptr && !expected.may_be_strided)
    invalid(expected.word, " ", expected.index, " is strided, which the kernel does not take");
  const bool has_memory =
      expected.on_host ? tensor->host_ptr != nullptr : tensor->buffer != nullptr;
  if (expected.needs_memory && info.bytes > 0 && !has_memory) {
    invalid(expected.word, " ", expected.index, " has no ", expected.on_host ? "host" : "device",
            " memory");
  }
  value.description.buffer = tensor->buffer;
  value.description.offset = tensor->offset;
  value.description.host_ptr = tensor->host_ptr;
  value.description.strides = tensor->strides;
  value.description.memory = tensor->memory;
}

const bp_tensor* no_workspace() {
  static const bp_tensor none = [] {
    bp_tensor tensor{};
    tensor.struct_size = sizeof(tensor);
    tensor.dtype = BP_UINT8;
    return tensor;
  }();
  return &none;
}

const RuntimeValue* absent() {
  static const RuntimeValue value;
  return &value;
}

}  // namespace

const bp_value* OperatorPlan::argument(std::size_t input, const bp_value* given) const {
  if (constants[input] != nullptr) return &constants[input]->value;
  return inputs[input] != nullptr ? given : absent();
}

std::unique_ptr<OperatorFrame> OperatorPlan::make_frame() const {
  auto frame = std::make_unique<OperatorFrame>();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::unique_ptr<RuntimeValue> value;
    if (inputs[i] != nullptr && constants[i] == nullptr) {
      value = std::make_unique<RuntimeValue>();
      value->set_tensor(inputs[i]->element(), inputs[i]->dims);
    }
    frame->input_pointers.push_back(argument(i, value.get()));
    frame->inputs.push_back(std::move(value));
  }
  for (const RuntimeValuePtr& info : output_infos) {
    auto value = std::make_unique<RuntimeValue>();
    if (info->is_tensor()) value->set_tensor(info->element(), info->dims);
    frame->output_pointers.push_back(value.get());
    frame->outputs.push_back(std::move(value));
  }
  ComputeContext& ctx = frame->ctx;
  ctx = make_compute_context(&op->device(), nullptr);
  ctx.inputs = frame->input_pointers.data();
  ctx.input_count = static_cast<std::uint32_t>(frame->input_pointers.size());
  ctx.outputs = frame->output_pointers.data();
  ctx.output_count = static_cast<std::uint32_t>(frame->output_pointers.size());
  ctx.packed = packed.data();
  ctx.packed_count = static_cast<std::uint32_t>(packed.size());
  ctx.input_state = input_state.data();
  return frame;
}

void OperatorPlan::patch(OperatorFrame& frame, const bp_operator_args& args) const {
  if (args.input_count != inputs.size() || args.output_count != output_infos.size()) {
    invalid("it is given ", args.input_count, " inputs and ", args.output_count,
            " outputs, but was made for ", inputs.size(), " and ", output_infos.size());
  }
  if ((args.inputs == nullptr && !inputs.empty()) || args.outputs == nullptr)
    invalid("its inputs or outputs are NULL");
  const bool on_host = op->device().on_host_memory();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (frame.inputs[i] == nullptr) continue;
    const std::int32_t role = input_roles[i];
    point(*frame.inputs[i], args.inputs[i],
          {"input", i, *inputs[i]->tensor, on_host || role != BP_INPUT_DATA,
           prepared.inputs[i].may_be_strided, role != BP_INPUT_SHAPE_ONLY});
  }
  for (std::size_t i = 0; i < output_infos.size(); ++i) {
    if (!output_infos[i]->is_tensor()) continue;
    point(*frame.outputs[i], args.outputs[i],
          {"output", i, *output_infos[i]->tensor, on_host || output_roles[i] == BP_OUTPUT_HOST,
           prepared.outputs[i].may_be_strided, true});
  }
  const bool has_workspace = args.workspace != nullptr && args.workspace->bytes >= workspace_bytes;
  if (workspace_bytes > 0 && !has_workspace)
    invalid("its workspace of ", workspace_bytes, " bytes is missing or too small");
  frame.ctx.workspace = has_workspace ? args.workspace : no_workspace();
}

void OperatorPlan::compute_in(OperatorFrame& frame, const bp_kctx* outer,
                              const bp_operator_args& args) const {
  patch(frame, args);
  const auto& context = static_cast<const ComputeContext&>(*outer);
  frame.ctx.threads = args.threads;
  frame.ctx.stop = context.stop;
  frame.ctx.stream = context.device == &op->device() ? outer->stream : nullptr;
  const std::unique_lock<std::mutex> turn = prepared.prepared.take_turn();
  if (bp_status* status = prepared.prepared.def().compute(prepared.prepared.raw(), &frame.ctx))
    throw take_error(status);
}

void OperatorPlan::compute(const bp_kctx* outer, const bp_operator_args& args) const {
  FrameSlot* own = nullptr;
  for (FrameSlot& slot : frames_) {
    if (slot.taken.exchange(true, std::memory_order_acquire)) continue;
    own = &slot;
    break;
  }
  struct Release {
    FrameSlot* slot;
    ~Release() {
      if (slot != nullptr) slot->taken.store(false, std::memory_order_release);
    }
  } const release{own};
  try {
    if (own == nullptr) return compute_in(*make_frame(), outer, args);  // more callers than frames
    if (own->frame == nullptr) own->frame = make_frame();
    compute_in(*own->frame, outer, args);
  } catch (const Error& error) {
    throw error.within(op->describe());
  }
}

namespace {

bp_status* create(const bp_create_ctx* ctx, const bp_operator_desc* desc, bp_operator** out) {
  return status_of([&] {
    if (ctx == nullptr || out == nullptr) invalid("create of an operator: an argument is NULL");
    check_struct(desc, BP_SIZE_V1(bp_operator_desc, reserved0), "an operator's description");
    const auto& context = static_cast<const CreateContext&>(*ctx);
    *out = new bp_operator{std::make_shared<Operator>(context, *desc)};
  });
}

bp_status* prepare(bp_operator* op, bp_threads* threads, const bp_tensor* const* inputs,
                   std::uint32_t input_count, const bp_operator_plan** out) {
  return status_of([&] {
    if (op == nullptr || out == nullptr) invalid("prepare of an operator: an argument is NULL");
    // Plans are handed out one owner each; the vector of `call` shares its own.
    const std::shared_ptr<OperatorPlan> plan = op->held->prepare(threads, inputs, input_count);
    plan->kept = plan;
    *out = plan.get();
  });
}

void release(const bp_operator_plan* plan) {
  if (plan == nullptr) return;
  // Made by prepare() as what it is; const is what plugins see.
  auto& made = const_cast<OperatorPlan&>(static_cast<const OperatorPlan&>(*plan));
  const std::shared_ptr<OperatorPlan> last = std::move(made.kept);
}

bp_status* compute(const bp_operator_plan* plan, const bp_kctx* ctx, const bp_operator_args* args) {
  return status_of([&] {
    if (plan == nullptr || ctx == nullptr) invalid("compute of an operator: an argument is NULL");
    check_struct(args, BP_SIZE_V1(bp_operator_args, output_count), "an operator's arguments");
    static_cast<const OperatorPlan*>(plan)->compute(ctx, *args);
  });
}

bp_status* call(bp_operator* op, const bp_kctx* ctx, const bp_value* const* inputs,
                std::uint32_t input_count, const bp_value** outputs, std::uint32_t output_count) {
  return status_of([&] {
    if (op == nullptr || outputs == nullptr) invalid("call of an operator: an argument is NULL");
    if (output_count != op->held->output_count()) {
      invalid(op->held->describe(), " is asked for ", output_count, " outputs, but was made for ",
              op->held->output_count());
    }
    std::vector<RuntimeValuePtr> made = op->held->call(ctx, inputs, input_count);
    for (std::size_t i = 0; i < made.size(); ++i)
      outputs[i] = made[i] != nullptr ? release_to_plugin(std::move(made[i])) : nullptr;
  });
}

}  // namespace

const bp_operators_api& operators_api() {
  static const bp_operators_api api = [] {
    bp_operators_api table{};
    table.struct_size = sizeof(table);
    table.create = create;
    table.destroy = [](bp_operator* op) { delete op; };
    table.prepare = prepare;
    table.release = release;
    table.compute = compute;
    table.call = call;
    return table;
  }();
  return api;
}

}  // namespace backplane::core
