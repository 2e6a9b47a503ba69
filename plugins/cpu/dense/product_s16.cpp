#include "plugins/cpu/dense/product_s16.hpp"

namespace backplane::cpu {
namespace {

// A multiple of every tile height; rows of a block stay in the cache while all panels pass.
constexpr std::int64_t kBlockRows = 48;
// Multiply-adds below which handing an item to another thread costs more than it saves.
constexpr std::int64_t kIntegerItemWork = 200'000;

}  // namespace

IntegerProduct::IntegerProduct(const IntegerShape& shape, Isa isa, unsigned threads)
    : shape_(shape), kernels_(&integer_kernels(isa)), threads_(threads) {
  block_rows_ = std::max<std::int64_t>(1, std::min(kBlockRows, shape.rows));
  table_bytes_ = static_cast<std::uint64_t>((shape.taps * block_rows_ * 8 + 63) / 64 * 64);
  const std::int64_t panels = panel_count() * shape.groups;
  const std::int64_t blocks = (shape.rows + block_rows_ - 1) / block_rows_;
  const std::int64_t work =
      shape.rows * shape.taps * shape.depth * shape.columns * shape.groups / kIntegerItemWork;
  // Few rows and many columns: the threads share the columns of a block.
  const std::int64_t wanted = std::min<std::int64_t>(4 * std::int64_t{threads}, work);
  if (threads > 1 && blocks > 0 && blocks < wanted) {
    panel_items_ = std::clamp<std::int64_t>((wanted + blocks - 1) / blocks, 1,
                                            std::max<std::int64_t>(1, panels));
  }
}

std::int64_t IntegerProduct::group_size() const {
  return panel_count() * kernels_->panel_columns * shape_.taps * shape_.padded_depth();
}

void IntegerProduct::pack_group(const IntegerWeights& weights, std::int64_t group,
                                std::int16_t* packed) const {
  const std::int64_t width = kernels_->panel_columns;
  std::int16_t* to = packed + group * group_size();
  for (std::int64_t first = 0; first < shape_.columns; first += width) {
    for (std::int64_t tap = 0; tap < shape_.taps; ++tap) {
      for (std::int64_t k = 0; k < shape_.depth; k += 2) {
        for (std::int64_t j = first; j < first + width; ++j, to += 2) {
          to[0] = 0;
          to[1] = 0;
          if (j >= shape_.columns) continue;
          const std::int32_t zero = weights.zero.at(weights.zero_offset + j * weights.zero_step);
          const std::int64_t at = weights.offset + tap * weights.tap_stride +
                                  k * weights.depth_stride + j * weights.column_stride;
          to[0] = static_cast<std::int16_t>(weights.data.at(at) - zero);
          if (k + 1 == shape_.depth) continue;
          to[1] = static_cast<std::int16_t>(weights.data.at(at + weights.depth_stride) - zero);
        }
      }
    }
  }
}

void IntegerProduct::run_rows(const Block& block, std::int64_t panel_item) const {
  const std::int64_t panels = panel_count();
  const std::int64_t width = kernels_->panel_columns;
  const std::int64_t all = panels * shape_.groups;
  const std::int64_t begin = all * panel_item / panel_items_;
  const std::int64_t end = all * (panel_item + 1) / panel_items_;
  TileS16Args tile{};
  tile.row_pitch = block.count;
  tile.taps = shape_.taps;
  tile.pairs = shape_.padded_depth() / 2;
  tile.out_stride = block.out_stride;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t group = i / panels;
    const std::int64_t column = i % panels * width;
    tile.offset = group * shape_.padded_depth();
    tile.panel = block.packed + group * group_size() + column * shape_.taps * shape_.padded_depth();
    tile.width = std::min(width, shape_.columns - column);
    const std::int64_t absolute = group * shape_.columns + column;
    for (std::int64_t row = 0; row < block.count; row += kernels_->max_rows) {
      const std::int64_t rows = std::min<std::int64_t>(kernels_->max_rows, block.count - row);
      tile.rows = block.table + row;
      tile.out = block.out + (block.row + row) * block.out_stride + absolute;
      kernels_->tile[rows](tile);
      if (block.after != nullptr) {
        block.after->run({tile.out, block.out_stride, block.row + row, rows, absolute, tile.width});
      }
    }
  }
}

}  // namespace backplane::cpu
