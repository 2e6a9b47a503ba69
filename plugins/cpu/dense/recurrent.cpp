#include "plugins/cpu/dense/recurrent.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

template <class T>
T gate_value(const GateFunction& function, T x) {
  const auto alpha = static_cast<T>(function.alpha);
  const auto beta = static_cast<T>(function.beta);
  switch (function.kind) {
    case GateFunction::kAffine:
      return alpha * x + beta;
    case GateFunction::kRelu:
      return x < 0 ? T(0) : x;
    case GateFunction::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case GateFunction::kThresholdedRelu:
      return x > alpha ? x : T(0);
    case GateFunction::kTanh:
      return std::tanh(x);
    case GateFunction::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case GateFunction::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case GateFunction::kHardSigmoid:
      return std::clamp(alpha * x + beta, T(0), T(1));
    case GateFunction::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case GateFunction::kSoftsign:
      return x / (1 + std::abs(x));
    case GateFunction::kSoftplus:
      return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
  }
  return x;
}

}  // namespace

template <class T, class W>
Recurrent<T, W>::Recurrent(const RecurrentShape& shape, Isa isa, unsigned threads)
    : shape_(shape),
      activations_(&activation_kernels(isa)),
      inputs_(shape.steps * shape.batch, shape.input, shape.gates() * shape.hidden, shape.products,
              isa, threads),
      states_(shape.batch, shape.hidden, (two_products() ? 2 : shape.gates()) * shape.hidden,
              shape.products, isa, threads),
      resets_(shape.batch, shape.hidden, shape.hidden, shape.products, isa, threads) {}

template <class T, class W>
void Recurrent<T, W>::pack_w(const Weights& w, T* packed, const sdk::Threads& threads) const {
  for (std::int64_t d = 0; d < shape_.directions; ++d)
    inputs_.pack(w, d * columns(), packed + d * inputs_.packed_size(), threads);
}

template <class T, class W>
void Recurrent<T, W>::pack_r(const Weights& r, T* packed, const sdk::Threads& threads) const {
  for (std::int64_t d = 0; d < shape_.directions; ++d) {
    T* to = packed + d * direction_r_size();
    const std::int64_t first = d * columns();
    states_.pack(r, first, to, threads);
    if (two_products())
      resets_.pack(r, first + 2 * shape_.hidden, to + states_.packed_size(), threads);
  }
}

template <class T, class W>
std::uint64_t Recurrent<T, W>::workspace_bytes() const {
  const auto elements = [](std::int64_t count) {
    return align64(static_cast<std::uint64_t>(count) * sizeof(T));
  };
  const std::int64_t state = shape_.batch * shape_.hidden;
  const std::uint64_t scratch =
      std::max({inputs_.workspace_bytes(), states_.workspace_bytes(), resets_.workspace_bytes()});
  return elements(shape_.steps * state * shape_.gates()) + 2 * elements(state * shape_.gates()) +
         4 * elements(state) + scratch;
}

template <class T, class W>
typename Recurrent<T, W>::Buffers Recurrent<T, W>::cut(char* workspace) const {
  const auto take = [&](std::int64_t count) {
    T* part = reinterpret_cast<T*>(workspace);
    workspace += align64(static_cast<std::uint64_t>(count) * sizeof(T));
    return part;
  };
  const std::int64_t state = shape_.batch * shape_.hidden;
  Buffers buffers{};
  buffers.from_x = take(shape_.steps * state * shape_.gates());
  buffers.from_h = take(state * shape_.gates());
  buffers.gates = take(state * shape_.gates());
  buffers.reset = take(state);
  buffers.again = take(state);
  buffers.h = take(state);
  buffers.c = take(state);
  buffers.scratch = workspace;
  return buffers;
}

template <class T, class W>
void Recurrent<T, W>::run(const RecurrentArgs<T>& args, char* workspace,
                          const sdk::Threads& threads) const {
  const Buffers buffers = cut(workspace);
  for (std::int64_t d = 0; d < shape_.directions; ++d) run_direction(args, d, buffers, threads);
}

template <class T, class W>
void Recurrent<T, W>::run_direction(const RecurrentArgs<T>& args, std::int64_t direction,
                                    const Buffers& buffers, const sdk::Threads& threads) const {
  const std::int64_t hidden = shape_.hidden;
  const auto start = [&](const T* initial, T* state) {
    for (std::int64_t b = 0; b < shape_.batch; ++b, state += hidden) {
      if (initial != nullptr) {
        std::copy_n(initial + state_at(direction, b), hidden, state);
      } else {
        std::fill_n(state, hidden, T(0));
      }
    }
  };
  start(args.initial_h, buffers.h);
  start(args.initial_c, buffers.c);
  if (shape_.steps > 0 && shape_.batch > 0 && hidden > 0) {
    const std::int64_t columns = shape_.gates() * hidden;
    const T* bias = args.bias != nullptr ? args.bias + direction * 2 * columns : nullptr;
    const std::int64_t longest =
        args.lengths == nullptr
            ? shape_.steps
            : std::int64_t{*std::max_element(args.lengths, args.lengths + shape_.batch)};
    const LiveRows live{shape_.batch * (shape_.batch_first ? shape_.steps : longest)};
    inputs_.run(args.x, live, args.w_packed + direction * inputs_.packed_size(), bias,
                buffers.from_x, buffers.scratch, threads);
    for (std::int64_t i = 0; i < longest; ++i) step({args, buffers, direction, i}, threads);
    // Behind the end of all sequences there is nothing to compute.
    for (std::int64_t i = longest; i < shape_.steps && args.y != nullptr; ++i) {
      for (std::int64_t b = 0; b < shape_.batch; ++b) store_y({args, buffers, direction, i}, b, -1);
    }
  }
  const auto finish = [&](const T* state, T* last) {
    for (std::int64_t b = 0; b < shape_.batch && last != nullptr; ++b)
      std::copy_n(state + b * hidden, hidden, last + state_at(direction, b));
  };
  finish(buffers.h, args.y_h);
  finish(buffers.c, args.y_c);
}

/// Step `turn.index` of every sequence that is longer.
template <class T, class W>
void Recurrent<T, W>::step(const Turn& turn, const sdk::Threads& threads) const {
  const Buffers& buffers = turn.buffers;
  const T* packed = turn.args.r_packed + turn.direction * direction_r_size();
  const T* bias = turn.args.bias != nullptr
                      ? turn.args.bias + turn.direction * 2 * columns() + columns()
                      : nullptr;
  const LiveRows live{shape_.batch, turn.args.lengths, turn.index};
  states_.run(buffers.h, live, packed, bias, buffers.from_h, buffers.scratch, threads);
  const auto each = [&](const auto& body) {
    split_loop(threads, shape_.batch, 10.0 * static_cast<double>(columns()), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t b = begin; b < end; ++b) body(b, time_of(turn, b));
               });
  };
  const bool is_gru = shape_.cell == Cell::kGru;
  if (is_gru) each([&](std::int64_t b, std::int64_t time) { reset_state(turn, b, time); });
  if (two_products()) {
    const T* last_bias = bias != nullptr ? bias + 2 * shape_.hidden : nullptr;
    resets_.run(buffers.reset, live, packed + states_.packed_size(), last_bias, buffers.again,
                buffers.scratch, threads);
  }
  each([&](std::int64_t b, std::int64_t time) {
    if (time >= 0 && !is_gru) sum_gates(buffers, b, time);
    if (time >= 0) next_state(turn, b);
    if (turn.args.y != nullptr) store_y(turn, b, time);
  });
}

/// The time of a step in a sequence: its index or, in reverse, so far from the sequence's end; -1 behind it.
template <class T, class W>
std::int64_t Recurrent<T, W>::time_of(const Turn& turn, std::int64_t b) const {
  const std::int32_t* lengths = turn.args.lengths;
  const std::int64_t length = lengths == nullptr ? shape_.steps : lengths[b];
  if (turn.index >= length) return -1;
  return is_reverse(turn.direction) ? length - 1 - turn.index : turn.index;
}

/// The parts of the gates that the products gave; of a GRU's last gate the one from X alone.
template <class T, class W>
void Recurrent<T, W>::sum_gates(const Buffers& buffers, std::int64_t b, std::int64_t time) const {
  const std::int64_t row = shape_.batch_first ? b * shape_.steps + time : time * shape_.batch + b;
  const T* from_x = buffers.from_x + row * columns();
  const T* from_h = buffers.from_h + b * state_columns();
  T* gates = buffers.gates + b * columns();
  const std::int64_t all = columns();
  const std::int64_t both = shape_.cell == Cell::kGru ? 2 * shape_.hidden : all;
  for (std::int64_t i = 0; i < both; ++i) gates[i] = from_x[i] + from_h[i];
  for (std::int64_t i = both; i < all; ++i) gates[i] = from_x[i];
}

/// Of a GRU: the update and reset gates, and what the reset gate leaves of the state or of its product.
template <class T, class W>
void Recurrent<T, W>::reset_state(const Turn& turn, std::int64_t b, std::int64_t time) const {
  const Buffers& buffers = turn.buffers;
  const std::int64_t hidden = shape_.hidden;
  T* reset = buffers.reset + b * hidden;
  if (time < 0) {
    std::fill_n(reset, hidden, T(0));
    return;
  }
  sum_gates(buffers, b, time);
  T* gates = buffers.gates + b * columns();
  apply(turn.direction, 0, gates, 2 * hidden);
  const T* linear =
      two_products() ? buffers.h + b * hidden : buffers.from_h + b * state_columns() + 2 * hidden;
  for (std::int64_t i = 0; i < hidden; ++i) reset[i] = gates[hidden + i] * linear[i];
}

/// From the sums of the gates to the state of a sequence.
template <class T, class W>
void Recurrent<T, W>::next_state(const Turn& turn, std::int64_t b) const {
  const Buffers& buffers = turn.buffers;
  const std::int64_t hidden = shape_.hidden;
  T* gates = buffers.gates + b * columns();
  T* h = buffers.h + b * hidden;
  switch (shape_.cell) {
    case Cell::kGru: {
      const T* more = (two_products() ? buffers.again : buffers.reset) + b * hidden;
      T* candidate = gates + 2 * hidden;
      for (std::int64_t i = 0; i < hidden; ++i) candidate[i] += more[i];
      apply(turn.direction, 1, candidate, hidden);
      for (std::int64_t i = 0; i < hidden; ++i)
        h[i] = (1 - gates[i]) * candidate[i] + gates[i] * h[i];
      break;
    }
    case Cell::kLstm: {
      const T* peepholes = turn.args.peepholes;
      if (peepholes != nullptr) peepholes += turn.direction * 3 * hidden;
      lstm(turn.direction, peepholes, gates, h, buffers.c + b * hidden);
      break;
    }
    case Cell::kRnn:
      apply(turn.direction, 0, gates, hidden);
      std::copy_n(gates, hidden, h);
      break;
  }
}

/// Y of a step; what lies behind the end of a sequence is zero.
template <class T, class W>
void Recurrent<T, W>::store_y(const Turn& turn, std::int64_t b, std::int64_t time) const {
  const std::int64_t hidden = shape_.hidden;
  const std::int64_t at = time < 0 ? turn.index : time;
  const std::int64_t line = shape_.batch_first
                                ? (b * shape_.steps + at) * shape_.directions + turn.direction
                                : (at * shape_.directions + turn.direction) * shape_.batch + b;
  T* y = turn.args.y + line * hidden;
  if (time < 0) {
    std::fill_n(y, hidden, T(0));
  } else {
    std::copy_n(turn.buffers.h + b * hidden, hidden, y);
  }
}

/// Gates in the order i, o, f, c; peepholes in the order i, o, f.
template <class T, class W>
void Recurrent<T, W>::lstm(std::int64_t direction, const T* peepholes, T* gates, T* h, T* c) const {
  const std::int64_t n = shape_.hidden;
  T* input = gates;
  T* output = gates + n;
  T* forget = gates + 2 * n;
  T* candidate = gates + 3 * n;
  if (peepholes != nullptr) {
    for (std::int64_t i = 0; i < n; ++i) {
      input[i] += peepholes[i] * c[i];
      forget[i] += peepholes[2 * n + i] * c[i];
    }
    apply(direction, 0, input, n);
    apply(direction, 0, forget, n);
  } else {
    apply(direction, 0, gates, 3 * n);
  }
  apply(direction, 1, candidate, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const T kept = shape_.input_forget ? 1 - input[i] : forget[i];
    c[i] = kept * c[i] + input[i] * candidate[i];
    h[i] = c[i];
  }
  if (peepholes != nullptr) {
    for (std::int64_t i = 0; i < n; ++i) output[i] += peepholes[n + i] * c[i];
    apply(direction, 0, output, n);
  }
  pass(direction, 2, h, n);  // the clip is for gates; a cell may be greater
  for (std::int64_t i = 0; i < n; ++i) h[i] *= output[i];
}

template <class T, class W>
void Recurrent<T, W>::apply(std::int64_t direction, std::int64_t index, T* x,
                            std::int64_t n) const {
  if (shape_.clip > 0) {
    const auto limit = static_cast<T>(shape_.clip);
    for (std::int64_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], -limit, limit);
  }
  pass(direction, index, x, n);
}

template <class T, class W>
void Recurrent<T, W>::pass(std::int64_t direction, std::int64_t index, T* x, std::int64_t n) const {
  const GateFunction& function =
      shape_.functions[static_cast<std::size_t>(direction * shape_.function_count() + index)];
  if constexpr (std::is_same_v<T, float>) {
    Activation activation;
    activation.kind =
        function.kind == GateFunction::kSigmoid ? Activation::kSigmoid : Activation::kTanh;
    if (function.kind == GateFunction::kSigmoid || function.kind == GateFunction::kTanh) {
      activations_->apply(activation, x, 0, 1, n);
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) x[i] = gate_value(function, x[i]);
}

template class Recurrent<float>;
template class Recurrent<double>;
template class Recurrent<float, std::uint8_t>;

}  // namespace backplane::cpu
