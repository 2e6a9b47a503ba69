#include "core/plan/prepare.hpp"

#include <bit>

#include "core/plan/value_state.hpp"
#include "core/plugin_host/limits.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// The context that plugins see, with the result behind it.
struct PrepareContext : bp_prepare_ctx {
  const PrepareRequest* request;
  PrepareResult* result;

  OutputPlan& output(std::uint32_t index) const {
    if (index >= output_count)
      invalid("output ", index, " does not exist; the node has ", output_count);
    return result->outputs[index];
  }
  void check_input(std::uint32_t index) const {
    if (index >= input_count)
      invalid("input ", index, " does not exist; the node has ", input_count);
  }
};

PrepareContext& context(bp_prepare_ctx* ctx) { return *static_cast<PrepareContext*>(ctx); }
const PrepareContext& context(const bp_prepare_ctx* ctx) {
  return *static_cast<const PrepareContext*>(ctx);
}

void check_alignment(std::uint64_t alignment) {
  if (!std::has_single_bit(alignment)) invalid("alignment ", alignment, " is not a power of two");
}

DataType element_type(std::uint32_t output, bp_dtype dtype) {
  const auto type = static_cast<DataType>(dtype);
  if (element_bits(type) == 0 && type != DataType::String)
    invalid("output ", output, " has the unknown element type ", dtype);
  return type;
}

std::optional<std::vector<std::int64_t>> copy_strides(const std::int64_t* strides,
                                                      std::size_t rank) {
  if (strides == nullptr) return std::nullopt;
  return std::vector<std::int64_t>(strides, strides + rank);
}

std::uint32_t output_wanted(const bp_prepare_ctx* ctx, std::uint32_t output) {
  return output < ctx->output_count && context(ctx).request->wanted_outputs[output] ? 1 : 0;
}

std::uint32_t input_constant(const bp_prepare_ctx* ctx, std::uint32_t input) {
  return input < ctx->input_count && context(ctx).request->constant_inputs[input] ? 1 : 0;
}

bp_status* set_output(bp_prepare_ctx* ctx, std::uint32_t output, bp_dtype dtype, std::int32_t rank,
                      const std::int64_t* dims) {
  return status_of([&] {
    OutputPlan& plan = context(ctx).output(output);
    check_dims(rank, dims, "output ", output);
    const DataType type = element_type(output, dtype);
    std::vector<std::int64_t> sizes(dims, dims + rank);
    const auto bytes = storage_bytes(type, static_cast<std::uint64_t>(element_count(sizes)));
    if (!bytes) invalid("output ", output, " of dims ", to_string(sizes), " is too large");
    plan.kind = OutputPlan::Kind::Tensor;
    plan.type = type;
    plan.dims = std::move(sizes);
    plan.bytes = type == DataType::String ? 0 : *bytes;
  });
}

bp_status* set_output_unknown(bp_prepare_ctx* ctx, std::uint32_t output, bp_dtype dtype,
                              std::int32_t rank) {
  return status_of([&] {
    PrepareContext& c = context(ctx);
    OutputPlan& plan = c.output(output);
    if ((c.request->kernel->def().flags & BP_KERNEL_DATA_DEPENDENT) == 0) {
      invalid(
          "output ", output,
          " is said to have an unknown size, but the kernel is not registered as data dependent");
    }
    if (rank < -1 || rank > kMaxRank)
      invalid("output ", output, " has rank ", rank, "; it is -1 (not known) to ", kMaxRank);
    const DataType type = element_type(output, dtype);
    plan.kind = OutputPlan::Kind::UnknownSize;
    plan.type = type;
    plan.rank = rank;
  });
}

bp_status* set_output_type(bp_prepare_ctx* ctx, std::uint32_t output, const char* type) {
  return status_of([&] {
    OutputPlan& plan = context(ctx).output(output);
    if (type == nullptr) invalid("the type of output ", output, " is NULL");
    const Type parsed = Type::parse(plugin_text(type));
    if (parsed.is_tensor() || parsed.kind == Type::Kind::SparseTensor) {
      invalid("output ", output, ": '", parsed.to_string(),
              "' is no sequence, optional or map; set_output is for tensors");
    }
    plan.object_type = parsed.to_string();
    plan.kind = OutputPlan::Kind::Object;
  });
}

bp_status* set_format(bp_prepare_ctx* ctx, std::uint32_t output, std::uint32_t format,
                      std::uint64_t bytes, std::uint64_t alignment) {
  return status_of([&] {
    OutputPlan& plan = context(ctx).output(output);
    if (plan.kind != OutputPlan::Kind::Tensor)
      invalid("set_format for output ", output, " before set_output");
    if (format == BP_FORMAT_PLAIN)
      invalid("set_format for output ", output, ": format 0 is the plain one, and needs no saying");
    check_alignment(alignment);
    plan.format = format;
    plan.bytes = bytes;
    plan.alignment = std::max<std::uint64_t>(alignment, 64);
  });
}

bp_status* allow_in_place(bp_prepare_ctx* ctx, std::uint32_t output, std::uint32_t input) {
  return status_of([&] {
    context(ctx).check_input(input);
    context(ctx).output(output).in_place_of = static_cast<int>(input);
  });
}

bp_status* set_view(bp_prepare_ctx* ctx, std::uint32_t output, std::uint32_t input,
                    std::uint64_t offset, const std::int64_t* strides) {
  return status_of([&] {
    OutputPlan& plan = context(ctx).output(output);
    context(ctx).check_input(input);
    if (plan.kind != OutputPlan::Kind::Tensor)
      invalid("set_view for output ", output, " before set_output");
    plan.view_of = static_cast<int>(input);
    plan.view_offset = offset;
    plan.view_strides = copy_strides(strides, plan.dims.size());
  });
}

bp_status* set_inside(bp_prepare_ctx* ctx, std::uint32_t input, std::uint32_t output,
                      std::uint64_t offset, const std::int64_t* strides) {
  return status_of([&] {
    PrepareContext& c = context(ctx);
    c.check_input(input);
    c.output(output);
    const auto rank = static_cast<std::size_t>(ctx->inputs[input]->tensor->rank);
    c.result->insides.push_back({input, output, offset, copy_strides(strides, rank)});
  });
}

bp_status* allow_strided_input(bp_prepare_ctx* ctx, std::uint32_t input) {
  return status_of([&] {
    context(ctx).check_input(input);
    context(ctx).result->inputs[input].may_be_strided = true;
  });
}

bp_status* allow_strided_output(bp_prepare_ctx* ctx, std::uint32_t output) {
  return status_of([&] { context(ctx).output(output).may_be_strided = true; });
}

bp_status* set_workspace(bp_prepare_ctx* ctx, std::uint64_t bytes, std::uint64_t alignment) {
  return status_of([&] {
    check_alignment(alignment);
    context(ctx).result->workspace_bytes = bytes;
    context(ctx).result->workspace_alignment = std::max<std::uint64_t>(alignment, 64);
  });
}

bp_status* request_pack(bp_prepare_ctx* ctx, const bp_pack_request* request, std::uint32_t* index) {
  return status_of([&] {
    PrepareContext& c = context(ctx);
    check_struct(request, BP_SIZE_V1(bp_pack_request, pack), "a pack request");
    if (index == nullptr) invalid("request_pack: the pointer for the index is NULL");
    if (request->key == nullptr || request->pack == nullptr)
      invalid("a pack request without key or function");
    check_array(request->inputs, request->input_count, "the inputs of a pack request");
    check_alignment(request->alignment);
    const Plugin* library = c.request->kernel->library();
    if (!c.request->packs)
      throw Error(Code::Unsupported, "a kernel that packs its weights evaluates nothing");
    PackWish wish{request->key,   {},
                  request->bytes, std::max<std::uint64_t>(request->alignment, 64),
                  request->self,  request->pack};
    if (library != nullptr)
      wish.library = text(library->name(), ' ', library->version(), ' ', library->file().string());
    for (std::uint32_t i = 0; i < request->input_count; ++i) {
      c.check_input(request->inputs[i]);
      if (!c.request->constant_inputs[request->inputs[i]])
        invalid("a pack request for input ", request->inputs[i], ", which is not constant");
      wish.inputs.push_back(request->inputs[i]);
    }
    *index = static_cast<std::uint32_t>(c.result->packs.size());
    c.result->packs.push_back(std::move(wish));
  });
}

bp_status* ignore_input(bp_prepare_ctx* ctx, std::uint32_t input) {
  return status_of([&] {
    context(ctx).check_input(input);
    if (!context(ctx).request->constant_inputs[input])
      invalid("ignore_input for input ", input, ", which is not constant");
    context(ctx).result->inputs[input].is_ignored = true;
  });
}

bp_status* set_variant(bp_prepare_ctx* ctx, const char* text) {
  return status_of([&] { context(ctx).result->variant = text != nullptr ? text : ""; });
}

bp_status* set_cost(bp_prepare_ctx* ctx, const bp_cost* cost) {
  return status_of([&] {
    check_struct(cost, BP_SIZE_V1(bp_cost, reserved0), "a cost");
    context(ctx).result->flops = cost->flops;
    context(ctx).result->bytes_moved = cost->bytes_moved;
  });
}

const bp_prepare_api& prepare_api() {
  static const bp_prepare_api api = [] {
    bp_prepare_api table{};
    table.struct_size = sizeof(table);
    table.output_wanted = output_wanted;
    table.input_constant = input_constant;
    table.set_output = set_output;
    table.set_output_unknown = set_output_unknown;
    table.set_output_type = set_output_type;
    table.set_format = set_format;
    table.allow_in_place = allow_in_place;
    table.set_view = set_view;
    table.set_inside = set_inside;
    table.allow_strided_input = allow_strided_input;
    table.allow_strided_output = allow_strided_output;
    table.set_workspace = set_workspace;
    table.request_pack = request_pack;
    table.ignore_input = ignore_input;
    table.set_variant = set_variant;
    table.set_cost = set_cost;
    return table;
  }();
  return api;
}

/// Whether a view ends within its input, as far as the input's bytes are the plain ones.
bool is_within(const OutputPlan& view, const PrepareRequest& request) {
  const bp_tensor& whole = *request.inputs[static_cast<std::size_t>(view.view_of)]->tensor;
  if (view.type == DataType::String) return true;
  const std::uint64_t extent = view.view_strides && view.bytes > 0
                                   ? strided_extent(view.type, view.dims, *view.view_strides)
                                   : view.bytes;
  return reaches_at_most(view.view_offset, extent, whole.bytes);
}

void check_result(const PrepareRequest& request, const PrepareResult& result) {
  const char* kernel = request.kernel->def().name;
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    const OutputPlan& output = result.outputs[i];
    if (request.wanted_outputs[i] && output.kind == OutputPlan::Kind::Unset) {
      throw Error(Code::Internal,
                  text("kernel '", kernel, "' said nothing of output ", i, " in prepare"));
    }
    if (output.view_of >= 0 && output.format == 0 && !is_within(output, request)) {
      throw Error(Code::Internal, text("kernel '", kernel, "' wants output ", i,
                                       " as a view that reaches past input ", output.view_of));
    }
  }
}

}  // namespace

std::vector<bool> wanted_outputs(const Node& node) {
  std::vector<bool> wanted;
  for (const ValueId output : node.outputs) wanted.push_back(output != kNone);
  return wanted;
}

PrepareResult prepare_kernel(const PrepareRequest& request) {
  PrepareResult result;
  result.outputs.resize(request.wanted_outputs.size());
  result.inputs.resize(request.inputs.size());
  PrepareContext ctx{};
  ctx.struct_size = sizeof(bp_prepare_ctx);
  ctx.api = &prepare_api();
  ctx.inputs = request.inputs.data();
  ctx.input_count = static_cast<std::uint32_t>(request.inputs.size());
  ctx.output_count = static_cast<std::uint32_t>(request.wanted_outputs.size());
  ctx.threads = request.threads;
  ctx.flags = request.flags;
  ctx.request = &request;
  ctx.result = &result;
  const bp_kernel_def& def = request.kernel->def();
  bp_prepared* prepared = nullptr;
  if (bp_status* status =
          call_for_status([&] { return def.prepare(request.kernel->raw(), &ctx, &prepared); }))
    throw take_error(status);
  result.prepared = PreparedHandle(&def, prepared);
  if (prepared == nullptr)
    throw Error(Code::Internal, text("kernel '", def.name, "' prepared nothing and gave no error"));
  check_result(request, result);
  return result;
}

}  // namespace backplane::core
