// Matrix products of bytes of either kind with any zero points: A [rows, depth] times B [depth, columns], exact
// sums in 32 bits (they wrap), finished while they are in the cache.
//
// With x the bytes of A and w those of B, read as unsigned and signed ones (128 more, 128 less) with their zero
// points x0 and w0: sum (x - x0) (w - w0) = sum x w - x0 sum (w - w0) - w0 sum x. The sum over w is known when B is
// packed; the one over x is needed only where some w0 is not 0.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/either_product_u8.hpp"
#include "plugins/cpu/dense/product_s16.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {

/// B, row after row, and its zero points, one or one for each column. Steps count elements.
struct WeightsU8 {
  Bytes data;
  std::int64_t offset = 0;  // of the first weight
  std::int64_t row_stride = 0;
  Bytes zero;
  std::int64_t zero_offset = 0;
  std::int64_t zero_step = 0;
};

/// The rows of A's matrices, which follow each other. Nothing is owned.
struct RowsU8 {
  /// Rows whose last quad may reach over the end of all rows: three, of one byte each.
  static constexpr std::int64_t kCopied = 3;

  const std::uint8_t* data = nullptr;
  const std::uint8_t* copy = nullptr;  // of the last rows, with room behind it; null: not needed
  std::int64_t count = 0;
  std::int64_t depth = 0;
  bool is_signed = false;
  const std::int32_t* minus_zeros = nullptr;
  std::int64_t zero_step = 0;                // 0: one zero point for all rows
  const std::int32_t* minus_sums = nullptr;  // null: not known

  const std::uint8_t* at(std::int64_t row) const {
    const std::int64_t copied = row - std::max<std::int64_t>(0, count - kCopied);
    return copy != nullptr && copied >= 0 ? copy + copied * depth : data + row * depth;
  }
};

class MatMulU8 {
 public:
  MatMulU8() = default;
  MatMulU8(std::int64_t rows, std::int64_t depth, std::int64_t columns, Isa isa, unsigned threads);

  std::int64_t rows() const { return rows_; }
  std::int64_t depth() const { return depth_; }
  std::int64_t columns() const { return columns_; }
  std::uint64_t packed_bytes() const;
  /// `constant`: see EitherProductU8.
  void pack(const WeightsU8& weights, bool constant, void* packed,
            const sdk::Threads& threads) const;
  /// Whether some zero point of packed weights, as signed bytes, is not 0: rows' sums are needed.
  bool has_zeros(const void* packed) const;

  /// Memory that `rows_of` needs for `count` rows.
  std::uint64_t rows_bytes(std::int64_t count) const;
  /// `zero` of row r: zero.at(index(r)), or of all rows where `zero_each` is not set: zero.at(0).
  template <class Index>
  RowsU8 rows_of(const Bytes& a, std::int64_t count, const Bytes& zero, bool zero_each, bool sums,
                 void* memory, const sdk::Threads& threads, const Index& index) const {
    auto* zeros = static_cast<std::int32_t*>(memory);
    const std::int64_t zero_count = zero_each ? count : std::min<std::int64_t>(count, 1);
    for (std::int64_t r = 0; r < zero_count; ++r)
      zeros[r] = -(zero.at(zero_each ? index(r) : 0) + (a.is_signed ? 128 : 0));
    RowsU8 rows = rows_of(a, count, sums, memory, threads);
    rows.zero_step = zero_each ? 1 : 0;
    return rows;
  }

  std::uint64_t scratch_bytes() const { return product_.scratch_bytes(); }
  /// y = what `finish` makes of the product of rows [first_row, first_row + rows()) of `a` with packed weights;
  /// the terms of `finish` are set here. Its rows are numbered from first_row on. y is dense.
  void run(const RowsU8& a, std::int64_t first_row, const void* packed, FinishSums finish, void* y,
           void* scratch, const sdk::Threads& threads) const;

 private:
  RowsU8 rows_of(const Bytes& a, std::int64_t count, bool sums, void* memory,
                 const sdk::Threads& threads) const;

  std::int64_t rows_ = 0;
  std::int64_t depth_ = 0;
  std::int64_t columns_ = 0;
  Isa isa_ = Isa::kBaseline;
  EitherProductU8 product_;  // of a depth that is a multiple of 4
};

}  // namespace backplane::cpu
