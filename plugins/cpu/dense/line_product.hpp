// The products of recurrent layers: rows [rows, depth] times weights of every column, packed once.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/matmul_f32.hpp"
#include "plugins/cpu/dense/matmul_u8.hpp"
#include "plugins/cpu/dense/weight_attributes.hpp"
#include "plugins/cpu/kernels/quantize.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {

/// The rows of a product whose results are read. The others change none of these.
struct LiveRows {
  std::int64_t end;                       // those from here on are not read,
  const std::int32_t* lengths = nullptr;  // nor is row r where lengths[r] <= index
  std::int64_t index = 0;                 // of the step

  bool has(std::int64_t row) const {
    return row < end && (lengths == nullptr || index < lengths[row]);
  }
};

/// y = A W + bias for weights of type W. Packed weights count elements of y's type. Immutable.
template <class W>
class LineProduct;

/// Weights are lines, [columns, depth].
template <>
class LineProduct<float> {
 public:
  using Weights = const float*;
  LineProduct(std::int64_t rows, std::int64_t depth, std::int64_t columns,
              ProductPrecision precision, Isa isa, unsigned threads);
  std::int64_t packed_size() const {
    return static_cast<std::int64_t>(align64(product_.packed_bytes()) / sizeof(float));
  }
  std::uint64_t workspace_bytes() const { return product_.workspace_bytes(true); }
  /// Lines [first, first + columns) of `weights`.
  void pack(Weights weights, std::int64_t first, float* packed, const sdk::Threads& threads) const;
  void run(const float* a, const LiveRows& live, const float* packed, const float* bias, float* y,
           char* workspace, const sdk::Threads& threads) const;

 private:
  std::int64_t depth_;
  MatMulF32 product_;
};

template <>
class LineProduct<double> {
 public:
  using Weights = const double*;
  LineProduct(std::int64_t rows, std::int64_t depth, std::int64_t columns, ProductPrecision, Isa,
              unsigned)
      : rows_(rows), depth_(depth), columns_(columns) {}
  std::int64_t packed_size() const { return depth_ * columns_; }
  std::uint64_t workspace_bytes() const { return 0; }
  void pack(Weights weights, std::int64_t first, double* packed, const sdk::Threads& threads) const;
  void run(const double* a, const LiveRows& live, const double* packed, const double* bias,
           double* y, char* workspace, const sdk::Threads& threads) const;

 private:
  std::int64_t rows_, depth_, columns_;
};

/// Bytes of either kind, [matrices, depth, columns], and for each matrix as many scales and zero points: 1 or one a column.
struct ByteLines {
  Bytes data;
  const float* scales = nullptr;
  std::int64_t scale_count = 1;
  Bytes zeros;
  std::int64_t zero_count = 1;
};

/// Rows of floats are rounded to bytes by the common range of those that are live, which is made to contain 0, and sums are
/// exact: y = float(sum) * (scale of the rows * scale of the column) + bias.
template <>
class LineProduct<std::uint8_t> {
 public:
  using Weights = ByteLines;
  LineProduct(std::int64_t rows, std::int64_t depth, std::int64_t columns, ProductPrecision,
              Isa isa, unsigned threads);
  std::int64_t packed_size() const;
  std::uint64_t workspace_bytes() const;
  /// The matrix whose columns are lines [first, first + columns).
  void pack(const Weights& weights, std::int64_t first, float* packed,
            const sdk::Threads& threads) const;
  void run(const float* a, const LiveRows& live, const float* packed, const float* bias, float* y,
           char* workspace, const sdk::Threads& threads) const;

 private:
  ByteRange range_of(const float* a, const LiveRows& live) const;
  /// Of all columns, behind the packed bytes.
  std::int64_t scales_place() const {
    return static_cast<std::int64_t>(align64(product_.packed_bytes()) / sizeof(float));
  }
  std::uint64_t row_bytes() const {
    return align64(static_cast<std::uint64_t>(product_.rows() * product_.depth()));
  }

  MatMulU8 product_;
  const QuantizeLoops* loops_;
};

}  // namespace backplane::cpu
