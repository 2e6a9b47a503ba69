// Products with weights that a node's attributes hold.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/cpu/dense/matmul_f32.hpp"

namespace backplane::cpu {

/// y = alpha * x weights^T + bias, with weights [columns, depth] packed once. Immutable.
class FixedProduct {
 public:
  FixedProduct() = default;
  /// `weights`: rows of `depth` floats, `pitch` apart. `bias`: one number for each column, or none.
  FixedProduct(const float* weights, std::int64_t pitch, std::int64_t columns, std::int64_t depth,
               float alpha, std::vector<float> bias, Isa isa, const sdk::Threads& threads);
  // A copy's cache lines would begin elsewhere.
  FixedProduct(FixedProduct&&) = default;
  FixedProduct& operator=(FixedProduct&&) = default;

  std::int64_t columns() const { return columns_; }

  /// Made ready for a number of rows.
  MatMulF32 plan(std::int64_t rows, unsigned threads) const;
  void run(const MatMulF32& plan, const float* x, std::int64_t x_pitch, float* y,
           std::int64_t y_pitch, void* workspace, const sdk::Threads& threads) const;

 private:
  std::int64_t columns_ = 0, depth_ = 0;
  std::vector<float> bias_, packed_;
  std::size_t packed_begin_ = 0;  // where in packed_ a cache line begins
  Isa isa_ = Isa::kBaseline;
};

}  // namespace backplane::cpu
