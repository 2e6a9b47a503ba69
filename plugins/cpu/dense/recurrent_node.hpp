// What a recurrent node says of its layer, and where its inputs and outputs stand.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/recurrent.hpp"

namespace backplane::cpu {

/// Inputs of RNN, GRU and LSTM.
struct RecurrentInput {
  static constexpr std::uint32_t kX = 0, kW = 1, kR = 2, kBiases = 3, kLengths = 4, kH = 5, kC = 6,
                                 kP = 7;
};

/// The attributes; `hidden` is 0 where the node does not say it.
RecurrentShape recurrent_shape(const sdk::Node& node, Cell cell);
/// Takes the other sizes from X, `hidden` from R; checks the dims of what has no weights, and sets those of the outputs.
void set_recurrent_dims(sdk::PrepareContext& ctx, std::int64_t hidden, RecurrentShape& shape);
/// Of an input that may be absent.
void check_recurrent_dims(const sdk::PrepareContext& ctx, std::uint32_t index, const char* name,
                          const sdk::Dims& wanted);
/// Throws for a length that is not in [0, steps].
void check_lengths(const sdk::Tensor& lengths, std::int64_t steps);

}  // namespace backplane::cpu
