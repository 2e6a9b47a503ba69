// Attention with caches and GroupQueryAttention: many rows, as of a prompt, by products, whose tensor cores the shared kernels have
// not, and all else by these.
#include "plugins/common/device_ops/cached_attention.hpp"

#include <algorithm>
#include <utility>

#include "op_table.hpp"
#include "plugins/common/device_ops/group_query_attention.hpp"
#include "plugins/cuda/attention_parts.hpp"
#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {
namespace {

using device_ops::RowAttention;
using device_ops::RowsAt;

AttentionOperand operand(const RowAttention& form, std::int64_t heads, std::int64_t positions,
                         std::int64_t width, const device_ops::RowSteps& steps) {
  return {form.batch, heads, positions, width, {steps.batch, steps.head, steps.position}};
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
    if (form.has_result() && is_for_products(form)) {
      add_products(ctx, work, std::move(form), pieces);
      ctx.set_variant("by products");
    } else if (form.has_result()) {
      pieces.add(static_cast<std::int64_t>(
          device_ops::add_row_attention(work.launches(), form, pieces.bytes())));
      ctx.set_variant("by rows");
    }
    if (pieces.bytes() > 0) ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
  }

 private:
  /// Rows that pay for scores in memory, of sequences that are all as long, whose windows begin with them.
  static bool is_for_products(const RowAttention& form) {
    constexpr std::int64_t kLeastQueries = 64;
    const bool begins = form.first_place == 0 || (!form.before && !form.after);
    const bool is_readable =
        !form.mask || (form.mask->memory.index == kMask &&
                       (form.mask->type == form.type || form.mask->type == DataType::Bool));
    return form.queries >= kLeastQueries && !form.lengths && begins && is_readable &&
           form.cap == 0 && form.width > 0;
  }

  void add_products(const sdk::PrepareContext& ctx, NodeWork& work, RowAttention form,
                    WorkspacePieces& pieces) const {
    const std::int64_t heads = form.kv_heads * form.group_heads;
    if (form.turn) {
      const std::int64_t count = form.batch * heads * form.queries * form.width;
      const MemoryRef turned = pieces.add(count * sdk::element_bytes(form.type));
      device_ops::add_turned(work.launches(), form, turned);
      form.q = {turned, device_ops::RowSteps::by_head(heads, form.queries, form.width)};
    }
    AttentionParts parts;
    parts.type = form.type;
    parts.precision = precision_;
    parts.q = operand(form, heads, form.queries, form.width, form.q.steps);
    const std::int64_t keys = std::min(form.keys, form.most_keys.value_or(form.keys));
    parts.k = operand(form, form.kv_heads, keys, form.width, form.k.steps);
    parts.v = operand(form, form.kv_heads, keys, form.value_width, form.v.steps);
    if (form.mask) {
      const DimsView dims = ctx.input(kMask).dims();
      parts.mask = Dims(dims.begin(), dims.end());
      parts.is_mask_of_bools = form.mask->type == DataType::Bool;
    }
    parts.memory = {form.q.memory, form.k.memory, form.v.memory};
    parts.is_grouped = parts.is_empty_zero = true;
    parts.before = form.before;
    parts.after = form.after;
    parts.y = {form.y.steps.batch, form.y.steps.head, form.y.steps.position};
    parts.scale = form.scale;
    add_attention_parts(work, parts, extent_of(parts), pieces);
  }

  static constexpr std::uint32_t kMask = 3;  ///< the input that attention by parts reads
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
