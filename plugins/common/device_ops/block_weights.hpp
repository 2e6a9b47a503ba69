// Products with weights that stay packed in memory, as com.microsoft's MatMulNBits has them (kernels/block_weights.hpp): few rows are
// multiplied by the weights as they lie; for more, a provider's own products, columns of the weights are written out.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {

/// y[rows][columns] = a[rows][depth] ((numbers - zero points) * scales) + bias.
struct BlockProduct {
  DataType type = DataType::Float;  ///< of a, bias and y; sums are float
  DataType scale_type = DataType::Float;
  DataType zero_type = DataType::None;  ///< UInt8: packed; None: there are none
  std::int64_t rows = 0, depth = 0, columns = 0;
  std::int64_t bits = 4, block = 32;
  bool has_bias = false;
  bool may_use_matrices = false;  ///< the device's matrix units multiply float16 (CUDA)
  MemoryRef a, weights, scales, zeros, bias, y;

  std::int64_t blocks() const { return ceil_divide(depth, block); }
  /// Whether it takes less to unpack the weights anew for a few rows at a time than to write them out.
  bool is_for_few_rows(const Device& device) const;
  /// How many columns are written out at once: a multiple of `unit`, or all.
  std::int64_t columns_at_once(const Device& device, std::int64_t unit) const;
};

/// The node: what it says of its weights, and its inputs. Also JoinedMatMulNBits of a rewrite: several such products of one value, whose
/// inputs are that value and, one product after another, B, scales, zero points and bias, with an output each.
class MatMulNBits {
 public:
  enum Input : std::uint32_t { kA, kB, kScales, kZeros, kGroups, kBias };

  /// Errors: BP_UNSUPPORTED for what is left to the operator's body.
  explicit MatMulNBits(const sdk::Node& node);
  /// Checks the inputs, and sets the outputs and the cost. A product for each output; they differ in columns and in where they are.
  std::vector<BlockProduct> begin(sdk::PrepareContext& ctx) const;

 private:
  BlockProduct product_of(sdk::PrepareContext& ctx, std::uint32_t part) const;

  std::int64_t depth_, bits_, block_;
  std::vector<std::int64_t> columns_;  ///< of each product
  bool is_joined_;
};

/// The whole products, as `begin` gives them. They have at least one row. Returns the bytes of workspace that they take from
/// `workspace_at` on.
std::uint64_t add_packed_products(Work& work, const std::vector<BlockProduct>& products,
                                  std::uint64_t workspace_at);

/// Where columns of the weights are written, in elements of the product's type.
struct WrittenColumns {
  MemoryRef memory;
  std::int64_t first = 0, count = 0;
  std::int64_t column_step = 0, depth_step = 0;  ///< one of them is 1
};
void add_written_columns(Work& work, const BlockProduct& product, const WrittenColumns& written);

/// As floats in panels of `panel` columns, [panels][depth][panel], for processors; what is past the last column is a copy of it.
void add_written_panels(Work& work, const BlockProduct& product, const MemoryRef& memory,
                        std::int64_t first, std::int64_t count, std::int64_t panel);

/// The operator, for a provider to register with a kernel of its own, and the one of a rewrite.
sdk::KernelBuilder matmul_nbits_op();
sdk::KernelBuilder joined_matmul_nbits_op();

}  // namespace backplane::device_ops
