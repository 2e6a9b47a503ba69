// fp32 products of two tensors that are told by steps: sums over pairs of axes in any order, by the kernels of matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plugins/cpu/dense/matmul_f32.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"

namespace backplane::cpu {

/// One axis of y[...] = sum of a[...] * b[...]: its size, and the steps along it in elements. 0: an operand does not
/// have the axis, or the result does not, which is then a sum along it.
struct ProductAxis {
  std::int64_t dim = 1;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t y = 0;
};
using ProductAxes = std::vector<ProductAxis>;

/// A product made ready: every axis belongs to the batch (both operands have it), to the rows (A), to the columns (B) or to
/// the depth (a sum). What the matrix kernels cannot read or write where it lies is copied. Immutable.
class StridedProduct {
 public:
  /// `axes` in the order of the result's axes, the sums after them; none of 0 elements. The result is dense.
  /// Gives nothing where plain loops are as good: for matrices of a few elements, and for sums along axes of one
  /// operand alone.
  static std::optional<StridedProduct> make(ProductAxes axes, Isa isa, unsigned threads);

  std::uint64_t workspace_bytes() const;
  void run(const float* a, const float* b, float* y, void* workspace,
           const sdk::Threads& threads) const;

 private:
  /// A dense copy of an operand or of the result.
  struct Copy {
    bool needed = false;
    StridedCopy copy;
    std::uint64_t bytes() const;
  };
  struct Classes {
    ProductAxes batch, rows, columns, depth;
  };

  StridedProduct(Classes classes, bool swapped, Isa isa, unsigned threads);
  static bool classify(const ProductAxes& axes, Classes& classes);
  void copy_operands(Classes& classes, Isa isa);
  void list_products(const ProductAxes& batch);

  bool swapped_;  // the first tensor is B
  Copy a_, b_, y_;
  std::vector<std::int64_t> a_offsets_, b_offsets_, y_offsets_;  // one per product
  std::int64_t a_stride_ = 0;
  std::int64_t y_stride_ = 0;
  std::optional<MatMulF32> product_;
};

}  // namespace backplane::cpu
