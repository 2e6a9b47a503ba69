// Attention, and FusedAttention of a rewrite, by cuDNN: https://onnx.ai/onnx/operators/onnx__Attention.html
//
// One for which cuDNN has no plan is computed by parts: what the nodes would have done that a FusedAttention took over, or
// those of an Attention's definition. A FusedAttention of few rows, as of a model that decodes, is computed by the shared
// kernels. The variant has the reason.
#include <algorithm>
#include <cmath>

#include "op_table.hpp"
#include "plugins/common/device_ops/row_attention.hpp"
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
      : is_fused_(node.op_type() == "FusedAttention"),
        is_causal_(node.get_int("is_causal", 0) != 0),
        is_nan_zero_(node.get_int("is_nan_zero", 0) != 0),
        has_scale_(node.has("scale")),
        scale_(node.get_float("scale", 1)),
        before_(node.get_int("left_window_size", -1)),
        after_(node.get_int("right_window_size", -1)),
        group_(node.get_int("group", 1)),
        heads_(node.get_int("q_num_heads", 0)),
        groups_(node.get_int("kv_num_heads", 0)),
        axes_(is_fused_ ? node.get_string("axes", "") : std::string()),
        precision_(is_fused_ ? precision_named(node.get_string("precision", "fp32"), "precision")
                             : device.settings().precision.of(node)) {
    if (node.get_float("softcap", 0) != 0) sdk::unsupported("attention with a softcap");
    for (const std::size_t i : {4, 5, 6}) {
      if (node.input(i)) sdk::unsupported("attention with past keys or a length for each sequence");
    }
    for (const std::size_t i : {1, 2, 3}) {
      if (node.output(i))
        sdk::unsupported("attention that shows its keys, values or products as outputs");
    }
    const DataType type = node.input(0).type();
    if (!is_fused_ && type != DataType::Float && type != DataType::Float16 &&
        type != DataType::BFloat16)
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
    if (is_fused_) return prepare_fused(ctx, work);
    const sdk::Tensor q = ctx.input(0), k = ctx.input(1), v = ctx.input(2), mask = ctx.input(3);
    AttentionParts parts;
    parts.q = operand(q.dims(), 0, heads_);
    parts.k = operand(k.dims(), 1, groups_);
    parts.v = operand(v.dims(), 2, groups_);
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
    form.y = operand(dims, 3, heads_).steps;
    form.type = library_type(q.type());
    ctx.set_output(0, q.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    if (form.width == 0) sdk::unsupported("attention of rows of no elements");
    const std::string why = refusal_of(ctx, work, form);
    if (why.empty()) {
      add(ctx, work, form, dims);
    } else {
      parts.type = q.type();
      parts.precision = precision_;
      if (mask.present()) parts.mask = Dims(mask.dims().begin(), mask.dims().end());
      parts.is_mask_of_bools = mask.present() && mask.type() == DataType::Bool;
      parts.is_grouped = parts.is_empty_zero = true;
      if (before_ >= 0) parts.before = before_;
      if (after_ >= 0) parts.after = after_;
      if (is_causal_) parts.after = 0;
      parts.y = form.y;
      parts.scale = static_cast<double>(scale_of(form));
      add_parts(ctx, work, parts, extent_of(parts), why);
    }
    set_cost(ctx, {form.batch, form.heads, form.rows, form.columns}, form.width + form.value_width);
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
    return work.device().attentions().refusal(form);
  }

  static void add_parts(sdk::PrepareContext& ctx, NodeWork& work, const AttentionParts& parts,
                        const AttentionExtent& extent, const std::string& why) {
    WorkspacePieces pieces(work.device());
    add_attention_parts(work, parts, extent, pieces);
    ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
    ctx.set_variant(sdk::message("by parts: ", why));
  }

  void prepare_fused(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor q = ctx.input(0), mask = ctx.input(3);
    AttentionParts parts;
    parts.type = q.type();
    parts.precision = precision_;
    parts.scale = static_cast<double>(scale_);
    parts.is_nan_zero = is_nan_zero_;
    parts.is_grouped = group_ > 1;
    parts.q = operand(q.dims(), 0, 0);
    parts.k = operand(ctx.input(1).dims(), 1, 0);
    parts.v = operand(ctx.input(2).dims(), 2, 0);
    if (mask.present()) parts.mask = Dims(mask.dims().begin(), mask.dims().end());
    if (parts.is_grouped &&
        (parts.k.heads * group_ != parts.q.heads || parts.v.heads != parts.k.heads))
      sdk::invalid("attention of ", parts.q.heads, " heads by ", parts.k.heads, " and ",
                   parts.v.heads, ", each for ", group_);
    const AttentionExtent extent = extent_of(parts);
    Dims dims = extent.result;
    if (axes_of(3) == "bsh") std::swap(dims[1], dims[2]);
    parts.y = operand(dims, 3, 0).steps;
    ctx.set_output(0, q.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    set_cost(ctx, extent.masked, parts.q.width + parts.v.width);
    if (is_of_few_rows(parts) && is_whole(parts, extent)) return add_rows(ctx, work, parts, extent);
    const std::string why = try_add(ctx, work, parts, extent, dims);
    if (!why.empty()) add_parts(ctx, work, parts, extent, why);
  }

  /// Few beside the positions, which are to be read as fast as they can be; every token has more of them, and a plan of the library's
  /// would be of one number.
  static bool is_of_few_rows(const AttentionParts& parts) {
    constexpr std::int64_t kFew = 4, kMost = 64, kPositionsOfRow = 16;
    const std::int64_t rows = parts.q.positions;
    const bool is_masked_along =
        !parts.mask || (!parts.mask->empty() && parts.mask->back() == parts.k.positions);
    return is_masked_along &&
           (rows <= kFew || (rows < kMost && rows * kPositionsOfRow <= parts.k.positions));
  }

  /// Whether nothing is repeated along axes but heads in groups, and a mask.
  bool is_whole(const AttentionParts& parts, const AttentionExtent& extent) const {
    const AttentionOperand &q = parts.q, &k = parts.k, &v = parts.v;
    return k.batch == q.batch && v.batch == q.batch && k.heads * group_ == q.heads &&
           v.heads == k.heads && extent.masked == extent.scores && extent.result[0] == q.batch &&
           q.width > 0 && k.positions > 0;
  }

  void add_rows(sdk::PrepareContext& ctx, NodeWork& work, const AttentionParts& parts,
                const AttentionExtent& extent) const {
    const auto rows_at = [&](const device_ops::MemoryRef& memory, const AttentionSteps& steps) {
      return device_ops::RowsAt{memory, {steps.batch, steps.head, steps.position}};
    };
    device_ops::RowAttention rows;
    rows.type = parts.type;
    rows.batch = parts.q.batch;
    rows.kv_heads = parts.k.heads;
    rows.group_heads = group_;
    rows.queries = parts.q.positions;
    rows.keys = parts.k.positions;
    rows.width = parts.q.width;
    rows.value_width = parts.v.width;
    rows.q = rows_at(input(0), parts.q.steps);
    rows.k = rows_at(input(1), parts.k.steps);
    rows.v = rows_at(input(2), parts.v.steps);
    rows.y = rows_at(output(0), parts.y);
    rows.scale = parts.scale;
    rows.empty = is_nan_zero_ ? device_ops::EmptyRow::kNumber : device_ops::EmptyRow::kNan;
    if (parts.mask) {
      const Dims steps =
          device_ops::broadcast_view(input(3), ctx.input(3).type(), *parts.mask, extent.scores)
              .strides;
      rows.mask = {input(3), ctx.input(3).type(), {steps[0], steps[1], steps[2]}};
    }
    const std::uint64_t bytes = device_ops::add_row_attention(work.launches(), rows, 0);
    if (bytes > 0) ctx.set_workspace(bytes, work.device().limits().alignment);
    ctx.set_variant("by rows");
  }

  /// Adds the library's plan; why there is none, or empty.
  std::string try_add(sdk::PrepareContext& ctx, NodeWork& work, const AttentionParts& parts,
                      const AttentionExtent& extent, const Dims& dims) const {
    const AttentionOperand &q = parts.q, &k = parts.k, &v = parts.v;
    if (parts.type == DataType::Float && is_float32()) return float32_text();
    if (extent.masked.back() == 0 || q.width == 0) return "it has no positions";
    if (!is_whole(parts, extent)) return "its operands are repeated along axes";
    Attention form = attention_of(q, k, v);
    form.y = parts.y;
    form.type = library_type(parts.type);
    if (parts.mask) set_mask(*parts.mask, form);
    try {
      std::string why = work.device().attentions().refusal(form);
      if (why.empty()) add(ctx, work, form, dims);
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
    return has_scale_ || is_fused_ ? scale_ : 1 / std::sqrt(static_cast<float>(form.width));
  }
  static void set_cost(sdk::PrepareContext& ctx, const Dims& scores, std::int64_t widths) {
    ctx.set_cost(2 * static_cast<std::uint64_t>(sdk::element_count(scores) * widths),
                 ctx.input(0).bytes() + ctx.input(1).bytes() + ctx.input(2).bytes());
  }

  /// In which order axes stand: `index` of q, k, v and y.
  std::string axes_of(std::size_t index) const {
    constexpr std::size_t kLetters = 3;
    return axes_.empty() ? "bhs" : axes_.substr(index * kLetters, kLetters);
  }
  AttentionOperand operand(DimsView dims, std::size_t index, std::int64_t heads) const {
    return attention_operand(dims, axes_of(index), heads);
  }

  void add(sdk::PrepareContext& ctx, NodeWork& work, const Attention& form,
           const Dims& dims) const {
    WorkspacePieces pieces(work.device());
    AttentionWork::Plan plan;
    plan.prepared = work.device().attentions().find(form);
    plan.has_mask = form.has_mask;
    plan.scale = scale_of(form);
    plan.q = place(ctx, work, 0, form.type, pieces);
    plan.k = place(ctx, work, 1, form.type, pieces);
    plan.v = place(ctx, work, 2, form.type, pieces);
    if (form.has_mask) plan.mask = place(ctx, work, 3, form.type, pieces);
    const std::int64_t bytes = sdk::element_count(dims) * kHalfBytes;
    const bool is_half = ctx.input(0).type() == form.type;
    const MemoryRef y = pieces.add(bytes);
    plan.y = {is_half ? output(0) : y, y, static_cast<std::uint64_t>(bytes)};
    plan.workspace = pieces.add(static_cast<std::int64_t>(plan.prepared->workspace_bytes()));
    work.add(std::make_unique<AttentionWork>(work.device(), work.label(), std::move(plan)));
    // By ONNX's definition, and by what the rewrite took over, a row without any position is 0. The library's is NaN.
    const bool may_be_empty = form.has_mask && (!is_fused_ || is_nan_zero_);
    const std::string text = may_be_empty ? "v0 != v0 ? 0.0f : v0" : "v0";
    if (!is_half) {
      add_cast(work, y, form.type, output(0), DataType::Float, dims, text);
    } else if (may_be_empty) {
      add_cast(work, output(0), form.type, output(0), form.type, dims, text);
    }
    ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
    ctx.set_variant(sdk::message("cudnn, ", sdk::type_name(form.type)));
  }

  /// An input as the library's type: as it is, or rounded first.
  static PlacedOperand place(const sdk::PrepareContext& ctx, NodeWork& work, std::uint32_t index,
                             DataType type, WorkspacePieces& pieces) {
    const sdk::Tensor x = ctx.input(index);
    const std::int64_t bytes = x.size() * kHalfBytes;
    const MemoryRef spare = pieces.add(bytes);
    if (x.type() == type) return {input(index), spare, static_cast<std::uint64_t>(bytes)};
    // A mask's lowest floats stay numbers, so that a row without any position is not NaN.
    constexpr std::uint32_t kMask = 3;
    add_cast(
        work, input(index), x.type(), spare, type, Dims(x.dims().begin(), x.dims().end()),
        index == kMask && type == DataType::Float16 ? "v0 < -65504.0f ? -65504.0f : v0" : "v0");
    return {spare, spare, 0};
  }

  static void add_cast(NodeWork& work, const MemoryRef& from, DataType from_type,
                       const MemoryRef& to, DataType to_type, const Dims& dims,
                       const std::string& text) {
    device_ops::add_pointwise(work.launches(), dims,
                              {device_ops::dense_view(from, from_type, dims)},
                              device_ops::dense_view(to, to_type, dims), {text, "", {}});
  }

  static constexpr std::int64_t kHalfBytes = 2;
  bool is_fused_, is_causal_, is_nan_zero_, has_scale_;
  float scale_;
  std::int64_t before_, after_;  ///< positions that a row attends to; -1: without an end
  std::int64_t group_;           ///< of a FusedAttention: heads of q for each of k and v
  std::int64_t heads_, groups_;
  std::string axes_;  ///< of q, k, v and y, "bhs" or "bsh" each; empty: all "bhs"
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
