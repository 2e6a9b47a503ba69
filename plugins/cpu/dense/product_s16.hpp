// The driver of integer products: rows of 16-bit numbers given by pointers, times packed weights.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/finish_sums.hpp"
#include "plugins/cpu/dense/tile_s16.hpp"

namespace backplane::cpu {

/// Reads 8-bit numbers of either kind.
struct Bytes {
  const void* data = nullptr;
  bool is_signed = false;

  Bytes() = default;
  /// `tensor` is uint8 or int8; absent: all zeros, see `at`.
  explicit Bytes(const sdk::Tensor& tensor)
      : data(tensor.bytes_data()), is_signed(tensor.type() == sdk::DataType::Int8) {}
  std::int32_t at(std::int64_t index) const {
    if (data == nullptr) return 0;
    if (is_signed) return static_cast<const std::int8_t*>(data)[index];
    return static_cast<const std::uint8_t*>(data)[index];
  }
};

/// For each group g, out[r][g * columns + j] = sum over taps t and depth k of
/// row(r, t)[g * padded_depth + k] * weights[g][t][k][j].
struct IntegerShape {
  std::int64_t rows = 0;
  std::int64_t taps = 1;
  std::int64_t depth = 0;
  std::int64_t columns = 0;
  std::int64_t groups = 1;

  /// Rows hold pairs: of an odd depth the last number has a zero beside it.
  std::int64_t padded_depth() const { return (depth + 1) / 2 * 2; }
};

/// Weights (tap, depth, column) of one group at data[tap * tap_stride + ...]; the zero point of column j is
/// zero.at(j * zero_step).
struct IntegerWeights {
  Bytes data;
  std::int64_t tap_stride = 0;
  std::int64_t depth_stride = 0;
  std::int64_t column_stride = 0;
  Bytes zero;
  std::int64_t zero_step = 0;
  std::int64_t offset = 0;       // of the group's first weight
  std::int64_t zero_offset = 0;  // of the group's first column
};

/// An integer product made ready. Immutable; may run from several threads with different scratch memory.
class IntegerProduct {
 public:
  IntegerProduct() = default;
  IntegerProduct(const IntegerShape& shape, Isa isa, unsigned threads);

  const IntegerShape& shape() const { return shape_; }
  /// 16-bit numbers of the packed weights of one group, and of all.
  std::int64_t group_size() const;
  std::int64_t packed_size() const { return group_size() * shape_.groups; }
  void pack_group(const IntegerWeights& weights, std::int64_t group, std::int16_t* packed) const;
  std::uint64_t scratch_bytes() const { return table_bytes_ * threads_; }

  /// fill(table, pitch, row, count) writes the pointers of rows [row, row + count): table[t * pitch + i] for
  /// tap t of row + i.
  /// `after`: what is done to sums while they are in the cache; null: nothing.
  template <class Fill>
  void run(const std::int16_t* packed, std::int32_t* out, std::int64_t out_stride,
           const sdk::Threads& threads, void* scratch, const Fill& fill,
           const FinishSums* after = nullptr) const {
    const auto item = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
      auto** table = reinterpret_cast<const std::int16_t**>(static_cast<char*>(scratch) +
                                                            worker * table_bytes_);
      for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i) {
        const std::int64_t row = i / panel_items_ * block_rows_;
        const std::int64_t count = std::min(block_rows_, shape_.rows - row);
        fill(table, count, row, count);
        run_rows({packed, table, row, count, out, out_stride, after}, i % panel_items_);
      }
    };
    const std::int64_t blocks = (shape_.rows + block_rows_ - 1) / block_rows_;
    const auto items = static_cast<std::uint64_t>(blocks * panel_items_);
    if (items == 1) {
      item(0, 1, 0);
    } else if (items > 1) {
      threads.parallel_for(items, 1, item);
    }
  }

 private:
  std::int64_t panel_count() const {
    return (shape_.columns + kernels_->panel_columns - 1) / kernels_->panel_columns;
  }
  /// Rows [row, row + count), whose pointers are in the table.
  struct Block {
    const std::int16_t* packed;
    const std::int16_t* const* table;
    std::int64_t row, count;
    std::int32_t* out;
    std::int64_t out_stride;
    const FinishSums* after;
  };
  void run_rows(const Block& block, std::int64_t panel_item) const;

  IntegerShape shape_;
  const IntegerKernels* kernels_ = nullptr;
  std::int64_t block_rows_ = 1;
  std::int64_t panel_items_ = 1;
  std::uint64_t table_bytes_ = 0;
  unsigned threads_ = 1;
};

}  // namespace backplane::cpu
