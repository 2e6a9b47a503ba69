// A recurrent node (common/recurrent_node.hpp) as this provider's layers take it.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/recurrent_node.hpp"
#include "plugins/cpu/dense/recurrent.hpp"

namespace backplane::cpu {

using common::check_recurrent_dims;
using common::RecurrentInput;
using common::set_recurrent_dims;

/// The attributes; `hidden` is 0 where the node does not say it.
inline RecurrentShape recurrent_shape(const sdk::Node& node, Cell cell) {
  RecurrentShape shape;
  static_cast<common::RecurrentLayer&>(shape) = common::recurrent_layer(node, cell);
  return shape;
}
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
