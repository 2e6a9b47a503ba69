// The dims of matrix products with numpy's rules: batch axes broadcast, vectors count as a row or a column.
#pragma once

#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::cpu {

/// A product of A [..., rows, depth] and B [..., depth, columns].
struct MatMulDims {
  int64_t rows = 1;
  int64_t depth = 0;
  int64_t columns = 1;
  sdk::Dims batch;                 // broadcast
  std::vector<int64_t> a_indices;  // per product: which matrix of A, which of B
  std::vector<int64_t> b_indices;
  sdk::Dims out;

  /// `b_transposed`: B is [..., columns, depth]. Throws sdk::Error when the dims do not fit.
  MatMulDims(sdk::DimsView a, sdk::DimsView b, bool b_transposed);
  /// Whether all products have one B.
  bool shared_b() const;
  /// Whether the matrices of A are taken in order, each once.
  bool a_in_order() const;
};

/// What rewrites have a product add. Throws sdk::Error unless a bias, where present, is one row of the result, [columns] or
/// [1, columns] and so on, and a residual has the result's dims, `out`.
void check_addends(const sdk::Tensor& bias, const sdk::Tensor& residual, int64_t columns,
                   sdk::DimsView out);

}  // namespace backplane::cpu
