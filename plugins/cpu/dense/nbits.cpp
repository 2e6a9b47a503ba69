#include "plugins/cpu/dense/nbits.hpp"

#include <cstring>

#include "plugins/common/types.hpp"

namespace backplane::cpu {
namespace {

/// Element `index` of an array of numbers of 4 or 8 bits, shifted so that the least one is 0.
std::uint32_t number_at(const std::uint8_t* values, int bits, bool is_signed, std::int64_t index) {
  if (bits == 8) return values[index] ^ (is_signed ? 0x80U : 0U);
  const std::uint32_t both = values[index / 2];
  return ((index % 2 != 0 ? both >> 4 : both) & 0xFU) ^ (is_signed ? 8U : 0U);
}

float float_at(const void* values, sdk::DataType type, std::int64_t index) {
  switch (type) {
    case sdk::DataType::Float16:
      return common::to_float(static_cast<const sdk::Half*>(values)[index]);
    case sdk::DataType::BFloat16:
      return common::to_float(static_cast<const sdk::BFloat16*>(values)[index]);
    default:
      return static_cast<const float*>(values)[index];
  }
}

/// Four numbers in the low halves of the bytes of a word, from four that follow each other.
std::uint32_t spread(std::uint32_t halves) {
  halves = (halves | halves << 8) & 0x00FF00FFU;
  return (halves | halves << 4) & 0x0F0F0F0FU;
}

/// Eight numbers of 4 bits from step `k` of a column on.
std::uint32_t eight_at(const NBitsSource& source, std::int64_t depth, std::int64_t k,
                       std::int64_t column) {
  const std::int64_t first = k * source.depth_step + column * source.column_step;
  if (source.depth_step == 1 && first % 2 == 0 && k + 8 <= depth) {
    std::uint32_t word = 0;
    std::memcpy(&word, source.values + first / 2, sizeof(word));
    if (source.is_signed) word ^= 0x88888888U;
    return spread(word & 0xFFFFU) | spread(word >> 16) << 4;
  }
  std::uint32_t word = 0;
  for (int step = 0; step < 8 && k + step < depth; ++step) {
    const std::uint32_t q =
        number_at(source.values, 4, source.is_signed, first + step * source.depth_step);
    word |= q << (step % 4 * 8 + step / 4 * 4);
  }
  return word;
}

}  // namespace

NBitsLayout::NBitsLayout(const NBitsShape& shape, int lanes, int widest, bool quads)
    : shape_(shape), panels_{shape.columns, lanes, widest}, quads_(quads && shape.bits == 8) {
  if (shape.block >= shape.depth) shape_.block = std::max<std::int64_t>(8, padded_depth());
  blocks_ = (padded_depth() + shape_.block - 1) / shape_.block;
  const std::int64_t parameters = 4 + zero_bytes();
  block_bytes_ = value_bytes(shape_.block) + parameters;
  column_bytes_ = value_bytes(padded_depth()) + blocks_ * parameters;
}

void NBitsLayout::pack_values(const NBitsSource& source, const Panels::Panel& panel,
                              std::int64_t block, char* to) const {
  const std::int64_t pitch = static_cast<std::int64_t>(panel.vectors) * panels_.lanes();
  const std::int64_t first = block * shape_.block;
  const std::int64_t bits = shape_.bits;
  std::memset(to, 0, static_cast<std::size_t>(value_bytes(steps(block)) * pitch));
  if (bits == 4) {
    for (std::int64_t k = 0; k < steps(block); k += 8, to += pitch * 4) {
      for (std::int64_t j = 0; j < panel.width; ++j) {
        const std::uint32_t word = eight_at(source, shape_.depth, first + k, panel.column + j);
        std::memcpy(to + j * 4, &word, sizeof(word));
      }
    }
    return;
  }
  const std::uint8_t flip = quads_ ? 0 : 0x80;
  const std::int64_t end = std::min(steps(block), shape_.depth - first);
  for (std::int64_t k = 0; k < end; ++k) {
    for (std::int64_t j = 0; j < panel.width; ++j) {
      const std::int64_t index =
          (first + k) * source.depth_step + (panel.column + j) * source.column_step;
      const std::int64_t at = quads_ ? (k / 4 * pitch + j) * 4 + k % 4 : k * pitch + j;
      to[at] = static_cast<char>(number_at(source.values, 8, source.is_signed, index) ^ flip);
    }
  }
}

void NBitsLayout::pack_panel(const NBitsSource& source, const Panels::Panel& panel,
                             char* packed) const {
  const std::int64_t pitch = static_cast<std::int64_t>(panel.vectors) * panels_.lanes();
  for (std::int64_t block = 0; block < blocks_; ++block) {
    char* to = packed + offset(panel, block);
    pack_values(source, panel, block, to);
    to += value_bytes(steps(block)) * pitch;
    auto* scales = reinterpret_cast<float*>(to);
    char* zeros = to + pitch * 4;
    for (std::int64_t j = 0; j < pitch; ++j) {
      const bool exists = j < panel.width;
      const std::int64_t column = panel.column + j;
      scales[j] =
          exists ? float_at(source.scales, source.scale_type,
                            block * source.scale_block_step + column * source.scale_column_step)
                 : 0.0F;
      const std::int64_t at = block * source.zero_block_step + column * source.zero_column_step;
      if (shape_.zeros == NBitsShape::kBytes) {
        const auto* numbers = static_cast<const std::uint8_t*>(source.zeros);
        zeros[j] = exists && numbers != nullptr
                       ? static_cast<char>(number_at(numbers, shape_.bits, source.is_signed, at))
                       : char{0};
      } else if (shape_.zeros == NBitsShape::kFloats) {
        reinterpret_cast<float*>(zeros)[j] =
            exists ? float_at(source.zeros, source.zero_type, at) : 0.0F;
      }
    }
  }
}

void NBitsLayout::pack(const NBitsSource& source, void* packed, const sdk::Threads& threads) const {
  for_each_panel(panels_, threads, [&](const Panels::Panel& panel) {
    pack_panel(source, panel, static_cast<char*>(packed));
  });
}

}  // namespace backplane::cpu
