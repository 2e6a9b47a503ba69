// Matrix products of doubles.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {

/// A matrix whose elements are at data[i * row + j * column].
struct MatrixF64 {
  const double* data;
  std::int64_t row;
  std::int64_t column;
};

/// The columns of a product that are computed together; a part of them begins at a multiple of it.
inline constexpr std::int64_t kProductColumnsF64 = 16;

/// y[i * y_row + j] = sum over k < depth of a[i, k] b[k, j], for i < rows and j < columns. Sums are made in the order of k, however
/// rows and columns are cut.
using ProductF64 = void (*)(const MatrixF64& a, const MatrixF64& b, std::int64_t rows,
                            std::int64_t depth, std::int64_t columns, double* y,
                            std::int64_t y_row);

ProductF64 product_f64(Isa isa);

/// Calls part(first, count) for columns of such a product, on several threads where that pays.
template <class Part>
void split_columns_f64(const sdk::Threads& threads, std::int64_t rows, std::int64_t depth,
                       std::int64_t columns, const Part& part) {
  const double ns = 0.07 * static_cast<double>(rows) * static_cast<double>(depth);
  split_loop(threads, columns, ns, kProductColumnsF64,
             [&](std::int64_t begin, std::int64_t end) { part(begin, end - begin); });
}

}  // namespace backplane::cpu
