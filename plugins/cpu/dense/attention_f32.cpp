#include "plugins/cpu/dense/attention_f32.hpp"

#include <algorithm>

#include "plugins/cpu/dense/equal_tiles.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Keys that are worked through together: packed keys and values, and the scores of a strip, stay in the second-level cache.
constexpr std::int64_t kKeys = 256;
// Rows of queries in a strip, which with a panel of keys stays in the first-level cache, and rows that share packed keys and values.
constexpr std::int64_t kStripRows = 72;
constexpr std::int64_t kRows = 1024;
// About what one multiplication of either product takes.
constexpr double kNsPerStep = 0.01;
// Rows that pay for packing the keys again in another thread.
constexpr std::int64_t kLeastRows = 24;

Panels panels_of(std::int64_t columns, const TileKernels& tiles) {
  return {columns, tiles.lanes, tiles.panel_vectors};
}

/// e^(before - after), for sums that were made with another greatest score.
float rescaling(float before, float after) {
  return before == -HUGE_VALF ? 0.0f : std::exp(before - after);
}

}  // namespace

AttentionF32::AttentionF32(const AttentionShape& shape, Isa isa, unsigned threads)
    : shape_(shape),
      tiles_(&tile_kernels(isa)),
      loops_(&attention_rows(isa)),
      value_panels_(panels_of(shape.value_width, *tiles_)),
      key_step_(panels_of(std::min(kKeys, shape.keys), *tiles_).padded_columns()),
      value_step_(value_panels_.padded_columns()),
      threads_(threads) {
  const std::int64_t rows = shape.queries * shape.group;
  const std::int64_t heads = std::max<std::int64_t>(1, shape.batch * shape.kv_heads);
  row_blocks_ = ceil_div(rows, kRows);
  if (threads > 1) {
    const std::int64_t wanted = ceil_div(2 * static_cast<std::int64_t>(threads), heads);
    row_blocks_ = std::max(row_blocks_, std::min(wanted, rows / kLeastRows));
  }
  row_blocks_ = std::max<std::int64_t>(1, row_blocks_);
  most_rows_ = ceil_div(rows, row_blocks_);
  strip_rows_ = ceil_div(most_rows_, std::max<std::int64_t>(1, ceil_div(most_rows_, kStripRows)));
  const bool is_half = shape.cache_type != sdk::DataType::Float;
  const bool is_few = most_rows_ <= kMostProductRows;
  if (is_few) few_rows_ = row_product_kernels(isa, shape.cache_type);
  if (is_half && few_rows_ == nullptr) widening_ = &half_conversion(isa, shape.cache_type);
  if (is_few && few_rows_ == nullptr) few_rows_ = row_product_kernels(isa, sdk::DataType::Float);
  const auto products = static_cast<double>(heads * rows * shape.keys);
  is_small_ =
      products * static_cast<double>(shape.width + shape.value_width) * kNsPerStep < kParallelNs;
  lay_out();
}

void AttentionF32::lay_out() {
  const auto take = [this](std::uint64_t& part, std::int64_t count, std::uint64_t size) {
    part = parts_.end;
    parts_.end += align64(static_cast<std::uint64_t>(count) * size);
  };
  const std::int64_t rows = most_rows_;
  // As for whole strips: no set of shapes needs more than a larger one.
  const std::int64_t strip = std::min(rows, kStripRows);
  take(parts_.table, strip, sizeof(float*));
  const std::int64_t keys = std::min(kKeys, shape_.keys);
  const bool packs = few_rows_ == nullptr, widens = widening_ != nullptr;
  take(parts_.keys, packs ? key_step_ * shape_.width : 0, sizeof(float));
  take(parts_.values, packs ? value_step_ * keys : 0, sizeof(float));
  take(parts_.widened, widens ? keys * std::max(shape_.width, shape_.value_width) : 0,
       sizeof(float));
  take(parts_.scores, strip * key_step_, sizeof(float));
  take(parts_.sums, rows * value_step_, sizeof(float));
  take(parts_.totals, rows, sizeof(float));
  take(parts_.greatest, rows, sizeof(float));
  take(parts_.spread, key_step_, sizeof(float));
}

AttentionF32::Block AttentionF32::open_block(const AttentionArgs& args, std::int64_t head,
                                             std::int64_t index, char* scratch) const {
  const std::int64_t rows = shape_.queries * shape_.group;
  Block block{};
  block.batch = head / shape_.kv_heads;
  block.kv_head = head % shape_.kv_heads;
  block.row = rows * index / row_blocks_;
  block.rows = rows * (index + 1) / row_blocks_ - block.row;
  block.length = shape_.keys;
  block.offset = args.offset;
  if (args.lengths != nullptr) {
    const std::int64_t length = args.lengths[block.batch];
    block.offset = length - shape_.queries;
    block.length = std::clamp<std::int64_t>(length, 0, shape_.keys);
  }
  if (args.mask_kind != AttentionArgs::Mask::None)
    block.length = std::min(block.length, args.mask_keys);
  const auto floats = [scratch](std::uint64_t part) {
    return reinterpret_cast<float*>(scratch + part);
  };
  block.table = reinterpret_cast<const float**>(scratch + parts_.table);
  block.keys = floats(parts_.keys);
  block.values = floats(parts_.values);
  block.scores = floats(parts_.scores);
  block.sums = floats(parts_.sums);
  block.totals = floats(parts_.totals);
  block.greatest = floats(parts_.greatest);
  block.spread = floats(parts_.spread);
  block.widened = floats(parts_.widened);
  return block;
}

/// The keys that a row of the block may look at, its mask aside.
KeyRange AttentionF32::keys_of(const Block& block, std::int64_t row) const {
  const std::int64_t query = (block.row + row) / shape_.group + block.offset;
  KeyRange keys{0, block.length};
  if (shape_.causal) keys.end = std::min(keys.end, query + 1);
  if (shape_.right_window != kNoWindow)
    keys.end = std::min(keys.end, query + shape_.right_window + 1);
  if (shape_.left_window != kNoWindow)
    keys.begin = std::clamp<std::int64_t>(query - shape_.left_window, 0, block.length);
  keys.end = std::max(keys.end, keys.begin);
  return keys;
}

/// out[row] = (or +=) table[row] times a packed matrix, in whole panels.
void AttentionF32::multiply(const Panels& panels, const Block& strip,
                            const StripProduct& product) const {
  TileArgs tile{};
  tile.taps = 1;
  tile.depth = product.depth;
  tile.out_stride = product.step;
  tile.first = product.first;
  for (std::int64_t p = 0; p < panels.count(); ++p) {
    const Panels::Panel panel = panels.at(p);
    if (panel.column >= product.columns) return;
    tile.width = static_cast<std::int64_t>(panel.vectors) * panels.lanes();
    tile.panel = product.packed + panel.column * product.packed_depth;
    for_equal_tiles(strip.rows, tiles_->max_rows[panel.vectors], strip.rows,
                    [&](std::int64_t row, std::int64_t rows, std::int64_t count) {
                      tile.rows = strip.table + row;
                      tile.row_pitch = rows;
                      tile.more_tiles = count - 1;
                      tile.out = product.out + row * product.step + panel.column;
                      tiles_->tile[panel.vectors][rows](tile);
                    });
  }
}

AttentionF32::CacheRows AttentionF32::read(const void* cache, const HeadSteps& steps,
                                           std::int64_t width, const Block& block,
                                           KeyRange keys) const {
  const std::int64_t size = sdk::element_bytes(shape_.cache_type);
  const char* first =
      static_cast<const char*>(cache) + steps.at(block.batch, block.kv_head, keys.begin) * size;
  const std::int64_t count = keys.end - keys.begin;
  if (widening_ == nullptr) return {first, steps.position, count};
  if (steps.position == width) {
    widening_->to_float(first, block.widened, count * width);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      widening_->to_float(first + i * steps.position * size, block.widened + i * width, width);
  }
  return {block.widened, width, count};
}

AttentionF32::CacheRows AttentionF32::pack_keys(const AttentionArgs& args, const Block& block,
                                                KeyRange keys) const {
  const CacheRows rows = read(args.k, args.k_steps, shape_.width, block, keys);
  if (few_rows_ != nullptr) return rows;
  const Panels panels = panels_of(rows.count, *tiles_);
  WeightView view;
  view.data = rows.data;
  view.depth = shape_.width;
  view.depth_stride = 1;
  view.column_stride = rows.step;
  view.scale = shape_.scale;
  for (std::int64_t p = 0; p < panels.count(); ++p) pack_panel(panels, view, p, block.keys);
  return {block.keys, 0, rows.count};
}

AttentionF32::CacheRows AttentionF32::pack_values(const AttentionArgs& args, const Block& block,
                                                  KeyRange keys) const {
  const CacheRows rows = read(args.v, args.v_steps, shape_.value_width, block, keys);
  // One panel of whole vectors, densely: values lie as they would be packed.
  if (few_rows_ != nullptr ||
      (value_panels_.count() == 1 && value_step_ == shape_.value_width && rows.step == value_step_))
    return rows;
  WeightView view;
  view.data = rows.data;
  view.depth = rows.count;
  view.depth_stride = rows.step;
  view.column_stride = 1;
  for (std::int64_t p = 0; p < value_panels_.count(); ++p)
    pack_panel(value_panels_, view, p, block.values);
  return {block.values, 0, rows.count};
}

/// scores[row][i] = scale * (query, key i), for `count` keys.
void AttentionF32::score(const AttentionArgs& args, const Block& strip, const CacheRows& rows,
                         std::int64_t count) const {
  for (std::int64_t i = 0; i < strip.rows; ++i) {
    const std::int64_t row = strip.row + i;
    const std::int64_t head = strip.kv_head * shape_.group + row % shape_.group;
    strip.table[i] = args.q + args.q_steps.at(strip.batch, head, row / shape_.group);
  }
  if (few_rows_ == nullptr) {
    return multiply(panels_of(rows.count, *tiles_), strip,
                    {static_cast<const float*>(rows.data), shape_.width, shape_.width, count,
                     strip.scores, key_step_, true});
  }
  few_rows_->along_depth({strip.table, strip.rows, rows.data, rows.step, shape_.width, count,
                          strip.scores, key_step_});
  for (std::int64_t i = 0; i < strip.rows; ++i) {
    float* scores = strip.scores + i * key_step_;
    loops_->scale(scores, scores, count, shape_.scale);
  }
}

/// Adds the mask to, or takes it from, the scores x[key - keys.begin] of a row.
void AttentionF32::mask_row(const AttentionArgs& args, const Block& block, KeyRange keys,
                            std::int64_t row, float* x) const {
  const std::int64_t query = (block.row + row) / shape_.group;
  const std::int64_t head = block.kv_head * shape_.group + (block.row + row) % shape_.group;
  const std::int64_t at =
      args.mask_steps.at(block.batch, head, query) + (args.mask_spreads ? 0 : keys.begin);
  const std::int64_t count = keys.end - keys.begin;
  if (args.mask_kind == AttentionArgs::Mask::Chosen) {
    const bool* mask = static_cast<const bool*>(args.mask) + at;
    if (!args.mask_spreads) {
      loops_->keep(x, mask, count, args.chosen, args.otherwise);
    } else if (*mask != args.chosen) {
      std::fill_n(x, count, args.otherwise);
    }
    return;
  }
  const float* addend = static_cast<const float*>(args.mask) + at;
  if (args.mask_spreads) {
    std::fill_n(block.spread, count, *addend);
    addend = block.spread;
  }
  loops_->add(x, addend, count);
}

/// Makes weights of the scores of a row, relative to the greatest one so far.
void AttentionF32::weigh_row(const AttentionArgs& args, const Block& block, KeyRange keys,
                             std::int64_t row) const {
  float* scores = block.scores + row * key_step_;
  KeyRange seen = keys_of(block, row);
  seen.begin = std::clamp(seen.begin, keys.begin, keys.end);
  seen.end = std::clamp(seen.end, seen.begin, keys.end);
  float* x = scores + (seen.begin - keys.begin);
  const std::int64_t count = seen.end - seen.begin;
  std::fill(scores, x, 0.0f);
  std::fill(x + count, scores + (keys.end - keys.begin), 0.0f);
  if (count == 0) return;
  if (shape_.softcap > 0) loops_->cap(x, count, shape_.softcap);
  if (args.mask_kind != AttentionArgs::Mask::None) mask_row(args, block, seen, row, x);
  const float before = block.greatest[row];
  const float after = std::max(before, loops_->max(x, count));
  if (after > before && before != -HUGE_VALF) {
    float* sums = block.sums + row * value_step_;
    const float factor = rescaling(before, after);
    loops_->scale(sums, sums, value_step_, factor);
    block.totals[row] *= factor;
  }
  block.greatest[row] = after;
  block.totals[row] += loops_->exp_sum(x, count, after == -HUGE_VALF ? 0.0f : after);
}

/// sums[row] += weights[row] times the values of the first `count` keys.
void AttentionF32::add_values(const Block& strip, const CacheRows& rows, std::int64_t count) const {
  for (std::int64_t i = 0; i < strip.rows; ++i) strip.table[i] = strip.scores + i * key_step_;
  if (few_rows_ == nullptr) {
    return multiply(value_panels_, strip,
                    {static_cast<const float*>(rows.data), rows.count, count, value_step_,
                     strip.sums, value_step_, false});
  }
  few_rows_->along_columns({strip.table, strip.rows, rows.data, rows.step, count,
                            shape_.value_width, strip.sums, value_step_, true});
}

/// Sums of nothing, or of a sink alone.
void AttentionF32::start(const AttentionArgs& args, const Block& block) const {
  std::fill_n(block.sums, block.rows * value_step_, 0.0f);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    block.totals[i] = 0.0f;
    block.greatest[i] = -HUGE_VALF;
    if (args.sinks == nullptr) continue;
    const float sink = args.sinks[block.kv_head * shape_.group + (block.row + i) % shape_.group];
    block.greatest[i] = sink;
    // e^(sink - sink), which is NaN for a sink that is no number or infinite.
    if (sink != -HUGE_VALF) block.totals[i] = 1.0f + (sink - sink);
  }
}

void AttentionF32::finish(const AttentionArgs& args, const Block& block) const {
  for (std::int64_t i = 0; i < block.rows; ++i) {
    const std::int64_t row = block.row + i;
    const std::int64_t head = block.kv_head * shape_.group + row % shape_.group;
    float* y = args.y + args.y_steps.at(block.batch, head, row / shape_.group);
    const float total = block.totals[i];
    if (total == 0.0f) {
      const bool is_nan = shape_.nan_where_empty && shape_.keys > 0;
      std::fill_n(y, shape_.value_width, is_nan ? NAN : 0.0f);
    } else {
      loops_->scale(block.sums + i * value_step_, y, shape_.value_width, 1.0f / total);
    }
  }
}

AttentionF32::Block AttentionF32::strip_of(const Block& block, std::int64_t index) const {
  const std::int64_t first = index * strip_rows_;
  Block strip = block;
  strip.row += first;
  strip.rows = std::min(strip_rows_, block.rows - first);
  strip.sums += first * value_step_;
  strip.totals += first;
  strip.greatest += first;
  return strip;
}

/// What the block's rows take from a few keys. Strips leave out the keys that none of their rows may look at.
void AttentionF32::run_keys(const AttentionArgs& args, const Block& block, KeyRange keys) const {
  const CacheRows packed_keys = pack_keys(args, block, keys);
  bool has_values = false;
  CacheRows packed_values{};
  for (std::int64_t i = 0; i * strip_rows_ < block.rows; ++i) {
    const Block strip = strip_of(block, i);
    const KeyRange seen{keys.begin, std::min(keys.end, keys_of(strip, strip.rows - 1).end)};
    if (keys_of(strip, 0).begin >= keys.end || seen.end <= keys.begin) continue;
    const std::int64_t count = seen.end - seen.begin;
    score(args, strip, packed_keys, count);
    for (std::int64_t row = 0; row < strip.rows; ++row) weigh_row(args, strip, seen, row);
    // Not before the scores: both may be widened in one memory.
    if (!has_values) packed_values = pack_values(args, block, keys);
    has_values = true;
    add_values(strip, packed_values, count);
  }
}

void AttentionF32::run_block(const AttentionArgs& args, std::int64_t head, std::int64_t index,
                             char* scratch) const {
  const Block block = open_block(args, head, index, scratch);
  if (block.rows == 0) return;
  start(args, block);
  const std::int64_t begin = keys_of(block, 0).begin;
  const std::int64_t end = keys_of(block, block.rows - 1).end;
  for (std::int64_t key = begin; key < end; key += kKeys)
    run_keys(args, block, {key, std::min(end, key + kKeys)});
  finish(args, block);
}

}  // namespace backplane::cpu
