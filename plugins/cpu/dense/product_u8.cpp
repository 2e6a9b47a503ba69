#include "plugins/cpu/dense/product_u8.hpp"

#include <cstring>

#include "plugins/cpu/dense/equal_tiles.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Rows of a block stay in the cache while all panels pass: so many, and of those that are widened so many bytes, but
// not so few that weights pass for little.
constexpr std::int64_t kCachedRowsU8 = 96;
constexpr std::int64_t kCachedBytes = 320 * 1024;
constexpr std::int64_t kLeastRows = 24;

std::int64_t cached_rows(std::int64_t row_bytes) {
  return std::clamp(kCachedBytes / std::max<std::int64_t>(1, row_bytes), kLeastRows, kCachedRowsU8);
}

// Of rows that are lines as many as two tiles of AMX are high, or a multiple.
constexpr std::int64_t kPassRows = 32;
// With fewer, the tiles that read rows where they are take as long, and nothing is copied.
constexpr std::int64_t kLeastLines = 5;

std::int64_t cached_lines(std::int64_t line_bytes) {
  const std::int64_t rows = kCachedBytes / std::max<std::int64_t>(1, line_bytes);
  return std::clamp(rows / kPassRows * kPassRows, kPassRows, kCachedRowsU8);
}

/// Of a length that is no constant: a call for a few bytes would take longer than the bytes.
inline void copy_bytes(const std::uint8_t* from, std::int64_t n, std::uint8_t* to) {
  constexpr std::int64_t kStep = 16;
  if (n < kStep) {
    for (std::int64_t i = 0; i < n; i += 4) std::memcpy(to + i, from + i, 4);
    return;
  }
  for (std::int64_t i = 0; i + kStep < n; i += kStep) std::memcpy(to + i, from + i, kStep);
  std::memcpy(to + n - kStep, from + n - kStep, kStep);
}

// Tiles whose sums are finished while they are in the first-level cache.
constexpr std::int64_t kTilesOfFinish = 8;
// Sums of an item that are finished at once.
constexpr std::int64_t kSumsAtOnce = 4096;
// Multiply-adds below which handing an item to another thread costs more than it saves.
constexpr std::int64_t kItemWorkU8 = 400'000;

}  // namespace

ProductU8::ProductU8(const ShapeU8& shape, const KernelsU8& kernels, unsigned threads)
    : shape_(shape), kernels_(&kernels), threads_(threads) {
  const bool has_lines = kernels_->lines != nullptr;
  const std::int64_t wide_row = kernels_->wide == nullptr ? 0 : 8 * quads();
  const std::int64_t cached = has_lines ? cached_lines(4 * quads()) : cached_rows(wide_row);
  blocks_ = (shape.rows + cached - 1) / cached;
  const std::int64_t panels = panel_count() * shape.groups;
  const std::int64_t work = shape.rows * quads() * 4 * shape.columns * shape.groups;
  const std::int64_t wanted = std::min<std::int64_t>(4 * std::int64_t{threads}, work / kItemWorkU8);
  if (threads > 1 && blocks_ > 0 && blocks_ < wanted) {
    // Few rows: the threads share the columns of a block.
    panel_items_ = std::clamp<std::int64_t>((wanted + blocks_ - 1) / blocks_, 1,
                                            std::max<std::int64_t>(1, panels));
  }
  const std::int64_t tallest = blocks_ > 0 ? (shape.rows + blocks_ - 1) / blocks_ : 0;
  table_bytes_ = align64(static_cast<std::uint64_t>(shape.taps * tallest) * sizeof(void*));
  if (kernels_->wide != nullptr)
    wide_bytes_ = align64(static_cast<std::uint64_t>(wide_row * tallest + 2 * kBehindRowU8));
  if (has_lines) wide_bytes_ = static_cast<std::uint64_t>(4 * quads() * tallest);
  kept_bytes_ = static_cast<std::uint64_t>(wide_row * kernels_->panel_columns);
}

ProductU8::Place ProductU8::place(std::int64_t panel) const {
  const std::int64_t whole = kernels_->panel_columns;
  const std::int64_t width = std::min(whole, shape_.columns - panel * whole);
  const std::uint64_t panel_bytes = static_cast<std::uint64_t>(whole * quads() * 4) + rest_bytes();
  return {width, kernels_->columns_for(width), static_cast<std::uint64_t>(panel) * panel_bytes,
          panel * whole};
}

std::int64_t ProductU8::lanes() const {
  const std::int64_t panels = panel_count();
  return panels == 0 ? 0 : place(panels - 1).lanes + place(panels - 1).columns;
}

std::uint64_t ProductU8::group_bytes() const {
  return align64(ColumnTableU8::end(weight_bytes(), lanes()));
}

bool ProductU8::pack_rows(const std::uint8_t* weights, std::int64_t stride, std::int64_t depth,
                          std::uint8_t flip, std::int32_t* sums, void* packed,
                          const sdk::Threads& threads) const {
  const auto weight = [=](std::int64_t, std::int64_t, std::int64_t k, std::int64_t column) {
    return k < depth ? static_cast<std::int8_t>(weights[k * stride + column] ^ flip)
                     : std::int8_t{0};
  };
  const ColumnTableU8 table = ColumnTableU8::behind(packed, weight_bytes(), lanes());
  const auto pack_one = [&](std::int64_t panel) {
    const Place at = place(panel);
    const std::int64_t first = panel * kernels_->panel_columns;
    auto* base = static_cast<char*>(packed);
    if (kernels_->pack_rows != nullptr && at.columns == kernels_->panel_columns) {
      kernels_->pack_rows(
          {weights + first, stride, depth, at.width, flip, base + at.panel, sums + first});
      const std::int64_t packed_quads = ceil_div(depth, 4);
      std::memset(base + at.panel + packed_quads * 4 * at.columns, 0,
                  static_cast<std::size_t>((quads() - packed_quads) * 4 * at.columns));
      for (std::int64_t j = 0; j < at.columns; ++j) table.set(at.lanes + j, 0, 0, 0);
      return split(base + at.panel);
    }
    const bool has_taken = pack_panel({}, 0, panel, base, weight);
    for (std::int64_t j = first; j < first + at.width; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) sum += weight(0, 0, k, j);
      sums[j] = sum;
    }
    return has_taken;
  };
  return pack_all(panel_count(), threads, pack_one);
}

void ProductU8::widen_rows(const ArgsU8& args, const Scratch& memory, std::int64_t row,
                           std::int64_t count, std::int64_t group) const {
  const std::int64_t depth = shape_.depth;
  const std::uint8_t* const* table = memory.table;
  std::int16_t* wide = memory.wide;
  if (args.x != nullptr)
    return kernels_->wide->widen(args.x + row * depth, count * depth, args.x_signed, wide);
  if (args.pixel_channels != 0) {
    const PixelRowsU8 rows{
        table, count, shape_.taps, depth / args.pixel_channels, args.pixel_channels, 4 * quads()};
    return kernels_->wide->widen_pixels(rows, args.x_signed, wide);
  }
  // What follows each other in memory is widened at once.
  const std::uint8_t* from = nullptr;
  std::int64_t length = 0;
  const auto flush = [&] {
    if (length > 0) kernels_->wide->widen(from, length, args.x_signed, wide);
    wide += length;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t t = 0; t < shape_.taps; ++t) {
      const std::uint8_t* segment = table[t * count + i] + group * depth;
      if (length == 0 || segment != from + length) {
        flush();
        from = segment;
        length = 0;
      }
      length += depth;
    }
  }
  flush();
}

ProductU8::Lines ProductU8::find_lines(const ArgsU8& args, const Scratch& memory, std::int64_t row,
                                       std::int64_t count, std::int64_t group) const {
  if (kernels_->lines == nullptr || count < kLeastLines) return {};
  const std::int64_t depth = shape_.depth, stride = 4 * quads();
  // Where more than a fifth would be filling, copies cost what the products gain.
  if (5 * shape_.taps * depth < 4 * stride) return {};
  if (args.x != nullptr && !args.x_signed && depth == stride) return {args.x + row * depth, depth};
  std::uint8_t* to = memory.lines;
  for (std::int64_t i = 0; i < count; ++i, to += stride) {
    const std::uint8_t* const* taps = memory.table + i;
    std::int64_t length = 0, begun = 0;
    for (std::int64_t t = 0; t < shape_.taps; begun += length) {
      // What follows each other in memory is copied at once.
      const std::uint8_t* const from = taps[t * count] + group * depth;
      length = depth;
      while (++t < shape_.taps && taps[t * count] + group * depth == from + length) length += depth;
      copy_bytes(from, length, to + begun);
    }
    std::memset(to + begun, 0, static_cast<std::size_t>(stride - begun));
  }
  if (args.x_signed) {
    for (std::int64_t i = 0; i < count * stride; ++i) memory.lines[i] ^= 0x80;
  }
  return {memory.lines, stride};
}

void ProductU8::run_rows(const ArgsU8& args, const Scratch& memory, std::int64_t row,
                         std::int64_t count, std::int64_t panel_item) const {
  const std::int64_t panels = panel_count();
  const std::int64_t all = panels * shape_.groups;
  const std::int64_t begin = all * panel_item / panel_items_;
  const std::int64_t end = all * (panel_item + 1) / panel_items_;
  TileU8Args tile{};
  tile.row_pitch = count;
  tile.wide_stride = 4 * quads();
  const bool widened = kernels_->wide != nullptr;
  tile.kept = memory.kept;
  tile.taps = shape_.taps;
  tile.quads = widened ? quads() : shape_.depth / 4;
  tile.out_stride = args.out_stride;
  tile.finish = &args.finish;
  // Few sums are finished at once behind the last panel: they are still in the first-level cache.
  const std::int64_t first = begin * kernels_->panel_columns;
  const std::int64_t width = std::min(shape_.columns, end * kernels_->panel_columns) - first;
  const bool at_once = args.after != nullptr && shape_.groups == 1 && count * width <= kSumsAtOnce;
  ArgsU8 of_panels = args;
  if (at_once) of_panels.after = nullptr;
  const char* base = nullptr;  // of a group
  ColumnsU8 columns{};
  Lines lines;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t group = i / panels;
    if (i == begin || i % panels == 0) {
      base =
          static_cast<const char*>(args.packed) + group_bytes() * static_cast<std::uint64_t>(group);
      columns = ColumnTableU8::behind(base, weight_bytes(), lanes());
      tile.offset = group * shape_.depth;
      if (widened) widen_rows(args, memory, row, count, group);
      lines = find_lines(args, memory, row, count, group);
    }
    const Place at = place(i % panels);
    tile.panel = base + at.panel;
    tile.columns = columns.from(at.lanes);
    tile.width = at.width;
    const std::int64_t column = group * shape_.columns + i % panels * kernels_->panel_columns;
    const PanelRun run{row, count, column, at.columns};
    if (lines.first != nullptr) {
      run_lines(of_panels, lines, run, tile);
    } else {
      run_panel(of_panels, memory, run, tile);
    }
  }
  if (at_once && width > 0) {
    auto* sums = static_cast<std::int32_t*>(args.out) + row * args.out_stride + first;
    args.after->run({sums, args.out_stride, row, count, first, width});
  }
}

void ProductU8::run_lines(const ArgsU8& args, const Lines& lines, const PanelRun& run,
                          const TileU8Args& all) const {
  void* const out = static_cast<char*>(args.out) +
                    (run.row * args.out_stride + run.column) * args.finish.element_bytes();
  kernels_->lines({lines.first, lines.stride, run.rows, 4 * quads(), all.panel, run.columns,
                   all.columns, all.finish, out, args.out_stride, all.width});
  if (args.after != nullptr)
    args.after->run({out, args.out_stride, run.row, run.rows, run.column, all.width});
}

/// `all`: of the whole panel.
void ProductU8::run_panel(const ArgsU8& args, const Scratch& memory, const PanelRun& run,
                          const TileU8Args& all) const {
  TileU8Args tile = all;
  const auto multiply = [&](std::int64_t first, int height, std::int64_t count, PanelForm form) {
    tile.out = static_cast<char*>(args.out) +
               ((run.row + first) * args.out_stride + run.column) * args.finish.element_bytes();
    if (kernels_->wide == nullptr) {
      tile.rows = memory.table + first;
      kernels_->tile(height, run.columns, args.x_signed)(tile);
    } else {
      tile.wide = memory.wide + first * tile.wide_stride;
      tile.more_tiles = count - 1;
      tile.panel = form == PanelForm::kWide ? static_cast<const void*>(memory.kept) : all.panel;
      kernels_->wide->tile(height, run.columns, form)(tile);
    }
    if (args.after != nullptr) {
      args.after->run(
          {tile.out, args.out_stride, run.row + first, height * count, run.column, tile.width});
    }
  };
  const std::int64_t most = kernels_->wide == nullptr ? 1
                            : args.after != nullptr   ? kTilesOfFinish
                                                      : run.rows;
  for_equal_tiles(run.rows, kernels_->max_rows(run.columns), most,
                  [&](std::int64_t first, std::int64_t rows, std::int64_t count) {
                    const auto height = static_cast<int>(rows);
                    if (first > 0) return multiply(first, height, count, PanelForm::kWide);
                    // The first tile widens the panel for those below it, if there are any.
                    multiply(0, height, 1,
                             height == run.rows ? PanelForm::kBytes : PanelForm::kBytesKept);
                    if (count > 1) multiply(height, height, count - 1, PanelForm::kWide);
                  });
}

}  // namespace backplane::cpu
