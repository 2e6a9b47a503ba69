// GroupQueryAttention: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// One kernel puts the past's rows of keys and values and the new ones side by side in the present, and attention reads
// them there; queries are turned when they are read. What is not handled here is left to the operator's body.
#pragma once

#include <cstdint>

#include "plugins/common/device_ops/row_attention.hpp"
#include "plugins/common/group_query_values.hpp"

namespace backplane::device_ops {

class GroupQueryAttention : public common::GroupQueryValues {
 public:
  GroupQueryAttention(const Device& device, const sdk::Node& node);
  void prepare(sdk::PrepareContext& ctx, Work& work) const;

  /// Sets the outputs and adds what keeps keys and values: what is left is the attention that is returned. `end`: bytes of the
  /// workspace that are taken.
  RowAttention begin(sdk::PrepareContext& ctx, Work& work, std::uint64_t& end) const;

 private:
  void find_heads(const sdk::PrepareContext& ctx, RowAttention& form, RowCache& keys,
                  RowCache& values) const;
  void find_caches(const sdk::PrepareContext& ctx, RowAttention& form, RowCaches& caches,
                   RowCache& keys, RowCache& values) const;
  void find_turn(const sdk::PrepareContext& ctx, RowAttention& form) const;
  /// Its last axis may be as long as the room.
  static void find_bias(const sdk::PrepareContext& ctx, RowAttention& form);
  /// Gives a cache its place, the output or, where nobody wants that, the workspace at `end`, and adds it to `caches`; without a past
  /// or a turn its rows stay where they are.
  void keep(sdk::PrepareContext& ctx, const Device& device, const RowAttention& form,
            RowCache& cache, std::uint32_t index, RowCaches& caches, std::uint64_t& end) const;

  std::int64_t heads_, kv_heads_;
  double scale_, softcap_;
  std::int64_t window_;
  bool is_causal_, turns_, is_interleaved_;
};

/// The operator, for a provider to register with a kernel of its own.
sdk::KernelBuilder group_query_attention_op();

}  // namespace backplane::device_ops
