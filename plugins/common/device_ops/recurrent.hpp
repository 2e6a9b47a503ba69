// Recurrent layers (RNN, GRU, LSTM) on devices: the products of all inputs are a provider's own, in the workspace; what follows is shared,
// one launch a step, or two of a GRU whose last gate multiplies what its reset gate left (kernels/recurrent.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/recurrent_node.hpp"

namespace backplane::device_ops {

/// A layer of known sizes, and where its memory is.
struct RecurrentForm : common::RecurrentLayer {
  DataType type = DataType::Float;
  DataType sum_type = DataType::Float;  ///< of sums and states: float, or double
  bool has_bias = false, has_lengths = false, has_initial_h = false, has_initial_c = false;
  bool has_peepholes = false, has_y = false, has_y_h = false, has_y_c = false;
  std::int64_t panel = 0;   ///< units of a panel of R; 0: r is the node's, as it lies
  std::int64_t vector = 1;  ///< numbers of a vector, where there are panels

  MemoryRef r;
  MemoryRef from_x;  ///< [steps * batch][columns()] of sum_type, rows in X's order
  MemoryRef h, c, update, reset;

  /// Of the products of X: X[steps * batch][input] W[columns()][input]^T.
  std::int64_t columns() const { return directions * gates() * hidden; }
  bool is_empty() const { return batch == 0 || hidden == 0; }
  /// Whether X has elements, of sequences that have any: else there is no product, nor `from_x`.
  bool has_products() const { return !is_empty() && steps > 0 && input > 0; }
  /// Lays out `from_x` and the states.
  void place(WorkspacePieces& pieces);
  /// R as panels, of sum_type.
  std::int64_t panel_bytes() const;
};

class Recurrent {
 public:
  explicit Recurrent(const sdk::Node& node);
  /// Checks the inputs, and sets the outputs and the cost.
  RecurrentForm begin(sdk::PrepareContext& ctx, const Device& device) const;

 private:
  common::RecurrentLayer layer_;
};

/// Writes panels of R, the node's input.
void add_recurrent_panels(Work& work, const RecurrentForm& form, const MemoryRef& to);
/// The same of a constant R, for its packing. Of layers whose sums are float.
std::vector<float> recurrent_panels(const RecurrentForm& form, const float* r);

/// All that follows the products of X.
void add_recurrent_steps(Work& work, const RecurrentForm& form);

/// The operators, for a provider to register with a kernel of its own.
std::vector<sdk::KernelBuilder> recurrent_ops();

}  // namespace backplane::device_ops
