// The products of recurrent layers: rows [rows, depth] times weights of every column, packed once.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/matmul_f32.hpp"
#include "plugins/cpu/dense/weight_attributes.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {

/// y = A W + bias. Immutable.
template <class T>
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
  void run(const float* a, const float* packed, const float* bias, float* y, char* workspace,
           const sdk::Threads& threads) const;

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
  void run(const double* a, const double* packed, const double* bias, double* y, char* workspace,
           const sdk::Threads& threads) const;

 private:
  std::int64_t rows_, depth_, columns_;
};

}  // namespace backplane::cpu
