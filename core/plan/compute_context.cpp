#include "core/plan/compute_context.hpp"

#include <algorithm>

#include "core/plugin_host/limits.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

const ComputeContext& context(const bp_kctx* ctx) {
  return *static_cast<const ComputeContext*>(ctx);
}

[[noreturn]] void refuse_known(std::uint32_t output) {
  invalid("alloc_output: the size of output ", output,
          " is known; only one for which `prepare` called set_output_unknown is allocated");
}

bp_status* alloc_output(const bp_kctx* ctx, std::uint32_t output, std::int32_t rank,
                        const std::int64_t* dims, const bp_tensor** out) {
  return status_of([&] {
    if (out == nullptr) invalid("alloc_output: the pointer for the result is NULL");
    if (output >= ctx->output_count)
      invalid("alloc_output: output ", output, " does not exist; the node has ", ctx->output_count);
    if (ctx->outputs[output]->kind == BP_VALUE_ABSENT)
      invalid("alloc_output: output ", output, " is left out by the node (see output_wanted)");
    check_dims(rank, dims, "alloc_output: output ", output);
    // Every bp_value that the host shows is a RuntimeValue, and outputs are its to write.
    auto& value =
        const_cast<RuntimeValue&>(static_cast<const RuntimeValue&>(*ctx->outputs[output]));
    const std::vector<std::int64_t> sizes(dims, dims + rank);
    UnknownOutputs* const unknown = context(ctx).unknown;
    if (unknown == nullptr) refuse_known(output);
    bool& is_told = unknown->place_of(output, rank);
    Device& device = *context(ctx).device;
    if (device.on_host_memory() || value.description.memory == BP_MEMORY_HOST) {
      value.set_owned_tensor(value.element(), sizes);
    } else {
      value.set_tensor(value.element(), sizes);
      const auto held = std::static_pointer_cast<DeviceBuffer>(value.memory);
      if (value.description.bytes > 0 &&
          (held == nullptr || held->bytes() < value.description.bytes || held.use_count() > 2)) {
        value.memory = std::make_shared<DeviceBuffer>(device.shared_from_this(), BP_MEMORY_DEVICE,
                                                      value.description.bytes,
                                                      device.alignment(BP_MEMORY_DEVICE));
      }
      const auto buffer = std::static_pointer_cast<DeviceBuffer>(value.memory);
      value.description.buffer = buffer != nullptr ? buffer->raw() : nullptr;
      value.description.memory = BP_MEMORY_DEVICE;
    }
    is_told = true;
    *out = &value.description;
  });
}

std::uint32_t cancelled(const bp_kctx* ctx) {
  const StopSignal* stop = context(ctx).stop;
  return stop != nullptr && stop->raised() != Code::Ok ? 1 : 0;
}

bp_status* native(const bp_kctx* ctx, std::int32_t kind, const bp_tensor* tensor,
                  std::uint64_t* out) {
  *out = 0;
  Device& device = *context(ctx).device;
  if (!BP_HAS_FN(bp_device_api, &device.api(), native)) {
    if (device.on_host_memory()) return nullptr;
    return make_status(Code::Unsupported,
                       "provider '" + device.provider_name() + "' shows no native handles");
  }
  return device.call(device.api().native, kind, ctx->stream,
                     tensor != nullptr ? tensor->buffer : nullptr, out);
}

const bp_compute_api& compute_api() {
  static const bp_compute_api api = [] {
    bp_compute_api table{};
    table.struct_size = sizeof(table);
    table.alloc_output = alloc_output;
    table.cancelled = cancelled;
    table.native = native;
    return table;
  }();
  return api;
}

}  // namespace

UnknownOutputs::UnknownOutputs(const PrepareResult& said) : kernel_(said.prepared.def().name) {
  for (std::size_t i = 0; i < said.outputs.size(); ++i) {
    if (said.outputs[i].kind == OutputPlan::Kind::UnknownSize)
      outputs_.push_back({static_cast<std::uint32_t>(i), said.outputs[i].rank, false});
  }
}

void UnknownOutputs::begin() {
  for (Unknown& unknown : outputs_) unknown.is_told = false;
}

bool& UnknownOutputs::place_of(std::uint32_t output, std::int32_t rank) {
  const auto found = std::find_if(outputs_.begin(), outputs_.end(),
                                  [&](const Unknown& unknown) { return unknown.output == output; });
  if (found == outputs_.end()) refuse_known(output);
  if (found->is_told) invalid("alloc_output: output ", output, " was allocated already");
  if (found->rank >= 0 && found->rank != rank) {
    invalid("alloc_output: output ", output, " has rank ", rank, ", but `prepare` said ",
            found->rank);
  }
  return found->is_told;
}

bp_status* UnknownOutputs::end(const bp_kctx& ctx) const {
  for (const Unknown& unknown : outputs_) {
    if (unknown.is_told || ctx.outputs[unknown.output]->kind == BP_VALUE_ABSENT) continue;
    return make_status(Code::Internal,
                       text("kernel '", kernel_, "' returned success, but never gave output ",
                            unknown.output, " its size (alloc_output)"));
  }
  return nullptr;
}

ComputeContext make_compute_context(Device* device, bp_threads* threads) {
  ComputeContext ctx{};
  ctx.struct_size = sizeof(bp_kctx);
  ctx.threads = threads;
  ctx.api = &compute_api();
  ctx.device = device;
  return ctx;
}

}  // namespace backplane::core
