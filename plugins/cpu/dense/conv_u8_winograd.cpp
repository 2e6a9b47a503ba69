#include "plugins/cpu/dense/conv_u8_winograd.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/dense/equal_tiles.hpp"
#include "plugins/cpu/dense/product_u8.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Transformed tiles of a block stay in the second-level cache while all panels pass, and a panel is not read for too few.
constexpr std::int64_t kTransformedBytes = 384 * 1024;
constexpr std::int64_t kLeastTilesU8 = 24;
constexpr std::int64_t kMostTilesU8 = 96;
// Multiply-adds below which handing an item to another thread costs more than it saves.
constexpr std::int64_t kItemWorkTransformed = 400'000;
// What the transforms take for each tile and channel, in multiply-adds of a product's rate, measured with AVX2.
constexpr std::int64_t kInputWork = 40;
constexpr std::int64_t kOutputWork = 60;
// Sums that are four times as large have 32 bits.
constexpr std::int64_t kMostChannels = kMostSummedU8 / 4 / 9;

std::int64_t tiles_of(const ConvShape& shape) {
  return shape.batch * ceil_div(shape.window.out[1], kWinogradOutU8) *
         ceil_div(shape.window.out[2], kWinogradOutU8);
}

}  // namespace

bool WinogradU8::applies(const ConvShape& shape, Isa isa) {
  const Window& window = shape.window;
  const KernelsU8& kernels = kernels_u8(isa);
  return kernels.wide != nullptr && shape.groups == 1 && window.in[0] == 1 && window.out[0] == 1 &&
         window.kernel == std::array<std::int64_t, 3>{1, 3, 3} &&
         window.stride == std::array<std::int64_t, 3>{1, 1, 1} && window.dilation[1] == 1 &&
         window.dilation[2] == 1 && shape.in_channels % 4 == 0 &&
         shape.in_channels >= kernels.panel_columns && shape.in_channels <= kMostChannels;
}

bool WinogradU8::pays(const ConvShape& shape, Isa isa) {
  if (!applies(shape, isa)) return false;
  const std::int64_t tiles = tiles_of(shape);
  const std::int64_t channels = shape.in_channels * shape.out_channels;
  const std::int64_t work = tiles * (kWinogradPointsU8 * channels + kInputWork * shape.in_channels +
                                     kOutputWork * shape.out_channels);
  return work < shape.batch * shape.window.out_pixels() * 9 * channels;
}

WinogradU8::WinogradU8(const ConvShape& shape, Isa isa, unsigned threads)
    : shape_(shape),
      tile_window_(shape.window),
      kernels_(&kernels_u8(isa)),
      transforms_(&winograd_kernels_u8(isa)),
      threads_(threads),
      tiles_(tiles_of(shape)) {
  for (const std::size_t axis : {std::size_t{1}, std::size_t{2}}) {
    tile_window_.kernel[axis] = kWinogradInU8;
    tile_window_.stride[axis] = kWinogradOutU8;
    tile_window_.out[axis] = ceil_div(shape.window.out[axis], kWinogradOutU8);
  }
  const std::int64_t tile_bytes = kWinogradPointsU8 * 2 * shape.in_channels;
  const std::int64_t cached =
      std::clamp(kTransformedBytes / tile_bytes, kLeastTilesU8, kMostTilesU8);
  blocks_ = ceil_div(tiles_, cached);
  if (blocks_ == 0) return;
  block_ = ceil_div(tiles_, blocks_);
  const std::int64_t work = tiles_ * kWinogradPointsU8 * shape.in_channels * shape.out_channels;
  const std::int64_t wanted =
      std::min<std::int64_t>(4 * std::int64_t{threads}, work / kItemWorkTransformed);
  if (threads > 1 && blocks_ < wanted) {
    panel_items_ = std::clamp<std::int64_t>(ceil_div(wanted, blocks_), 1, panel_count());
  }
}

std::uint64_t WinogradU8::packed_bytes() const {
  return ColumnTableU8::end(weight_bytes(), lanes());
}

std::uint64_t WinogradU8::scratch_bytes() const {
  const auto tiles = static_cast<std::uint64_t>(kWinogradPointsU8 * block_);
  return align64(tiles * sizeof(void*)) +
         align64(tiles * static_cast<std::uint64_t>(shape_.in_channels) * 2) +
         align64(tiles * static_cast<std::uint64_t>(kernels_->panel_columns) * 4);
}

std::uint64_t WinogradU8::workspace_bytes() const {
  return align64(static_cast<std::uint64_t>(shape_.in_channels)) + scratch_bytes() * threads_;
}

WinogradU8::Scratch WinogradU8::scratch_at(char* workspace, unsigned worker) const {
  const auto tiles = static_cast<std::uint64_t>(kWinogradPointsU8 * block_);
  char* table = workspace + scratch_bytes() * worker;
  char* in = table + align64(tiles * sizeof(void*));
  char* sums = in + align64(tiles * static_cast<std::uint64_t>(shape_.in_channels) * 2);
  return {reinterpret_cast<const std::uint8_t**>(table), reinterpret_cast<std::int16_t*>(in),
          reinterpret_cast<std::int32_t*>(sums)};
}

void WinogradU8::run(const WinogradArgsU8& args, void* workspace,
                     const sdk::Threads& threads) const {
  auto* zeros = static_cast<std::uint8_t*>(workspace);
  std::memset(zeros, args.zero, static_cast<std::size_t>(shape_.in_channels));
  char* scratches =
      static_cast<char*>(workspace) + align64(static_cast<std::uint64_t>(shape_.in_channels));
  const std::int64_t panels = panel_count();
  const auto item = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
    const Scratch scratch = scratch_at(scratches, worker);
    for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i) {
      const std::int64_t block = i / panel_items_;
      const std::int64_t part = i % panel_items_;
      const std::int64_t tile = tiles_ * block / blocks_;
      const std::int64_t count = tiles_ * (block + 1) / blocks_ - tile;
      transform_inputs(args, zeros, scratch, tile, count);
      const std::int64_t last = panels * (part + 1) / panel_items_;
      for (std::int64_t panel = panels * part / panel_items_; panel < last; ++panel) {
        multiply(args, scratch, count, panel);
        transform_outputs(args, scratch, tile, count, panel);
      }
    }
  };
  const auto items = static_cast<std::uint64_t>(blocks_ * panel_items_);
  if (items == 1) {
    item(0, 1, 0);
  } else if (items > 1) {
    threads.parallel_for(items, 1, item);
  }
}

void WinogradU8::transform_inputs(const WinogradArgsU8& args, const std::uint8_t* zeros,
                                  const Scratch& scratch, std::int64_t tile,
                                  std::int64_t count) const {
  const RowSource<std::uint8_t> source{tile_window_, args.x,
                                       ImageStrides::dense(tile_window_.in, shape_.in_channels)};
  fill_taps(scratch.table, count, source, zeros, tile, count);
  for (std::int64_t i = 0; i < count; ++i) {
    transforms_->input(scratch.table + i, count, shape_.in_channels, args.x_signed,
                       scratch.in + i * shape_.in_channels, count * shape_.in_channels);
  }
}

void WinogradU8::multiply(const WinogradArgsU8& args, const Scratch& scratch, std::int64_t count,
                          std::int64_t panel) const {
  const int width = kernels_->panel_columns;
  const std::int64_t channels = shape_.in_channels;
  const auto* numbers = static_cast<const std::int16_t*>(args.packed) + panel * panel_numbers();
  TileU8Args tile{};
  tile.wide_stride = channels;
  tile.quads = channels / 4;
  for (std::int64_t p = 0; p < kWinogradPointsU8; ++p) {
    tile.panel = numbers + p * channels * width;
    for_equal_tiles(count, kernels_->max_rows(width), 1,
                    [&](std::int64_t first, std::int64_t rows, std::int64_t) {
                      tile.wide = scratch.in + (p * count + first) * channels;
                      tile.out = scratch.sums + (p * count + first) * width;
                      kernels_->wide->raw_tile(static_cast<int>(rows))(tile);
                    });
  }
}

void WinogradU8::transform_outputs(const WinogradArgsU8& args, const Scratch& scratch,
                                   std::int64_t tile, std::int64_t count,
                                   std::int64_t panel) const {
  const Window& window = shape_.window;
  const std::int64_t width = kernels_->panel_columns;
  const std::int64_t element = args.finish.element_bytes();
  WinogradOutputU8 out{};
  out.point_stride = count * width;
  out.columns = ColumnTableU8::behind(args.packed, weight_bytes(), lanes()).from(panel * width);
  out.finish = &args.finish;
  out.width = std::min(width, shape_.out_channels - panel * width);
  out.pixel_bytes = shape_.out_channels * element;
  out.row_bytes = window.out[2] * out.pixel_bytes;
  for_each_line(tile_window_, tile, count,
                [&](std::int64_t image, std::int64_t, std::int64_t y, std::int64_t x,
                    std::int64_t first, std::int64_t in_line) {
                  out.rows = std::min(kWinogradOutU8, window.out[1] - y * kWinogradOutU8);
                  char* line = static_cast<char*>(args.y) +
                               (image * window.out[1] + y * kWinogradOutU8) * out.row_bytes +
                               panel * width * element;
                  for (std::int64_t i = 0; i < in_line; ++i) {
                    const std::int64_t pixel = (x + i) * kWinogradOutU8;
                    out.pixels = std::min(kWinogradOutU8, window.out[2] - pixel);
                    out.points = scratch.sums + (first + i) * width;
                    out.out = line + pixel * out.pixel_bytes;
                    transforms_->output(out);
                  }
                });
}

}  // namespace backplane::cpu
