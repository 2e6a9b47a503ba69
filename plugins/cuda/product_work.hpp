// Matrix products as a part of what a node puts on a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/cuda/device.hpp"
#include "plugins/cuda/products.hpp"

namespace backplane::cuda {

/// A node's products, of one form each time: where their operands lie, and by how much in bytes a, b, y (with c) and the bias
/// move from one call to the next.
struct ProductPlan {
  struct Call {
    std::uint64_t a = 0, b = 0, y = 0, bias = 0;
    bool is_rest =
        false;  ///< of fewer matrices than a call can have, at a large batch's end: ProductWork's to say
  };
  Product product;
  device_ops::MemoryRef a, b, c, y, bias;
  bool b_is_constant = false;  ///< no work on a stream makes it
  std::vector<Call> calls{Call{}};
  device_ops::MemoryRef workspace = device_ops::workspace();  ///< where the library's begins
  /// Where a goes first when its address is less aligned than any algorithm takes; of no bytes where that cannot be.
  device_ops::MemoryRef spare;
  std::uint64_t spare_bytes = 0;
};

/// Immutable. Algorithms want addresses of 16 bytes, which views and other programs' pointers need not have:
/// so there is a second one, for any address, where the library has one. A batch of more matrices than the library multiplies in a
/// call is several calls.
class ProductWork final : public device_ops::PreparedWork {
 public:
  /// Errors: BP_UNSUPPORTED when the library has no algorithm.
  ProductWork(Device& device, std::string label, ProductPlan plan, Choosing choosing);
  void compute(const sdk::ComputeContext& ctx) const override;
  /// From the plan's workspace on: the library's, and behind it room for a bias that is not aligned.
  std::uint64_t workspace_bytes() const;
  /// For users, of aligned addresses: what multiplies, and after a comma how float32 is rounded, where it is.
  std::string way() const { return own_way_.empty() ? "cublaslt" : own_way_; }
  std::string rounding() const;

 private:
  struct Prepared {
    std::unique_ptr<const PreparedProduct> aligned;
    std::unique_ptr<const PreparedProduct> any;  ///< null where the library has none
  };
  /// For a batch of so many matrices.
  Prepared prepare(std::int64_t batch, Choosing choosing);
  std::unique_ptr<const PreparedProduct> prepare(const LibraryProduct& form,
                                                 const ProductAlgorithm& algorithm);

  std::uint64_t bias_place() const;
  /// From the first matrix's bias to the end of the last one's, in a call of so many; 0 where there is none.
  std::uint64_t bias_bytes(std::int64_t batch) const;

  Device& device_;
  std::string label_;
  ProductPlan plan_;
  std::uint64_t library_bytes_ = 0;
  std::string own_way_;  ///< empty: by the library
  Prepared whole_, rest_;
};

}  // namespace backplane::cuda
