// The kernel functions of support vector machines, of rows and the fixed vectors of a node's attributes.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/cpu/dense/fixed_product.hpp"
#include "plugins/cpu/kernels/radial_basis.hpp"

namespace backplane::cpu {

/// k(x, v) for every vector v. Immutable.
class SupportKernel {
 public:
  /// Reads attributes kernel_type and kernel_params. `vectors`: [count, features]. `linear`: whatever the
  /// attribute says, with `offset` added.
  SupportKernel(const sdk::CreateContext& ctx, const sdk::Node& node,
                const std::vector<float>& vectors, std::int64_t count, bool linear, float offset);
  SupportKernel(const SupportKernel&) = delete;
  SupportKernel& operator=(const SupportKernel&) = delete;

  std::int64_t count() const { return count_; }
  std::int64_t features() const { return features_; }
  /// The columns that a row of results has room for.
  std::int64_t pitch() const { return type_ == Type::kRadial ? radial_.padded() : count_; }

  struct Plan {
    std::int64_t rows;
    MatMulF32 product;  // not used by the radial one
    std::uint64_t workspace_bytes() const { return product.workspace_bytes(true); }
  };
  Plan plan(std::int64_t rows, unsigned threads) const {
    return {rows, product_.plan(rows, threads)};
  }
  /// `x`: rows of features(); `y`: rows of pitch().
  void run(const Plan& plan, const float* x, float* y, void* workspace,
           const sdk::Threads& threads) const;

 private:
  enum class Type { kLinear, kPolynomial, kRadial, kSigmoid };

  void run_radial(std::int64_t rows, const float* x, float* y, const sdk::Threads& threads) const;

  Type type_ = Type::kLinear;
  float gamma_ = 0, offset_ = 0, degree_ = 0;
  std::int64_t count_, features_ = 0;
  Isa isa_;
  FixedProduct product_;
  RadialVectors radial_;
};

}  // namespace backplane::cpu
