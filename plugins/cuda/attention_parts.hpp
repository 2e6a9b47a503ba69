// Attention by parts that always work, where cuDNN has no plan: the provider's own products, the scores between them in a
// workspace, where the mask is added, and Softmax by rows. It is what the nodes compute apart, without their transpositions
// where products can step over what lies between rows. Scores of many rows are computed some rows at a time, in the same
// memory, and of these only the columns that windows leave.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "plugins/common/device_ops/fused_attention.hpp"
#include "plugins/cuda/attentions.hpp"
#include "plugins/cuda/integer_lines.hpp"
#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {

/// softmax(scale * q k' + mask) v of operands of one type. Batches, heads and the mask broadcast as operands of MatMul and Add do, or of
/// Where.
struct AttentionParts {
  DataType type = DataType::Float;
  Precision precision = Precision::kFp32;  ///< of products of float32
  AttentionOperand q, k, v;
  /// Of q, k, v and the mask.
  std::array<device_ops::MemoryRef, 4> memory{device_ops::input(0), device_ops::input(1),
                                              device_ops::input(2), device_ops::input(3)};
  device_ops::MemoryRef result = device_ops::output(0);
  std::optional<Dims> mask;  ///< of up to four axes
  std::optional<AttentionSteps>
      mask_steps;           ///< where it is part of a larger one; none: it is dense
  bool is_grouped = false;  ///< a head of k and v is that of as many of q's as there are for each
  bool is_mask_of_bools =
      false;  ///< scores whose element is `chosen` stay, others become `otherwise`
  bool chosen = true;
  double otherwise = -std::numeric_limits<double>::infinity();
  double softcap = 0;  ///< scores are softcap * tanh(score / softcap) before the mask, unless 0
  /// How far before and after its own position a row attends; none: without an end.
  std::optional<std::int64_t> before, after;
  std::int64_t first_place = 0;  ///< of the first row among the positions
  device_ops::EmptyRow empty = device_ops::EmptyRow::kNan;
  AttentionSteps y;
  double scale = 1;
};

using AttentionExtent = device_ops::AttentionExtent;
inline AttentionExtent extent_of(const AttentionParts& parts) {
  return device_ops::attention_extent(parts.q, parts.k, parts.v, parts.mask, parts.is_grouped);
}

/// The result has elements. Errors: BP_UNSUPPORTED where cuBLASLt has no algorithm.
void add_attention_parts(NodeWork& work, const AttentionParts& parts, const AttentionExtent& extent,
                         WorkspacePieces& pieces);

}  // namespace backplane::cuda
