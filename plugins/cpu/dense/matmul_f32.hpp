// fp32 matrix products: A [rows, depth] times B [depth, columns], B packed beforehand or on the way, or, of few rows, read where it lies.
#pragma once

#include "plugins/cpu/dense/product.hpp"
#include "plugins/cpu/dense/row_product.hpp"

namespace backplane::cpu {

struct MatMulShape {
  int64_t batch = 1;  // products; B has `batch` matrices too, or one that all of them share
  int64_t rows = 0;
  int64_t depth = 0;
  int64_t columns = 0;
  bool shared_b = true;
  bool b_transposed = false;  // B is [columns, depth]
  // The steps in B, where it is neither dense nor dense transposed; 0: it is.
  int64_t b_depth_stride = 0;
  int64_t b_column_stride = 0;
  sdk::DataType weight_type = sdk::DataType::Float;  // or of 16 bits: of a packed B
  bool rounds = false;  // A and a packed B to bfloat16; only where has_bfloat_products()
};

/// The memory of a product. Offsets and strides count floats; a and y: one offset per product, b: one per
/// matrix of B; steps between rows. Columns of A and y lie side by side. Nothing is owned.
struct MatMulArgs {
  const float* a = nullptr;
  int64_t a_stride = 0;
  const int64_t* a_offsets = nullptr;
  const float* b = nullptr;  // not packed; null when `packed` is set
  const int64_t* b_offsets = nullptr;
  const void* packed = nullptr;     // of the shape's weight_type; shared_b only
  float alpha = 1.0f;               // only where B is not packed
  const float* bias = nullptr;      // [columns]
  const float* residual = nullptr;  // as y, dense
  float* y = nullptr;
  int64_t y_stride = 0;                // without y_offsets y is dense, [batch, rows, columns]
  const int64_t* y_offsets = nullptr;  // as a_offsets; without a residual only
  bool backwards = false;              // of packed weights: see ProductArgs
};

/// A matrix product made ready. Immutable.
class MatMulF32 {
 public:
  /// `shape` with a shared B is taken as one product of batch * rows rows when A's matrices follow each
  /// other (a_dense).
  MatMulF32(const MatMulShape& shape, bool a_dense, const Activation& activation, Isa isa,
            unsigned threads);

  int64_t packed_floats() const { return product_.packed_floats(); }
  uint64_t packed_bytes() const { return product_.packed_bytes(); }
  /// With B packed, and without.
  uint64_t workspace_bytes(bool packed) const;
  /// B, floats, packed as the shape's weight_type, to which they are rounded.
  void pack(const float* b, float alpha, void* packed, const sdk::Threads& threads) const;
  /// B, numbers of weight_type, a type of 16 bits.
  void pack(const uint16_t* b, uint16_t* packed, const sdk::Threads& threads) const;
  /// Either of these.
  void pack(const sdk::Tensor& b, float alpha, void* packed, const sdk::Threads& threads) const;
  void run(const MatMulArgs& args, void* workspace, const sdk::Threads& threads) const;
  bool takes_residual_in_place(bool packed) const {
    return product_.single_block() && (packed || !reads_b());
  }
  /// Whether a B that is not packed beforehand is read where it lies.
  bool reads_b() const { return few_rows_ != nullptr; }

 private:
  WeightView view(const void* b, float alpha) const;
  /// One product for a thread at a time. `shared`: what all of them multiply by, packed; `own`: room of each thread for a
  /// matrix of its own.
  void run_many(const MatMulArgs& args, const void* shared, float* own, char* scratch,
                const sdk::Threads& threads) const;
  void run_one(const MatMulArgs& args, const void* packed, int64_t index, void* scratch,
               const sdk::Threads& threads) const;
  void plan_few_rows();
  void run_few_rows(const MatMulArgs& args, const sdk::Threads& threads) const;
  void finish_few_rows(const MatMulArgs& args, int64_t residual, int64_t column,
                       const RowProductArgs& rows) const;

  MatMulShape shape_;
  Isa isa_;
  bool many_;  // several products, one for a thread at a time
  unsigned threads_;
  Activation activation_;
  Product product_;
  void (*few_rows_)(const RowProductArgs& args) = nullptr;
  bool few_along_columns_ = false;
  int64_t few_parts_ = 1;   // of the columns of each product
  uint64_t few_grain_ = 0;  // parts that a thread takes at least; 0: all are the caller's
};

}  // namespace backplane::cpu
