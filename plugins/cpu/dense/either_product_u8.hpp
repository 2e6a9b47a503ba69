// Products of bytes with weights in either of two forms: split (tile_u8_split.cpp), where there are kernels for it and the
// weights are such, or as all weights can be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "plugins/cpu/dense/product_u8.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {

/// Of one tap. Immutable; may run from several threads with different scratch memory.
class EitherProductU8 {
 public:
  EitherProductU8() = default;
  EitherProductU8(const ShapeU8& shape, Isa isa, unsigned threads) : any_(shape, isa, threads) {
    if (const KernelsU8* kernels = kernels_u8_split(isa)) split_.emplace(shape, *kernels, threads);
  }

  const ShapeU8& shape() const { return any_.shape(); }
  std::uint64_t packed_bytes() const { return flag_place() + kFlagBytes; }
  std::uint64_t scratch_bytes() const {
    return std::max(any_.scratch_bytes(), split_ ? split_->scratch_bytes() : 0);
  }

  /// As ProductU8's, of weights that all runs read.
  template <class Weight>
  void pack(const ColumnSourceU8& columns, void* packed, const sdk::Threads& threads,
            const Weight& weight) const {
    pack_by(true, packed, [&](const ProductU8& product) {
      return product.pack(columns, packed, threads, weight);
    });
  }
  /// Likewise. `constant`: that all runs read these weights, so that the form in which products are fastest is worth its packing.
  void pack_rows(const std::uint8_t* weights, std::int64_t stride, std::int64_t depth,
                 std::uint8_t flip, bool constant, std::int32_t* sums, void* packed,
                 const sdk::Threads& threads) const {
    pack_by(constant, packed, [&](const ProductU8& product) {
      return product.pack_rows(weights, stride, depth, flip, sums, packed, threads);
    });
  }

  template <class Fill>
  void run(const ArgsU8& args, const sdk::Threads& threads, void* scratch, const Fill& fill) const {
    const bool is_split = *(static_cast<const char*>(args.packed) + flag_place()) != 0;
    (is_split ? *split_ : any_).run(args, threads, scratch, fill);
  }

 private:
  static constexpr std::uint64_t kFlagBytes = 64;

  /// Of a byte behind the weights that tells whether they are split.
  std::uint64_t flag_place() const {
    return align64(std::max(any_.packed_bytes(), split_ ? split_->packed_bytes() : 0));
  }
  template <class Pack>
  void pack_by(bool may_split, void* packed, const Pack& pack) const {
    const bool is_split = may_split && split_ && pack(*split_);
    if (!is_split) pack(any_);
    *(static_cast<char*>(packed) + flag_place()) = is_split ? 1 : 0;
  }

  ProductU8 any_;
  std::optional<ProductU8> split_;
};

}  // namespace backplane::cpu
