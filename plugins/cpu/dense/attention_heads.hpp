// Operands of attention operators: tensors of heads, their masks, and what they cost.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/attention_f32.hpp"

namespace backplane::cpu {

// Windows of more positions than any tensor has are none; sums with them stay in range.
inline constexpr std::int64_t kWidestWindow = std::int64_t{1} << 40;

/// A tensor of heads: its dims by name, and the steps between its elements.
struct Heads {
  std::int64_t batch = 0, heads = 0, positions = 0, width = 0;
  HeadSteps steps;

  /// Of [batch, heads, positions, width] or, `positions_first`, [batch, positions, heads, width].
  static Heads of_axes(std::int64_t batch, std::int64_t heads, std::int64_t positions,
                       std::int64_t width, bool positions_first) {
    Heads result{batch, heads, positions, width, {}};
    result.steps.batch = heads * positions * width;
    result.steps.head = positions_first ? width : positions * width;
    result.steps.position = positions_first ? heads * width : width;
    return result;
  }

  sdk::Dims dims(int rank, bool positions_first) const {
    if (rank == 3) return {batch, positions, heads * width};
    if (positions_first) return {batch, positions, heads, width};
    return {batch, heads, positions, width};
  }
};

/// Of 4 axes, or of 3 whose last one holds `count` heads; `name` is for messages.
Heads heads_of(const sdk::Tensor& tensor, std::int64_t count, bool positions_first,
               const char* name);

void check_same_size(std::int64_t a, std::int64_t b, const char* what);

/// The mask, whose `dims` broadcast to [batch, heads, queries, keys]; `pads`: a shorter last axis masks the keys after it.
void plan_mask(const sdk::Tensor& mask, const sdk::Dims& dims, const AttentionShape& shape,
               bool pads, AttentionArgs& args);

std::uint64_t attention_flops(const AttentionShape& shape);

}  // namespace backplane::cpu
