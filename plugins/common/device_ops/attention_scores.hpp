// Scores of an attention whose products are the provider's: in memory, where they become weights.
#pragma once

#include <cstdint>
#include <optional>

#include "plugins/common/device_ops/row_attention.hpp"

namespace backplane::device_ops {

/// Scores of [batch, heads, rows, columns], and what becomes of each on its way to a weight, in this order.
struct AttentionScores {
  DataType type = DataType::Float;  ///< of the scores; bounds, masks and sums are float
  Dims dims;
  MemoryRef memory;
  double softcap = 0;           ///< they are softcap * tanh(score / softcap), unless 0
  std::optional<RowMask> mask;  ///< over `dims`
  bool mask_is_along = true;    ///< each column has an element of it, or a row has one
  /// How far before and after its own position a row attends; none: without an end.
  std::optional<std::int64_t> before, after;
  std::int64_t first_place = 0;  ///< of the first row among the positions
  EmptyRow empty = EmptyRow::kNan;
};

/// A mask of up to four axes that lies dense, over scores of these dims.
RowMask dense_mask(const MemoryRef& memory, DataType type, const Dims& mask, const Dims& scores);
/// Whether each column has an element of a mask of these dims.
inline bool is_along(const Dims& mask) { return !mask.empty() && mask.back() != 1; }

/// Bounded and masked scores go to `to`, dense, of dims to which `from` and the mask broadcast: for masks of axes that the scores
/// have not. What is left to do with them is returned.
AttentionScores add_masked(Work& work, const AttentionScores& from, const Dims& mask,
                           const Dims& dims, const MemoryRef& to);

/// What add_weights takes of a workspace.
std::uint64_t weights_bytes(const Device& device, const AttentionScores& scores);
/// Softmax by rows, in place: what is left to do with scores is done where rows are read.
void add_weights(Work& work, const AttentionScores& scores, const MemoryRef& workspace);

}  // namespace backplane::device_ops
