#include "plugins/cpu/dense/product.hpp"

#include <algorithm>

#include "plugins/cpu/dense/equal_tiles.hpp"
#include "plugins/cpu/dense/tile_amx_bf16.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Steps of the depth in a block: a block of a panel then stays in the second-level cache, a tile's rows
// in the first.
constexpr int64_t kBlockDepth = 512;
// Rows that a tile takes at once: each panel is read only once then, and from one end to the other, as processors fetch ahead best.
constexpr int64_t kMostStreamedRows = 6;
// Bytes of rows that are worked through before the next ones: they stay in the second-level cache while
// all panels pass.
constexpr int64_t kRowBytes = 256 * 1024;
// A multiple of every tile height.
constexpr int64_t kRowUnit = 24;
constexpr int64_t kMaxCacheRows = 480;
constexpr int64_t kMaxTableEntries = 8192;
// Multiply-adds below which handing an item to another thread costs more than it saves.
constexpr int64_t kItemWork = 100'000;
constexpr int64_t kItemsPerThread = 4;
// Tiles whose results are finished while they are in the first-level cache.
constexpr int64_t kTilesOfActivation = 8;
// Rows up to which tiles make floats of 16-bit weights themselves, each tile anew. It costs nothing where loads and shifts have ports
// of their own (AMD); where the multiplications of AVX-512 need these ports (Intel), a third of a tile's time.
constexpr int64_t kMostHalfRows = 64;
// Rows of pairs up to which vectors are as fast as the tiles of AMX: weights come from memory then.
constexpr int64_t kMostLowRows = 4;
constexpr int64_t kPartOfHighRows =
    2 * kHighTileRows;  // whose results are finished in the first-level cache

bool is_padding(const float* const* rows, int64_t count, const float* zeros) {
  return std::all_of(rows, rows + count, [zeros](const float* row) { return row == zeros; });
}

/// A run of rows whose results lie one behind the other.
struct Place {
  int64_t offset;  // of the first one, in floats
  int64_t rows;
};

/// The run of at most `most` rows that begins with `row`.
Place place(const ProductArgs& args, int64_t row, int64_t most) {
  const OutLines& lines = args.out_lines;
  if (lines.rows == 0) return {row * args.out_stride, most};
  const int64_t line = row / lines.rows;
  const int64_t plane = line / lines.lines;
  const int64_t within = row - line * lines.rows;
  const int64_t offset = within * args.out_stride + line % lines.lines * lines.line_stride +
                         plane % lines.planes * lines.plane_stride +
                         plane / lines.planes * lines.image_stride;
  return {offset, std::min(most, lines.rows - within)};
}

/// Leaves the first and last taps of a tile out where they read padding alone: with a wide dilation most do.
void leave_padding_out(TileArgs& tile, int64_t rows, int64_t tap_bytes, const float* zeros) {
  while (tile.taps > 0 && is_padding(tile.rows, rows, zeros)) {
    tile.rows += tile.row_pitch;
    tile.panel = static_cast<const char*>(tile.panel) + tap_bytes;
    --tile.taps;
  }
  while (tile.taps > 0 && is_padding(tile.rows + (tile.taps - 1) * tile.row_pitch, rows, zeros))
    --tile.taps;
}

/// Null where a product goes by the tiles of TileKernels.
const HighTiles* high_tiles_of(const ProductShape& shape, Isa isa) {
  return shape.pairs && shape.rows > kMostLowRows ? high_tiles(isa) : nullptr;
}

}  // namespace

Product::Product(const ProductShape& shape, const Activation& activation, Isa isa, unsigned threads)
    : shape_(shape),
      isa_(isa),
      activation_(activation),
      tiles_(&tile_kernels(isa)),
      activations_(&activation_kernels(isa)),
      // Who packs for `unpack` has panels of his own, which are all as wide as the widest at most.
      panels_{shape.columns, tiles_->lanes, tiles_->panel_vectors,
              tiles_->takes_one_more && !shape.unpacks},
      threads_(threads) {
  if (shape.weight_type != sdk::DataType::Float &&
      (shape.rows > kMostHalfRows || tiles_->half_tile[1][1] == nullptr))
    widening_ = &half_conversion(isa, shape.weight_type);
  if (shape.rounded_depth > 0) rounding_ = &half_conversion(isa, sdk::DataType::BFloat16);
  cut_depth();
  cut_items();
}

void Product::pack(const WeightView& weights, int64_t group, float* packed,
                   const sdk::Threads& threads) const {
  float* to = packed + group * group_floats();
  if (!shape_.pairs) return pack_panels(panels_, weights, to, threads);
  pack_pairs(panels_, weights, sdk::DataType::Float, isa_, reinterpret_cast<uint32_t*>(to),
             threads);
}

void Product::cut_depth() {
  const int64_t taps = shape_.taps;
  const int64_t depth = shape_.depth;
  if (shape_.rows == 0 || shape_.columns == 0) {
    // No blocks: there may be any depth without elements.
  } else if (shape_.rows <= kMostStreamedRows && !has_buffer() && rounding_ == nullptr) {
    blocks_.push_back({0, taps, 0, depth});
  } else if (depth > kBlockDepth + kBlockDepth / 4) {
    const int64_t parts = ceil_div(depth, kBlockDepth);
    const int64_t part = ceil_div(ceil_div(depth, parts), 8) * 8;
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t k = 0; k < depth; k += part) {
        blocks_.push_back({tap, 1, k, std::min(part, depth - k)});
      }
    }
  } else {
    const int64_t parts =
        ceil_div(taps, std::max<int64_t>(1, kBlockDepth / std::max<int64_t>(1, depth)));
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t begin = taps * i / parts;
      blocks_.push_back({begin, taps * (i + 1) / parts - begin, 0, depth});
    }
  }
  if (blocks_.empty()) blocks_.push_back({0, 0, 0, 0});  // nothing to sum: the bias alone
}

void Product::cut_items() {
  const int64_t block_bytes = std::min(shape_.taps * shape_.depth, kBlockDepth) * 4;
  int64_t rows = kRowBytes / std::max<int64_t>(block_bytes, 4);
  int64_t steps = 0;
  for (const Block& block : blocks_) steps = std::max(steps, block.taps * block.depth);
  if (has_buffer()) {
    // More rows share the unpacking of a panel.
    rows *= 2;
    buffer_bytes_ = static_cast<uint64_t>(ceil_div(steps, 8) * 8 * panels_.most_vectors() *
                                          panels_.lanes() * 4);
    buffer_bytes_ = align64(buffer_bytes_);
  }
  rows = std::min({rows, kMaxCacheRows, kMaxTableEntries / std::max<int64_t>(1, shape_.taps)});
  cache_rows_ = std::max(kRowUnit, rows / kRowUnit * kRowUnit);
  cache_rows_ = std::max<int64_t>(1, std::min(cache_rows_, shape_.rows));
  if (rounding_ != nullptr)
    buffer_bytes_ = align64(static_cast<uint64_t>(cache_rows_ * (8 + 4 * steps)));
  table_bytes_ = static_cast<uint64_t>(ceil_div(shape_.taps * cache_rows_ * 8, 64) * 64);

  const int64_t panels = panels_.count() * shape_.groups;
  const int64_t depth = shape_.taps * shape_.depth;
  const int64_t work = shape_.rows * depth * shape_.columns * shape_.groups;
  const int64_t wanted = std::min<int64_t>(kItemsPerThread * threads_, work / kItemWork);
  if (threads_ <= 1 || wanted <= 1) return;
  const int64_t row_limit = std::max<int64_t>(1, shape_.rows / kRowUnit);
  // The larger operand is cut first: the other one is then read by every item, from a near cache.
  if (shape_.rows >= shape_.columns * shape_.groups * shape_.taps) {
    row_items_ = std::min(wanted, row_limit);
    panel_items_ = std::min(panels, ceil_div(wanted, row_items_));
  } else {
    panel_items_ = std::min(wanted, panels);
    row_items_ = std::min(row_limit, ceil_div(wanted, panel_items_));
  }
}

void Product::run_rows(const ProductArgs& args, const float* const* table, float* buffer,
                       int64_t row, int64_t count, int64_t panel_item) const {
  const int64_t panels = panels_.count() * shape_.groups;
  const int64_t first = panels * panel_item / panel_items_;
  const int64_t last = panels * (panel_item + 1) / panel_items_;
  for (const Block& block : blocks_) {
    const float* const* rows = table;
    if (rounding_ != nullptr) rows = rounded_rows(table, buffer, count, block);
    for (int64_t i = first; i < last; ++i) {
      const int64_t panel = args.backwards ? last - 1 - (i - first) : i;
      run_panel(args, rows, buffer, row, count, panel, block);
    }
  }
}

/// A block's part of the rows as pairs.
const float* const* Product::rounded_rows(const float* const* table, float* buffer, int64_t count,
                                          const Block& block) const {
  auto** rows = reinterpret_cast<const float**>(buffer);
  float* to = buffer + 2 * count;
  const HighTiles* high = high_tiles_of(shape_, isa_);
  const auto round = high != nullptr ? high->round : rounding_->from_float;
  const int64_t numbers = std::min(2 * block.depth, shape_.rounded_depth - 2 * block.offset);
  for (int64_t i = 0; i < count; ++i, to += block.depth) {
    auto* halves = reinterpret_cast<uint16_t*>(to);
    round(table[i] + 2 * block.offset, halves, numbers);
    if (numbers < 2 * block.depth) halves[numbers] = 0;
    rows[i] = to;
  }
  return rows;
}

void Product::run_panel(const ProductArgs& args, const float* const* table, float* buffer,
                        int64_t row, int64_t count, int64_t index, const Block& block) const {
  const int64_t group = shape_.groups == 1 ? 0 : index / panels_.count();
  const Panels::Panel panel = panels_.at(index - group * panels_.count());
  const int64_t column = group * shape_.columns + panel.column;
  const int64_t pitch = static_cast<int64_t>(panel.vectors) * panels_.lanes();
  const void* weights = buffer;
  if (shape_.unpacks) {
    args.unpack(args.unpack_from, panel, block.offset, block.depth, buffer);
  } else {
    const int64_t at = group * group_floats() + panel.column * shape_.taps * shape_.depth +
                       (block.tap * shape_.depth + block.offset) * pitch;
    const void* packed = static_cast<const char*>(args.packed) + at * weight_bytes();
    if (has_buffer()) {
      widening_->to_float(packed, buffer, block.taps * block.depth * pitch);
    } else {
      weights = packed;
    }
  }
  const TileArgs tile{
      .rows = nullptr,
      .row_pitch = count,
      .offset = rounding_ != nullptr ? 0 : group * shape_.depth + block.offset,
      .taps = block.taps,
      .depth = block.depth,
      .panel = weights,
      .out = nullptr,
      .out_stride = args.out_stride,
      .width = panel.width,
      .bias = args.bias != nullptr ? args.bias + column : nullptr,
      .residual = nullptr,
      .residual_stride = args.residual_stride,
      .lo = activation_.lo(),
      .hi = activation_.hi(),
      .first = &block == blocks_.data(),
      .last = &block == &blocks_.back(),
      .more_tiles = 0,
  };
  for (int64_t begin = 0; begin < count;) {
    const auto [offset, rows] = place(args, row + begin, count - begin);
    const float* residual = args.residual;
    if (residual != nullptr) residual += (row + begin) * args.residual_stride + column;
    run_tiles(tile, panel, table + block.tap * count,
              {begin, rows, args.out + offset + column, residual}, args.zeros);
    begin += rows;
  }
}

const TileKernels::Function* Product::tiles_of(int vectors) const {
  if (shape_.pairs) return tiles_->pair_tile[vectors];
  if (has_buffer() || shape_.weight_type == sdk::DataType::Float) return tiles_->tile[vectors];
  return shape_.weight_type == sdk::DataType::Float16 ? tiles_->half_tile[vectors]
                                                      : tiles_->bfloat_tile[vectors];
}

void Product::run_tiles(const TileArgs& all, const Panels::Panel& panel, const float* const* table,
                        const Run& run, const float* zeros) const {
  const int64_t pitch = static_cast<int64_t>(panel.vectors) * panels_.lanes();
  const int64_t weight = has_buffer() ? 4 : weight_bytes();
  const TileKernels::Function* kernels = tiles_of(panel.vectors);
  const HighTiles* high = high_tiles_of(shape_, isa_);
  TileArgs tile = all;
  const auto compute = [&](int64_t begin, int64_t rows, int64_t count) {
    tile.rows = table + run.begin + begin;
    tile.taps = all.taps;
    tile.panel = all.panel;
    tile.more_tiles = count - 1;
    tile.out = run.out + begin * tile.out_stride;
    if (run.residual != nullptr) tile.residual = run.residual + begin * tile.residual_stride;
    if (zeros != nullptr) leave_padding_out(tile, rows, shape_.depth * pitch * weight, zeros);
    if (tile.taps == 0 && !tile.first && !tile.last) return;
    if (high != nullptr) {
      high->tile(tile, rows, panel.vectors);
    } else {
      kernels[shape_.rows == 1 ? 0 : rows](tile);
    }
    if (tile.last && !activation_.in_registers()) {
      activations_->apply(activation_, tile.out, tile.out_stride, rows * count, panel.width);
    }
  };
  // Tiles of as many rows are one call, unless each one has its own padding.
  const bool is_whole = zeros == nullptr && activation_.in_registers();
  const int64_t most_tiles = zeros != nullptr ? 1 : kTilesOfActivation;
  if (high == nullptr)
    return for_equal_tiles(run.rows, tiles_->max_rows[panel.vectors],
                           is_whole ? run.rows : most_tiles, compute);
  const int64_t most = is_whole ? run.rows : kPartOfHighRows;
  for (int64_t begin = 0; begin < run.rows; begin += most)
    compute(begin, std::min(most, run.rows - begin), 1);
}

}  // namespace backplane::cpu
