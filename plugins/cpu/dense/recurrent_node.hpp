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

/// All but the packed weights. `input(i)` and `output(i)` give elements, null for what is absent. Only an LSTM has cells.
template <class T, class InputOf, class OutputOf>
RecurrentArgs<T> recurrent_args(const sdk::ComputeContext& ctx, Cell cell, const InputOf& input,
                                const OutputOf& output) {
  using Input = RecurrentInput;
  RecurrentArgs<T> args;
  args.x = input(Input::kX);
  args.bias = input(Input::kBiases);
  if (ctx.has_input(Input::kLengths))
    args.lengths = ctx.input(Input::kLengths).data<std::int32_t>();
  args.initial_h = input(Input::kH);
  if (cell == Cell::kLstm) args.initial_c = input(Input::kC);
  if (cell == Cell::kLstm) args.peepholes = input(Input::kP);
  args.y = output(0);
  args.y_h = output(1);
  if (cell == Cell::kLstm) args.y_c = output(2);
  return args;
}

}  // namespace backplane::cpu
