// Weights of 4 or 8 bits, of which blocks along the depth share a scale and a zero point: how models store them, and
// how they are packed for products. weight = (q - zero) * scale.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/panels.hpp"

namespace backplane::cpu {

/// How far ahead loops fetch packed weights, in bytes: what a processor fetches by itself does not keep up with them.
constexpr std::int64_t kNBitsFetchedAhead = 8192;

/// A matrix [depth, columns] of such weights.
struct NBitsShape {
  /// What is taken from the numbers: half of their range, a byte for each block and column, or a float.
  enum Zeros : int { kMiddle, kBytes, kFloats };

  int bits = 4;
  std::int64_t depth = 0;
  std::int64_t columns = 0;
  std::int64_t block = 0;  // steps of the depth in a block: a multiple of 8, or at least the depth
  Zeros zeros = kMiddle;
};

/// The weights as a model stores them. Steps count elements of a tensor; elements of 4 bits lie two in a byte, the
/// first in its low half. Nothing is owned.
struct NBitsSource {
  const std::uint8_t* values = nullptr;
  std::int64_t depth_step = 0;
  std::int64_t column_step = 0;
  bool is_signed = false;  // the values, and zero points that are integers

  const void* scales = nullptr;
  sdk::DataType scale_type = sdk::DataType::Float;  // or Float16, BFloat16
  std::int64_t scale_block_step = 0;
  std::int64_t scale_column_step = 0;

  const void* zeros = nullptr;                     // null where they are bytes: 0
  sdk::DataType zero_type = sdk::DataType::Float;  // where they are floats
  std::int64_t zero_block_step = 0;
  std::int64_t zero_column_step = 0;
};

/// The packed form: panels as those of float products (`Panels`), one after another. A panel holds its blocks, of
/// each first the numbers, unsigned, then the scales (a float for each column), then the zero points.
///
/// Numbers of 4 bits: for eight steps of the depth a 32-bit word for each column, in whose byte b the low half is step
/// b, the high half step 4 + b. Numbers of 8 bits: for each step a byte for each column, less 128; or, as `quads`, for four
/// steps a word for each column. A depth that is no multiple of 8 goes on with whatever numbers; what they meet is zero.
class NBitsLayout {
 public:
  NBitsLayout() = default;
  NBitsLayout(const NBitsShape& shape, int lanes, int widest, bool quads);

  const NBitsShape& shape() const { return shape_; }
  const Panels& panels() const { return panels_; }
  bool quads() const { return quads_; }
  std::int64_t blocks() const { return blocks_; }
  std::int64_t block() const { return shape_.block; }
  std::int64_t padded_depth() const { return (shape_.depth + 7) / 8 * 8; }
  /// Steps of a block, whole eights.
  std::int64_t steps(std::int64_t block) const {
    return std::min(shape_.block, padded_depth() - block * shape_.block);
  }
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(column_bytes_ * panels_.padded_columns());
  }
  /// The place of a block of a panel.
  std::int64_t offset(const Panels::Panel& panel, std::int64_t block) const {
    return panel.column * column_bytes_ + block * block_bytes_ * panel.vectors * panels_.lanes();
  }
  /// Bytes of `steps` steps of one column.
  std::int64_t value_bytes(std::int64_t steps) const { return steps * shape_.bits / 8; }

  /// Bytes of a block's zero point of one column.
  std::int64_t zero_bytes() const {
    if (shape_.zeros == NBitsShape::kMiddle) return 0;
    return shape_.zeros == NBitsShape::kBytes ? 1 : 4;
  }

  /// Packs all panels, in parallel.
  void pack(const NBitsSource& source, void* packed, const sdk::Threads& threads) const;

 private:
  void pack_panel(const NBitsSource& source, const Panels::Panel& panel, char* packed) const;
  void pack_values(const NBitsSource& source, const Panels::Panel& panel, std::int64_t block,
                   char* to) const;

  NBitsShape shape_;
  Panels panels_;
  bool quads_ = false;
  std::int64_t blocks_ = 0;
  std::int64_t block_bytes_ = 0;   // of a whole block, for a column
  std::int64_t column_bytes_ = 0;  // of all blocks
};

}  // namespace backplane::cpu
