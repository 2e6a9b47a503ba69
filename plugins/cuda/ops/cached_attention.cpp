// Attention with caches and GroupQueryAttention: many rows, as of a prompt, by cuDNN or by products, whose tensor cores the shared
// kernels have not, and all else by these.
#include "plugins/common/device_ops/cached_attention.hpp"

#include <algorithm>
#include <utility>

#include "op_table.hpp"
#include "plugins/common/device_ops/group_query_attention.hpp"
#include "plugins/cuda/attention_parts.hpp"
#include "plugins/cuda/attention_work.hpp"
#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {
namespace {

using device_ops::RowAttention;

std::int64_t heads_of(const RowAttention& form) { return form.kv_heads * form.group_heads; }
std::int64_t keys_of(const RowAttention& form) {
  return std::min(form.keys, form.most_keys.value_or(form.keys));
}
AttentionOperand q_of(const RowAttention& form) {
  return {form.batch, heads_of(form), form.queries, form.width, form.q.steps};
}
AttentionOperand k_of(const RowAttention& form) {
  return {form.batch, form.kv_heads, keys_of(form), form.width, form.k.steps};
}
AttentionOperand v_of(const RowAttention& form) {
  return {form.batch, form.kv_heads, keys_of(form), form.value_width, form.v.steps};
}

/// Of the shared operator of that class.
template <class Shared>
class AttentionByRowsOrProducts {
 public:
  AttentionByRowsOrProducts(const Device& device, const sdk::Node& node)
      : shared_(device, node), precision_(device.settings().precision.of(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    std::uint64_t end = 0;
    RowAttention form = shared_.begin(ctx, work.launches(), end);
    WorkspacePieces pieces(work.device());
    pieces.add(static_cast<std::int64_t>(end));
    if (form.has_result()) ctx.set_variant(add_attention(work, form, pieces));
    if (pieces.bytes() > 0) ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
  }

 private:
  /// Returns how.
  const char* add_attention(NodeWork& work, RowAttention form, WorkspacePieces& pieces) const {
    if (!is_of_many_rows(form)) {
      pieces.add(static_cast<std::int64_t>(
          device_ops::add_row_attention(work.launches(), form, pieces.bytes())));
      return "by rows";
    }
    if (add_library(work, form, pieces)) return "cudnn";
    add_products(work, form, pieces);
    return "by products";
  }

  /// Rows that pay for scores in memory, of sequences that are all as long.
  static bool is_of_many_rows(const RowAttention& form) {
    constexpr std::int64_t kLeastQueries = 64;
    const bool is_readable =
        !form.mask || form.mask->type == form.type || form.mask->type == DataType::Bool;
    return form.queries >= kLeastQueries && !form.lengths && is_readable && form.cap == 0 &&
           form.width > 0;
  }

  /// By the library, if it has a plan: of prompts without anything before them, and of rows that read all there is.
  static bool add_library(NodeWork& work, const RowAttention& form, WorkspacePieces& pieces) {
    const bool is_causal = form.after == 0 && form.first_place == 0;
    if (form.type == DataType::Float || form.mask || form.before || (form.after && !is_causal))
      return false;
    Attention attention = attention_of(q_of(form), k_of(form), v_of(form));
    attention.type = form.type;
    attention.is_causal = is_causal;
    attention.y = form.y.steps;
    if (attention.columns == 0 ||
        !work.device().attentions().refusal(attention, work.choosing()).empty())
      return false;
    AttentionWork::Plan plan;
    plan.prepared = work.device().attentions().find(attention, work.choosing()).plan;
    plan.scale = static_cast<float>(form.scale);
    plan.q = placed(form.q.memory, q_of(form), pieces);
    plan.k = placed(form.k.memory, k_of(form), pieces);
    plan.v = placed(form.v.memory, v_of(form), pieces);
    AttentionOperand y = q_of(form);
    y.width = form.value_width;
    y.steps = attention.y;
    plan.y = placed(form.y.memory, y, pieces);
    plan.workspace = pieces.add(static_cast<std::int64_t>(plan.prepared->workspace_bytes()));
    work.add(std::make_unique<AttentionWork>(work.device(), work.label(), std::move(plan)));
    return true;
  }

  /// With a spare place as large as from its first element to its last.
  static PlacedOperand placed(const MemoryRef& memory, const AttentionOperand& operand,
                              WorkspacePieces& pieces) {
    constexpr std::int64_t kHalfBytes = 2;
    const std::int64_t last = (operand.batch - 1) * operand.steps.batch +
                              (operand.heads - 1) * operand.steps.head +
                              (operand.positions - 1) * operand.steps.position;
    const std::int64_t bytes = (last + operand.width) * kHalfBytes;
    return {memory, pieces.add(bytes), static_cast<std::uint64_t>(bytes)};
  }

  void add_products(NodeWork& work, const RowAttention& form, WorkspacePieces& pieces) const {
    AttentionParts parts;
    parts.type = form.type;
    parts.precision = precision_;
    parts.q = q_of(form);
    parts.k = k_of(form);
    parts.v = v_of(form);
    parts.memory = {form.q.memory, form.k.memory, form.v.memory, {}};
    if (form.mask) {
      const device_ops::RowSteps& steps = form.mask->steps;
      parts.mask = Dims{steps.batch == 0 ? 1 : form.batch, steps.head == 0 ? 1 : heads_of(form),
                        steps.position == 0 ? 1 : form.queries, keys_of(form)};
      parts.mask_steps = steps;
      parts.memory.back() = form.mask->memory;
      parts.is_mask_of_bools = form.mask->type == DataType::Bool;
    }
    parts.is_grouped = true;
    parts.empty = form.empty;
    parts.before = form.before;
    parts.after = form.after;
    parts.first_place = form.first_place;
    parts.result = form.y.memory;
    parts.y = form.y.steps;
    parts.scale = form.scale;
    add_attention_parts(work, parts, extent_of(parts), pieces);
  }

  Shared shared_;
  Precision precision_;
};

}  // namespace

KernelList cached_attention_kernels() {
  using device_ops::CachedAttention;
  using device_ops::GroupQueryAttention;
  return {
      cuda_kernel<AttentionByRowsOrProducts<CachedAttention>>(device_ops::cached_attention_op()),
      cuda_kernel<AttentionByRowsOrProducts<GroupQueryAttention>>(
          device_ops::group_query_attention_op()),
  };
}

}  // namespace backplane::cuda
