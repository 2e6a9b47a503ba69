// Products of float rows with weights of 4 or 8 bits that stay so in memory.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/nbits.hpp"
#include "plugins/cpu/dense/nbits_f32.hpp"
#include "plugins/cpu/dense/nbits_integer.hpp"
#include "plugins/cpu/dense/product.hpp"

namespace backplane::cpu {

/// The memory of a product; everything is dense. Nothing is owned.
struct NBitsArgs {
  const float* a = nullptr;  // [rows, depth]
  const void* packed = nullptr;
  const float* bias = nullptr;      // [columns]; null: none
  const float* residual = nullptr;  // [rows, columns]; null: none
  float* y = nullptr;               // [rows, columns]
};

/// A product made ready. Rows are multiplied, a few at a time, by weights that become floats in registers. Where there are
/// many rows and vectors are short, a part of a panel is unpacked into a buffer that stays in the second-level cache, and
/// the tiles of float products read that. With `rounds`, rows are rounded to 8 bits by blocks and all is done in integers,
/// where the processor can. Immutable.
class NBitsProduct {
 public:
  NBitsProduct(std::int64_t rows, const NBitsShape& shape, const Activation& activation, Isa isa,
               unsigned threads, bool rounds);

  std::uint64_t packed_bytes() const { return layout_.bytes(); }
  void pack(const NBitsSource& source, void* packed, const sdk::Threads& threads) const {
    layout_.pack(source, packed, threads);
  }
  std::uint64_t workspace_bytes() const;
  void run(const NBitsArgs& args, void* workspace, const sdk::Threads& threads) const;
  /// "thin", "tiles" or "integers".
  const char* variant() const;
  bool takes_residual_in_place() const { return !is_tiled() || product_.single_block(); }

 private:
  bool is_tiled() const { return integers_ == nullptr && rows_ > thin_limit_; }
  /// Rows that are computed before the next ones are looked at.
  std::int64_t part_rows() const { return std::min(rows_, kPartRows); }
  /// What threads take: a panel and a part of the rows, more than one where there are few panels.
  struct Items {
    std::int64_t count = 0, parts = 1;
    double ns = 0;  // of an item
    /// The rows of an item: whole passes.
    std::int64_t begin(std::int64_t item, std::int64_t rows) const {
      const std::int64_t part = item % parts;
      const std::int64_t passes = (rows + kThinRows - 1) / kThinRows;
      return passes * part / parts * kThinRows;
    }
    std::int64_t end(std::int64_t item, std::int64_t rows) const {
      const std::int64_t passes = (rows + kThinRows - 1) / kThinRows;
      return std::min(rows, passes * (item % parts + 1) / parts * kThinRows);
    }
  };
  Items items_of(std::int64_t rows, unsigned threads) const;
  void run_thin(const NBitsArgs& args, void* workspace, const sdk::Threads& threads) const;
  void run_thin_part(const NBitsArgs& args, std::int64_t first, std::int64_t rows,
                     const ThinRows& copy, const sdk::Threads& threads) const;
  void run_integers_part(const NBitsArgs& args, std::int64_t first, std::int64_t rows,
                         const RoundedRows& copy, const sdk::Threads& threads) const;
  void run_tiles(const NBitsArgs& args, void* workspace, const sdk::Threads& threads) const;
  void run_integers(const NBitsArgs& args, void* workspace, const sdk::Threads& threads) const;
  /// Bias, residual and activation of `count` rows of a panel's sums, on their way to y.
  void finish(const NBitsArgs& args, const Panels::Panel& panel, std::int64_t row,
              std::int64_t count, const float* sums) const;
  // The copy of so many rows stays in a cache of all cores while every panel passes.
  static constexpr std::int64_t kPartRows = 256;

  std::int64_t rows_;
  std::int64_t thin_limit_;  // beyond it, it pays to write the floats of a panel down
  Activation activation_;
  const NBitsKernels* kernels_;
  const NBitsIntegerKernels* integers_;  // null: floats
  const ActivationKernels* activations_;
  NBitsLayout layout_;
  Product product_;  // of tiles
};

}  // namespace backplane::cpu
