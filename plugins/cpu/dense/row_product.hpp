// fp32 products of a few rows with a matrix that is read where it lies: to pack it would take longer than the product.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// y[i][j] = sum over k of a[i][k] * b[k][j]. Strides count elements. Nothing is owned.
struct RowProductArgs {
  const float* const* a;  // by row
  std::int64_t rows;
  const void* b;          // numbers of the kernels' type
  std::int64_t b_stride;  // between rows of the matrix as it lies
  std::int64_t depth, columns;
  float* y;
  std::int64_t y_stride;
  bool adds = false;  // to what y holds; along_columns alone
};

/// The kernels of one instruction set and one type of b, which become the floats that they are. The order of a sum does not
/// depend on what else is computed with it, so that parts of the columns give what the whole gives, bit by bit.
struct RowProductKernels {
  /// b is [depth, columns].
  void (*along_columns)(const RowProductArgs& args);
  /// b is [columns, depth].
  void (*along_depth)(const RowProductArgs& args);
};

/// Rows up to which these are the faster products.
inline constexpr std::int64_t kMostProductRows = 24;

/// For Float, Float16 and BFloat16; of 16 bits null where the set has no such loads.
const RowProductKernels* row_product_kernels(Isa isa, sdk::DataType type);

}  // namespace backplane::cpu
