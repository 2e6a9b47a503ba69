// FusedAttention: what rewrites make of an attention that stands as nodes (patterns/attention), and what providers need to know of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plugins/common/device_ops/row_attention.hpp"
#include "plugins/common/patterns/attention.hpp"

namespace backplane::device_ops {

/// [batch, heads, rows, columns] of the scores, and of these with the mask; [batch, heads, rows, width] of the result.
struct AttentionExtent {
  Dims scores, masked, result;
};
/// Batches, heads and the mask broadcast as operands of MatMul and Add do; where it is grouped, a head of k and v is that of as many
/// of q's as there are for each. Errors: BP_INVALID_ARGUMENT where operands do not fit.
AttentionExtent attention_extent(const HeadRows& q, const HeadRows& k, const HeadRows& v,
                                 const std::optional<Dims>& mask, bool is_grouped);

/// One in a run: softmax(cap * tanh(scale * q k' / cap) + mask) v.
struct SizedAttention {
  DataType type = DataType::Float;
  HeadRows q, k, v;
  std::int64_t group = 1;    ///< heads of q for each of k and v
  std::optional<Dims> mask;  ///< its dims, of up to four axes
  RowMask mask_form;         ///< of a mask: its steps are over the masked scores
  double scale = 1, softcap = 0;
  EmptyRow empty = EmptyRow::kNan;
  AttentionExtent extent;
  Dims lying;  ///< the result's four axes, as they lie
  RowSteps y;

  bool has_result() const { return sdk::element_count(lying) > 0; }
  /// Few beside the positions, which are to be read as fast as they can be; every token has more of them. On processors one, since
  /// products read them as fast.
  bool is_of_few_rows(const Device& device) const;
  /// Whether nothing is repeated along axes but heads in groups, and a mask.
  bool is_whole() const;
  /// As the shared kernels compute it: of one that is whole, whose mask has all columns or none.
  RowAttention rows() const;
};

/// The node's attributes: "scale"; "axes" of q, k, v and y, "bhs" or "bsh" each; "group"; "softcap"; of a mask of bools "chosen" and
/// "otherwise"; "is_nan_zero". Operands of three axes have no heads.
class FusedAttention {
 public:
  explicit FusedAttention(const sdk::Node& node);
  /// Sets the output and the cost. Errors: BP_INVALID_ARGUMENT where operands do not fit.
  SizedAttention begin(sdk::PrepareContext& ctx) const;

 private:
  std::string axes_;
  std::int64_t group_;
  float scale_, softcap_;
  bool is_nan_zero_, is_chosen_, chosen_;
  float otherwise_;
};

/// Why it is none that FusedAttention computes; empty where it is. Dims may be unknown: what they are is looked at in a run.
std::string attention_refusal(const patterns::DecomposedAttention& found);
/// The node, which replaces those that were found, the product of the scores first.
sdk::NodeDraft fused_attention(const patterns::DecomposedAttention& found, sdk::Rewrite& edit);

}  // namespace backplane::device_ops
