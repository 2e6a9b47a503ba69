// Products of few rows and a matrix, whose time is what the matrix takes to come from memory (kernels/row_product.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {

/// y[matrix][row][column] = activation(factor * a b + addend_factor * c + bias), of operands with a step along each axis; rows of y
/// and c lie together, and columns of b ([depth][columns]) or, where they lie apart, its depth ([columns][depth]).
struct RowProduct {
  DataType type =
      DataType::Float;  ///< of all operands: float32, float16 or bfloat16; sums are float32
  std::int64_t rows = 1, depth = 1, columns = 1, matrices = 1;
  std::int64_t a_k = 1, a_row = 0, a_matrix = 0;
  std::int64_t b_step = 0, b_matrix = 0;
  bool is_apart = false;
  std::int64_t y_row = 0, y_matrix = 0, bias_matrix = 0;
  bool has_addend = false, has_bias = false;
  double factor = 1, addend_factor = 1;
  std::string activation = "s";  ///< of the sum `s`, in words of kernels/scalar_functions.hpp

  std::int64_t element_bytes() const { return sdk::element_bytes(type); }
  /// Elements that are read at once where addresses and steps allow it.
  std::int64_t width() const { return 16 / element_bytes(); }
  /// Whether steps do.
  bool is_wide() const;
  std::uint64_t matrix_bytes() const;  ///< of b, all matrices
};

/// How items share the work; see kernels/row_product.hpp.
struct RowProductForm {
  std::int64_t across = 1, lanes = 1, items = 1, per = 1, unrolled = 1;
  std::int64_t parts =
      1;  ///< of the depth, each of its own groups; what they find meets in a second kernel

  bool operator==(const RowProductForm&) const = default;
  std::uint64_t workspace_bytes(const RowProduct& product) const;
};

/// What forms depend on.
struct RowProductDevice {
  int multiprocessors = 1;
  double memory_bytes_per_ns = 0;  ///< 0: unknown
};

/// The most rows of a product.
inline constexpr std::int64_t kMostProductRows = 4;

/// Forms that may be the fastest, the likeliest first. At least one row, column and place along the depth.
std::vector<RowProductForm> row_product_forms(const RowProduct& product,
                                              const RowProductDevice& device);

/// Where operands are; c, bias and the workspace only where they are used.
struct RowProductMemory {
  MemoryRef a, b, c, bias, y, workspace;
};
/// One launch, or two where the depth is divided.
void add_row_product(Work& work, const RowProduct& product, const RowProductForm& form,
                     const RowProductMemory& memory);

}  // namespace backplane::device_ops
