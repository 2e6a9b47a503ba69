// Launches of matrix products: see common/kernels/product.hpp for what is computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/opencl/kernel.hpp"
#include "plugins/opencl/kernels/activation.hpp"

namespace backplane::opencl {

/// How a product is cut into work items.
enum class Tiling { kVector, kLocal, kDot };

struct Tile {
  Tiling tiling = Tiling::kLocal;
  std::int64_t rows = 1;     ///< MR: rows of a work item
  std::int64_t vectors = 1;  ///< NV
  std::int64_t width = 4;    ///< VW: floats of a vector

  std::int64_t columns() const { return vectors * width; }
  std::string name() const;
};

/// The tile for `rows` x `columns`. `may_pass_end`: loads may go past the last column.
Tile choose_tile(const Device& device, DataType type, std::int64_t rows, std::int64_t columns,
                 bool may_pass_end);

/// That tile, and with option `tuning` the others that option `tiles` allows and that may be faster.
std::vector<Tile> tiles_to_try(const Device& device, DataType type, std::int64_t rows,
                               std::int64_t columns, bool may_pass_end);

/// Steps of an operand through the batch, in elements.
struct BatchSteps {
  std::int64_t outer = 0, inner = 0;
};

/// What becomes of sums of integers, which are exact in 32 bits; a and b hold integers between -255 and 255 as floats then.
struct IntegerResult {
  DataType type = DataType::Int32;  ///< of y
  bool has_scales = false;          ///< else the sums are stored as they are
  DataType scale_type = DataType::Float;
  MemoryRef a_scale, b_scale, y_scale, y_zero;
  enum class Scales { kOne, kByColumn, kByRow } b_scales = Scales::kOne;
};

struct Product {
  DataType type = DataType::Float;
  std::int64_t rows = 0, columns = 0, channels = 0;  ///< m, p, c
  std::vector<std::int32_t> tap_offsets{0};          ///< in elements of b

  MemoryRef a, b, y, bias, residual;
  std::int64_t a_row = 0, a_step = 1;      ///< of m and k; without meaning for a panel
  std::int64_t b_channel = 0, b_step = 1;  ///< of c and p
  std::int64_t y_row = 0;
  bool a_is_panel = false, b_is_panel = false;
  bool b_has_slack = false;  ///< loads may pass b's last column
  bool has_bias = false, has_residual = false;
  std::int64_t bias_row = 0, bias_inner = 0;
  bool bias_is_along = false;  ///< one per column
  float factor = 1;
  Activation activation = Activation::make("", {});

  std::int64_t batch = 1, inner = 1;
  BatchSteps a_batch, b_batch, y_batch;

  std::optional<IntegerResult>
      integer;  ///< bias is of type int32 then, and by rows; no residual, activation or factor

  /// Lines of a padded image: see ROWED and DEEP.
  bool is_rowed = false, is_deep = false;
  std::int64_t pitch = 1, line = 1, lines = 1, line_rows = 1;
};

/// Whether tiles of vectors can add the products of integers so that the sums are exact.
bool is_exact_by_vectors(std::size_t taps);

void add_product(Work& work, const Product& product, const Tile& tile);

/// A product for each matrix of a batch: `loops` has its axes, merged, and the steps of a, b and y along them, in elements. Two
/// axes are one launch; further ones, which hardly any model has, are launches of their own.
void add_products(Work& work, const Product& product, const common::StridedLoops& loops,
                  const Tile& tile);
std::int64_t launch_count(const common::StridedLoops& loops);

/// Rows of `a` ([rows][depth], `step` apart in depth), packed in panels of `panel` rows, zeros filled in.
std::vector<float> pack_rows(const float* a, std::int64_t rows, std::int64_t depth,
                             std::int64_t panel);
/// Columns of b, element (k, p) at k * row_step + p * column_step, packed in panels of `panel` columns.
std::vector<float> pack_columns(const float* b, std::int64_t depth, std::int64_t columns,
                                std::int64_t row_step, std::int64_t column_step,
                                std::int64_t panel);

/// Writes host memory to the target of a pack request.
void upload_packed(const sdk::PackContext& ctx, const std::vector<float>& data);

}  // namespace backplane::opencl
