// Einsum on devices: what of an equation is a matrix product is a provider's own, where operands and the result lie or from copies
// of them; sums along subscripts that one operand alone has, and products without sums, are the shared kernels'.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/einsum_node.hpp"
#include "plugins/common/kernels/pointwise.hpp"

namespace backplane::device_ops {

/// y[row][column] = the sum over the depth of a[row][k] * b[k][column], for each matrix of a batch. Steps are in elements. Columns of
/// y lie together; of one row, column or element of depth the step along it is of no meaning.
struct EinsumProduct {
  DataType type = DataType::Float;  ///< of a, b and y
  MemoryRef a, b, y;
  std::int64_t rows = 1, columns = 1, depth = 1;
  std::int64_t a_row = 1, a_depth = 1, b_depth = 1, b_column = 1, y_row = 1;
  common::StridedLoops batch;  ///< axes, merged, the longest last, with the steps of a, b and y
};

/// What a provider's products can do, and where a node's work goes.
class EinsumTarget {
 public:
  EinsumTarget() = default;
  EinsumTarget(const EinsumTarget&) = delete;
  EinsumTarget& operator=(const EinsumTarget&) = delete;
  virtual ~EinsumTarget() = default;

  /// Where launches after what was added last are put.
  virtual Work& launches() = 0;
  /// How many axes of a batch are one launch; each product along the others is a launch of its own.
  virtual std::size_t batch_axes(DataType type) const = 0;
  virtual bool reads_a(const EinsumProduct& product) const = 0;
  virtual bool reads_b(const EinsumProduct& product) const = 0;
  /// Whether a vector is better a lone row than a lone column; `lie_together`: what would be the columns of the matrix does.
  virtual bool wants_lone_row(DataType type, bool lie_together) const = 0;
  /// Adds one whose operands it reads. Returns what multiplies.
  virtual std::string add(const EinsumProduct& product, WorkspacePieces& pieces) = 0;
};

/// The launches of a batch: all axes but the last `in_launch`.
std::int64_t launch_count(const common::StridedLoops& batch, std::size_t in_launch);

class Einsum {
 public:
  explicit Einsum(const sdk::Node& node) : equation_(node) {}
  /// Sets the output, the workspace, the cost and the variant.
  void prepare(sdk::PrepareContext& ctx, EinsumTarget& target) const;

 private:
  common::EinsumEquation equation_;
};

/// The operator, for a provider to register with a kernel of its own.
sdk::KernelBuilder einsum_op();

}  // namespace backplane::device_ops
