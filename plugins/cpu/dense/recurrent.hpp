// The recurrent layers RNN, GRU and LSTM: one product for the inputs of all steps, one for each step's state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/recurrent_node.hpp"
#include "plugins/cpu/dense/activation.hpp"
#include "plugins/cpu/dense/line_product.hpp"
#include "plugins/cpu/dense/weight_attributes.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {

using common::Cell;
using common::GateFunction;

struct RecurrentShape : common::RecurrentLayer {
  ProductPrecision products = ProductPrecision::kFloat;  // in float layers
};

/// The memory of a run, in ONNX's names and dims; null where an optional one is left out.
template <class T>
struct RecurrentArgs {
  const T* x = nullptr;
  const T* w_packed = nullptr;
  const T* r_packed = nullptr;
  const T* bias = nullptr;
  const std::int32_t* lengths = nullptr;  // in [0, steps]
  const T* initial_h = nullptr;
  const T* initial_c = nullptr;
  const T* peepholes = nullptr;
  T* y = nullptr;
  T* y_h = nullptr;
  T* y_c = nullptr;
};

/// A layer made ready, in float or double, with weights of type W: T, or bytes of a float layer. Immutable.
template <class T, class W = T>
class Recurrent {
 public:
  using Weights = typename LineProduct<W>::Weights;

  Recurrent(const RecurrentShape& shape, Isa isa, unsigned threads);

  std::int64_t steps() const { return shape_.steps; }
  /// Elements of the packed W and R of all directions; they do not depend on steps and batch.
  std::int64_t w_size() const { return shape_.directions * inputs_.packed_size(); }
  std::int64_t r_size() const { return shape_.directions * direction_r_size(); }
  void pack_w(const Weights& w, T* packed, const sdk::Threads& threads) const;
  void pack_r(const Weights& r, T* packed, const sdk::Threads& threads) const;
  std::uint64_t workspace_bytes() const;
  void run(const RecurrentArgs<T>& args, char* workspace, const sdk::Threads& threads) const;

 private:
  /// The parts of the workspace of one direction.
  struct Buffers {
    T* from_x;  // [steps * batch, gates * hidden], rows in X's order
    T* from_h;  // [batch, state columns]
    T* gates;   // [batch, gates * hidden]
    T* reset;   // GRU: [batch, hidden], r * H
    T* again;   // GRU: [batch, hidden], its product
    T* h;       // [batch, hidden]
    T* c;
    char* scratch;
  };
  /// One step of a direction.
  struct Turn {
    const RecurrentArgs<T>& args;
    const Buffers& buffers;
    std::int64_t direction;
    std::int64_t index;
  };

  std::int64_t direction_r_size() const {
    return states_.packed_size() + (two_products() ? resets_.packed_size() : 0);
  }
  bool two_products() const { return shape_.two_products(); }
  Buffers cut(char* workspace) const;
  void run_direction(const RecurrentArgs<T>& args, std::int64_t direction, const Buffers& buffers,
                     const sdk::Threads& threads) const;
  std::int64_t columns() const { return shape_.gates() * shape_.hidden; }
  std::int64_t state_columns() const { return two_products() ? 2 * shape_.hidden : columns(); }
  void step(const Turn& turn, const sdk::Threads& threads) const;
  std::int64_t time_of(const Turn& turn, std::int64_t b) const;
  void sum_gates(const Buffers& buffers, std::int64_t b, std::int64_t time) const;
  void reset_state(const Turn& turn, std::int64_t b, std::int64_t time) const;
  void next_state(const Turn& turn, std::int64_t b) const;
  void store_y(const Turn& turn, std::int64_t b, std::int64_t time) const;
  void lstm(std::int64_t direction, const T* peepholes, T* gates, T* h, T* c) const;
  /// x through function `index` of a direction, in place; `apply` clips it before.
  void apply(std::int64_t direction, std::int64_t index, T* x, std::int64_t n) const;
  void pass(std::int64_t direction, std::int64_t index, T* x, std::int64_t n) const;
  bool is_reverse(std::int64_t direction) const {
    return direction == 1 || shape_.first_is_reverse;
  }
  /// Where a state of [directions, batch, hidden] or [batch, directions, hidden] stands.
  std::int64_t state_at(std::int64_t direction, std::int64_t b) const {
    return (shape_.batch_first ? b * shape_.directions + direction : direction * shape_.batch + b) *
           shape_.hidden;
  }

  RecurrentShape shape_;
  const ActivationKernels* activations_;
  LineProduct<W> inputs_;
  LineProduct<W> states_;
  LineProduct<W> resets_;
};

extern template class Recurrent<float>;
extern template class Recurrent<double>;
extern template class Recurrent<float, std::uint8_t>;

}  // namespace backplane::cpu
