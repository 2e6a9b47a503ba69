// How a sum over pairs of subscripts becomes a product of matrices: which subscripts are rows, columns, depth and batch, and what has to
// be copied so that each of these is one axis.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/common/device_ops/einsum.hpp"

namespace backplane::device_ops {

/// A subscript of more than one element, and the steps along it; 0: an operand is the same along it, or the result has none.
struct EinsumAxis {
  std::int64_t dim = 1, a = 0, b = 0, y = 0;
  std::size_t subscript = 0;
};
using EinsumAxes = std::vector<EinsumAxis>;

struct EinsumMatrices {
  EinsumAxes batch, rows, columns, depth;

  /// In the order of the result. One that neither operand has is left out.
  void add(const EinsumAxis& axis, bool is_kept);
  /// The second operand becomes a.
  void swap();
  /// Whether that is better, or has to be: what lies together in the result is to be columns. `is_free`: the result may lie anyhow.
  bool wants_swap(const EinsumTarget& target, DataType type, bool is_free) const;
  std::int64_t results() const;
};

struct EinsumLayout {
  /// What is known of the operands, and of the result: whether it may lie anyhow, or has to be copied.
  struct Given {
    MemoryRef a, b;
    bool copies_a = false, copies_b = false, y_is_free = false, copies_y = false;
  };

  EinsumMatrices matrices;  ///< with the steps that the product is to have
  bool copies_a = false, copies_b = false, copies_y = false;

  /// The one with fewer copies, unless that is too many launches. `product` has its type.
  static EinsumLayout of(const EinsumMatrices& matrices, const EinsumTarget& target,
                         EinsumProduct product, const Given& given);
  void set_steps(EinsumProduct& product) const;

 private:
  /// `is_dense`: batches are one axis, whatever has to be copied for that; else axes may become part of the batch.
  static EinsumLayout arranged(const EinsumMatrices& matrices, const EinsumTarget& target,
                               EinsumProduct product, const Given& given, bool is_dense);
  void place_result(const Given& given, bool is_dense);
  void place_operands(const Given& given, bool is_dense);
};

}  // namespace backplane::device_ops
