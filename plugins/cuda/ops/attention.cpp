// Attention, and FusedAttention of a rewrite, by cuDNN, or of few positions by a kernel of the provider's own (short_attention.hpp):
// https://onnx.ai/onnx/operators/onnx__Attention.html
//
// One for which cuDNN has no plan is computed by parts: what the nodes would have done that a FusedAttention took over, or
// those of an Attention's definition. A FusedAttention of few rows, as of a model that decodes, is computed by the shared
// kernels. The variant has the reason.
#include <algorithm>
#include <cmath>
#include <optional>

#include "op_table.hpp"
#include "plugins/common/device_ops/fused_attention.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/cuda/attention_parts.hpp"
#include "plugins/cuda/attention_work.hpp"
#include "plugins/cuda/attentions.hpp"
#include "plugins/cuda/integer_lines.hpp"
#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {
namespace {

class AttentionNode {
 public:
  AttentionNode(const Device& device, const sdk::Node& node)
      : is_causal_(node.get_int("is_causal", 0) != 0),
        has_scale_(node.has("scale")),
        scale_(node.get_float("scale", 1)),
        before_(node.get_int("left_window_size", -1)),
        after_(node.get_int("right_window_size", -1)),
        heads_(node.get_int("q_num_heads", 0)),
        groups_(node.get_int("kv_num_heads", 0)) {
    if (node.op_type() == "FusedAttention") {
      fused_.emplace(node);
      precision_ = precision_named(node.get_string("precision", "fp32"), "precision");
      return;
    }
    precision_ = device.settings().precision.of(node);
    if (node.get_float("softcap", 0) != 0) sdk::unsupported("attention with a softcap");
    for (const std::size_t i : {4, 5, 6}) {
      if (node.input(i)) sdk::unsupported("attention with past keys or a length for each sequence");
    }
    for (const std::size_t i : {1, 2, 3}) {
      if (node.output(i))
        sdk::unsupported("attention that shows its keys, values or products as outputs");
    }
    const DataType type = node.input(0).type();
    if (type != DataType::Float && type != DataType::Float16 && type != DataType::BFloat16)
      sdk::unsupported("attention of ", sdk::type_name(type));
    if (node.get_int("softmax_precision", kFloatType) == kDoubleType)
      sdk::unsupported("attention whose softmax is to be computed in double");
    for (const std::size_t i : {1, 2}) {
      if (node.input(i).type() != type)
        sdk::unsupported("attention of ", sdk::type_name(type), " and ",
                         sdk::type_name(node.input(i).type()));
    }
  }

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    if (fused_) return prepare_fused(ctx, work, fused_->begin(ctx));
    const sdk::Tensor q = ctx.input(0), k = ctx.input(1), v = ctx.input(2), mask = ctx.input(3);
    AttentionParts parts;
    parts.q = device_ops::head_rows(q.dims(), "bhs", heads_);
    parts.k = device_ops::head_rows(k.dims(), "bhs", groups_);
    parts.v = device_ops::head_rows(v.dims(), "bhs", groups_);
    if (mask.rank() > 0 && parts.k.positions == parts.v.positions) {
      // Positions that a mask is too short for do not count.
      const std::int64_t masked = std::min(parts.k.positions, mask.dim(mask.rank() - 1));
      parts.k.positions = parts.v.positions = masked;
    }
    Attention form = attention_of(parts.q, parts.k, parts.v);
    form.is_causal = is_causal_;
    if (mask.present()) {
      set_mask(mask.dims(), form);
      if (mask.rank() == 0) sdk::invalid("attention with a mask of no axis");
    }
    const Dims dims = q.rank() == 3 ? Dims{form.batch, form.rows, form.heads * form.value_width}
                                    : Dims{form.batch, form.heads, form.rows, form.value_width};
    form.y = device_ops::head_rows(dims, "bhs", heads_).steps;
    form.type = library_type(q.type());
    ctx.set_output(0, q.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    if (form.width == 0) sdk::unsupported("attention of rows of no elements");
    const std::string why = refusal_of(ctx, work, form);
    if (why.empty()) {
      add(ctx, work, form, dims, scale_of(form), device_ops::EmptyRow::kZero);
    } else {
      parts.type = q.type();
      parts.precision = precision_;
      if (mask.present()) parts.mask = Dims(mask.dims().begin(), mask.dims().end());
      parts.is_mask_of_bools = mask.present() && mask.type() == DataType::Bool;
      parts.is_grouped = true;
      parts.empty = device_ops::EmptyRow::kZero;
      if (before_ >= 0) parts.before = before_;
      if (after_ >= 0) parts.after = after_;
      if (is_causal_) parts.after = 0;
      parts.y = form.y;
      parts.scale = static_cast<double>(scale_of(form));
      add_parts(ctx, work, parts, extent_of(parts), why);
    }
    const std::int64_t sums = form.batch * form.heads * form.rows * form.columns;
    ctx.set_cost(2 * static_cast<std::uint64_t>(sums * (form.width + form.value_width)),
                 q.bytes() + k.bytes() + v.bytes());
  }

 private:
  static constexpr std::int64_t kFloatType = 1, kDoubleType = 11;  // of ONNX's TensorProto

  /// Why the library does not compute an Attention; empty where it does.
  std::string refusal_of(const sdk::PrepareContext& ctx, NodeWork& work,
                         const Attention& form) const {
    if (ctx.input(0).type() == DataType::Float && is_float32()) return float32_text();
    if (ctx.input(3).present() && ctx.input(3).type() == DataType::Bool)
      return "its mask is of bools";
    if (before_ >= 0 || after_ >= 0) return "its rows attend to a window";
    if (form.columns == 0) return "it has no positions";
    return work.device().attentions().refusal(form, work.choosing());
  }

  static void add_parts(sdk::PrepareContext& ctx, NodeWork& work, const AttentionParts& parts,
                        const AttentionExtent& extent, const std::string& why) {
    WorkspacePieces pieces(work.device());
    add_attention_parts(work, parts, extent, pieces);
    ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
    ctx.set_variant(sdk::message("by parts: ", why));
  }

  void prepare_fused(sdk::PrepareContext& ctx, NodeWork& work,
                     const device_ops::SizedAttention& sized) const {
    if (!sized.has_result()) return;
    // A plan of the library's would be of one number of keys, and every token has more of them.
    if (sized.is_of_few_rows(work.device()) && sized.is_whole()) {
      const std::uint64_t bytes = device_ops::add_row_attention(work.launches(), sized.rows(), 0);
      if (bytes > 0) ctx.set_workspace(bytes, work.device().limits().alignment);
      return ctx.set_variant("by rows");
    }
    const std::string why = try_add(ctx, work, sized);
    if (why.empty()) return;
    AttentionParts parts;
    parts.type = sized.type;
    parts.precision = precision_;
    parts.q = sized.q;
    parts.k = sized.k;
    parts.v = sized.v;
    parts.mask = sized.mask;
    parts.is_mask_of_bools = sized.mask && sized.mask_form.type == DataType::Bool;
    parts.chosen = sized.mask_form.chosen;
    parts.otherwise = sized.mask_form.otherwise;
    parts.softcap = sized.softcap;
    parts.empty = sized.empty;
    parts.is_grouped = sized.group > 1;
    parts.y = sized.y;
    parts.scale = sized.scale;
    add_parts(ctx, work, parts, sized.extent, why);
  }

  /// Adds the library's plan; why there is none, or empty.
  std::string try_add(sdk::PrepareContext& ctx, NodeWork& work,
                      const device_ops::SizedAttention& sized) const {
    if (sized.type == DataType::Float && is_float32()) return float32_text();
    if (sized.extent.masked.back() == 0 || sized.q.width == 0) return "it has no positions";
    if (!sized.is_whole()) return "its operands are repeated along axes";
    if (sized.mask && sized.mask_form.type == DataType::Bool)
      return "its scores are chosen by a mask of bools";
    if (sized.softcap != 0) return "its scores have a softcap";
    Attention form = attention_of(sized.q, sized.k, sized.v);
    form.y = sized.y;
    form.type = library_type(sized.type);
    if (sized.mask) set_mask(*sized.mask, form);
    try {
      std::string why = work.device().attentions().refusal(form, work.choosing());
      if (why.empty())
        add(ctx, work, form, sized.lying, static_cast<float>(sized.scale), sized.empty);
      return why;
    } catch (const sdk::Error& error) {
      // What the library stumbles over while it looks for a plan; the parts do not ask it.
      if (error.code() != BP_INTERNAL) throw;
      return error.what();
    }
  }

  bool is_float32() const {
    return precision_ == Precision::kFp32 || precision_ == Precision::kTf32;
  }
  std::string float32_text() const {
    return sdk::message("float32 with precision ", precision_name(precision_),
                        "; cuDNN's is of fp16 and bf16");
  }
  /// Of an input's type.
  DataType library_type(DataType type) const {
    return type != DataType::Float          ? type
           : precision_ == Precision::kFp16 ? DataType::Float16
                                            : DataType::BFloat16;
  }
  float scale_of(const Attention& form) const {
    return has_scale_ ? scale_ : 1 / std::sqrt(static_cast<float>(form.width));
  }

  /// A result of `dims`, by the library.
  static void add(sdk::PrepareContext& ctx, NodeWork& work, const Attention& form, const Dims& dims,
                  float scale, device_ops::EmptyRow empty) {
    WorkspacePieces pieces(work.device());
    AttentionWork::Plan plan;
    plan.prepared = work.device().attentions().find(form, work.choosing()).plan;
    plan.has_mask = form.has_mask;
    plan.scale = scale;
    plan.q = place(ctx, work, 0, form.type, pieces);
    plan.k = place(ctx, work, 1, form.type, pieces);
    plan.v = place(ctx, work, 2, form.type, pieces);
    if (form.has_mask) plan.mask = place(ctx, work, 3, form.type, pieces);
    const std::int64_t bytes = sdk::element_count(dims) * kHalfBytes;
    const bool is_half = ctx.input(0).type() == form.type;
    const MemoryRef y = pieces.add(bytes);
    plan.y = {is_half ? output(0) : y, y, static_cast<std::uint64_t>(bytes)};
    plan.workspace = pieces.add(static_cast<std::int64_t>(plan.prepared->workspace_bytes()));
    const char* const own_name = plan.prepared->own_name();
    work.add(std::make_unique<AttentionWork>(work.device(), work.label(), std::move(plan)));
    const MemoryRef made = is_half ? output(0) : y;
    const DataType type = ctx.input(0).type();
    if (form.has_mask && empty == device_ops::EmptyRow::kZero) {
      add_empty_rows(ctx, work, form, made);
    } else if (!is_half || (form.has_mask && empty == device_ops::EmptyRow::kNumber)) {
      add_cast(work, made, form.type, output(0), type, dims,
               empty == device_ops::EmptyRow::kNumber ? "v0 != v0 ? 0.0f : v0" : "v0");
    }
    ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
    ctx.set_variant(
        sdk::message(own_name != nullptr ? own_name : "cudnn", ", ", sdk::type_name(form.type)));
  }

  /// From the library's result to the node's, the same where their types are. The library's row without any position is NaN or 0, by
  /// version and device; here it is 0, and what is NaN for another reason stays so.
  static void add_empty_rows(const sdk::PrepareContext& ctx, NodeWork& work, const Attention& form,
                             const MemoryRef& made) {
    const DataType type = ctx.input(0).type(), mask_type = ctx.input(3).type();
    device_ops::Walk walk(Dims{form.batch * form.heads, form.rows, form.value_width});
    walk.in("x", made, form.type).in("mask", input(3), mask_type).out("y", output(0), type);
    walk.define("T", device_ops::type_code(form.type)).define("TY", device_ops::type_code(type));
    walk.define("TM", device_ops::type_code(mask_type)).define("IS_CAUSAL", form.is_causal ? 1 : 0);
    walk.number("heads", form.heads).number("columns", form.columns);
    walk.number("y_batch", form.y.batch).number("y_head", form.y.head);
    walk.number("y_row", form.y.position);
    std::int64_t step = 1;
    const char* const names[] = {"mask_batch", "mask_head", "mask_row", "mask_column"};
    for (std::size_t axis = form.mask_dims.size(); axis-- > 0; step *= form.mask_dims[axis])
      walk.number(names[axis], form.mask_dims[axis] == 1 ? 0 : step);
    walk.name("rows without positions");
    walk.body = R"kernel(
  i64 b = i2 / heads, h = i2 % heads, at = b * y_batch + h * y_head + i1 * y_row + i0;
  float value = LOAD(T, x, at);
  if (IS_NAN(value)) {
    i64 end = IS_CAUSAL && i1 + 1 < columns ? i1 + 1 : columns;
    int is_empty = 1;
    mask += b * mask_batch + h * mask_head + i1 * mask_row;
    for (i64 j = 0; j < end && is_empty; ++j)
      is_empty = (float)LOAD(TM, mask, j * mask_column) == -INFINITY;
    if (is_empty) value = 0.0f;
  }
  STORE(TY, y, at, value);
)kernel";
    walk.add_to(work.launches());
  }

  /// An input as the library's type: as it is, or rounded first.
  static PlacedOperand place(const sdk::PrepareContext& ctx, NodeWork& work, std::uint32_t index,
                             DataType type, WorkspacePieces& pieces) {
    const sdk::Tensor x = ctx.input(index);
    const std::int64_t bytes = x.size() * kHalfBytes;
    const MemoryRef spare = pieces.add(bytes);
    constexpr std::uint32_t kMask = 3;
    if (x.type() == type && !(index == kMask && type == DataType::BFloat16))
      return {input(index), spare, static_cast<std::uint64_t>(bytes)};
    add_cast(work, input(index), x.type(), spare, type, Dims(x.dims().begin(), x.dims().end()),
             index == kMask ? mask_text(type) : "v0");
    return {spare, spare, 0};
  }

  /// A mask's lowest numbers stay numbers, so that a row without any position is not NaN. The library's exponentials are powers of two:
  /// near the lowest of bfloat16, what is multiplied by log2(e) is an infinity all the same, and of rows, or their first columns,
  /// with nothing else it makes NaN. -2^41 is what JAX has for that reason (get_large_negative_number, cudnn/fused_attention_stablehlo.py).
  static const char* mask_text(DataType type) {
    if (type == DataType::Float16) return device_ops::finite_text(type);
    return "v0 < -2199023255552.0f && !IS_INF(v0) ? -2199023255552.0f : v0";
  }

  static void add_cast(NodeWork& work, const MemoryRef& from, DataType from_type,
                       const MemoryRef& to, DataType to_type, const Dims& dims,
                       const std::string& text) {
    device_ops::add_pointwise(work.launches(), dims,
                              {device_ops::dense_view(from, from_type, dims)},
                              device_ops::dense_view(to, to_type, dims), {text, "", {}});
  }

  static constexpr std::int64_t kHalfBytes = 2;
  std::optional<device_ops::FusedAttention> fused_;  ///< else it is ONNX's, of what follows
  bool is_causal_, has_scale_;
  float scale_;
  std::int64_t before_, after_;  ///< positions that a row attends to; -1: without an end
  std::int64_t heads_, groups_;
  Precision precision_;
};

}  // namespace

KernelList attention_kernels() {
  return {
      cuda_kernel<AttentionNode>(sdk::op("Attention").name(kernel_name("attention")).since(23)),
      cuda_kernel<AttentionNode>(
          sdk::op("FusedAttention", private_domain()).name(kernel_name("attention"))),
  };
}

}  // namespace backplane::cuda
