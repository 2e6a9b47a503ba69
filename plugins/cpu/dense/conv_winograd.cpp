#include "plugins/cpu/dense/conv_winograd.hpp"

#include <algorithm>

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Bytes of transformed tiles of a block: about a second-level cache.
constexpr int64_t kBlockBytes = 700 * 1024;
// Weights larger than this come from afar, and are then used for many tiles each time.
constexpr int64_t kNearWeights = 2 * 1024 * 1024;
// And those larger than this from memory.
constexpr double kFarWeights = 16e6;
constexpr int64_t kFarBlock = 66;
constexpr int64_t kMinBlock = 12;

int64_t tile_count(const ConvShape& shape) {
  return shape.batch * ceil_div(shape.window.out[1], kWinogradOut) *
         ceil_div(shape.window.out[2], kWinogradOut);
}

ProductShape point_shape(const ConvShape& shape, Isa isa) {
  const int64_t lanes = tile_kernels(isa).lanes;
  ProductShape point;
  point.rows = tile_count(shape);
  point.depth = shape.in_channels;
  point.columns = ceil_div(shape.out_channels, lanes) * lanes;
  return point;
}

}  // namespace

bool WinogradConv::applies(const ConvShape& shape) {
  const Window& window = shape.window;
  return shape.groups == 1 && window.in[0] == 1 && window.out[0] == 1 &&
         window.kernel == std::array<int64_t, 3>{1, 3, 3} &&
         window.stride == std::array<int64_t, 3>{1, 1, 1} && window.dilation[1] == 1 &&
         window.dilation[2] == 1;
}

bool WinogradConv::pays(const ConvShape& shape, double direct_rate, Isa isa, unsigned threads) {
  if (!applies(shape) || shape.in_channels < 8 || shape.out_channels < 8) return false;
  // Rates of one core, in multiply-adds, transformed floats and bytes of weights a nanosecond. The
  // products of both methods run near the peak; the transforms and the four times larger weights are
  // what Winograd's costs on top.
  const double macs_per_ns = isa >= Isa::kAvx512 ? 110 : isa == Isa::kAvx2 ? 55 : 1.5;
  const double transforms_per_ns = macs_per_ns / 100;
  const double weight_bytes_per_ns = 20;  // from the last-level cache, to each core
  const auto channels = static_cast<double>(shape.in_channels * shape.out_channels);
  const auto pixels = static_cast<double>(shape.batch * shape.window.out_pixels());
  const auto tiles = static_cast<double>(tile_count(shape));
  const double direct = channels * 9 * pixels / (direct_rate * macs_per_ns) / threads;
  const double points = channels * kWinogradPoints * tiles / (0.85 * macs_per_ns);
  const double transforms =
      tiles * static_cast<double>(shape.in_channels + shape.out_channels) / transforms_per_ns;
  const double weight_bytes = channels * kWinogradPoints * 4;
  const double sharers =
      weight_bytes > kFarWeights ? 1 : threads;  // memory's rate is one for all cores
  const double weights = weight_bytes / weight_bytes_per_ns / sharers;
  return std::max((points + transforms) / threads, weights) < direct;
}

WinogradConv::WinogradConv(const ConvShape& shape, const Activation& activation, Isa isa,
                           unsigned threads)
    : shape_(shape),
      activation_(activation),
      kernels_(&winograd_kernels(isa)),
      activations_(&activation_kernels(isa)),
      threads_(threads),
      tiles_y_(ceil_div(shape.window.out[1], kWinogradOut)),
      tiles_x_(ceil_div(shape.window.out[2], kWinogradOut)),
      tiles_(tile_count(shape)),
      point_(point_shape(shape, isa), Activation{}, isa, 1) {
  const int64_t weight_bytes = kWinogradPoints * shape.in_channels * shape.out_channels * 4;
  const int64_t tile_bytes = kWinogradPoints * 4 * std::max(shape.in_channels, shape.out_channels);
  block_ = weight_bytes > kNearWeights ? kFarBlock : std::max(kMinBlock, kBlockBytes / tile_bytes);
  const int64_t share = ceil_div(tiles_, 2 * static_cast<int64_t>(threads));
  if (weight_bytes <= kNearWeights && share >= kMinBlock) block_ = std::min(block_, share);
  block_ = std::max<int64_t>(1, std::min(block_, tiles_));
  int64_t blocks = ceil_div(tiles_, block_);
  whole_blocks_ = threads == 1 || blocks >= 2 * static_cast<int64_t>(threads);
  if (whole_blocks_ && threads > 1) blocks = ceil_div(blocks, threads) * threads;
  block_ = std::max<int64_t>(1, ceil_div(tiles_, std::max<int64_t>(1, blocks)));
}

uint64_t WinogradConv::block_bytes() const {
  const auto tile_floats = static_cast<uint64_t>(shape_.in_channels + point_.shape().columns);
  return align64(tile_floats * kWinogradPoints * static_cast<uint64_t>(block_) * 4 + 64) +
         (whole_blocks_ ? 1 : threads_) * point_.scratch_bytes();
}

uint64_t WinogradConv::workspace_bytes() const {
  return block_bytes() * (whole_blocks_ ? threads_ : 1);
}

WinogradConv::Scratch WinogradConv::scratch_at(void* workspace, unsigned worker) const {
  char* base = static_cast<char*>(workspace) + block_bytes() * worker;
  const auto in = align64(static_cast<uint64_t>(kWinogradPoints * block_ * shape_.in_channels) * 4);
  const auto out = static_cast<uint64_t>(kWinogradPoints * block_ * point_.shape().columns) * 4;
  return {reinterpret_cast<float*>(base), reinterpret_cast<float*>(base + in),
          base + align64(in + out)};
}

void WinogradConv::pack(const float* weights, const float* scales, float* packed,
                        const sdk::Threads& threads) const {
  const Panels& panels = point_.panels();
  threads.parallel_for(
      static_cast<uint64_t>(panels.count()), 1, [&](uint64_t begin, uint64_t end, uint32_t) {
        for (uint64_t i = begin; i < end; ++i) {
          pack_filters(weights, scales, panels.at(static_cast<int64_t>(i)), packed);
        }
      });
}

void WinogradConv::pack_filters(const float* weights, const float* scales,
                                const Panels::Panel& panel, float* packed) const {
  const int64_t pitch = static_cast<int64_t>(panel.vectors) * point_.panels().lanes();
  const int64_t point_floats = point_.packed_floats();
  float w[9][kWinogradFilters] = {};
  float u[kWinogradPoints][kWinogradFilters];
  for (int64_t c = 0; c < shape_.in_channels; ++c) {
    float* out = packed + panel.column * shape_.in_channels + c * pitch;
    for (int64_t first = 0; first < pitch; first += kWinogradFilters) {
      const int64_t count = std::min(kWinogradFilters, pitch - first);
      const int64_t column = panel.column + first;
      const int64_t existing = std::clamp<int64_t>(shape_.out_channels - column, 0, count);
      gather_filters(weights, scales, {column, existing, c}, w);
      winograd_filters(w, u[0], kWinogradFilters);
      for (int64_t p = 0; p < kWinogradPoints; ++p) {
        std::copy_n(u[p], count, out + p * point_floats + first);
      }
    }
  }
}

/// The taps of neighbouring filters, scaled, side by side; zero for filters that do not exist.
void WinogradConv::gather_filters(const float* weights, const float* scales, const Filters& filters,
                                  float (&w)[9][kWinogradFilters]) const {
  for (int64_t f = 0; f < kWinogradFilters; ++f) {
    const int64_t column = filters.first + f;
    const bool exists = f < filters.count;
    const float scale = exists && scales != nullptr ? scales[column] : 1.0f;
    const float* filter =
        weights + (exists ? (column * shape_.in_channels + filters.channel) * 9 : 0);
    for (int64_t tap = 0; tap < 9; ++tap) w[tap][f] = exists ? filter[tap] * scale : 0.0f;
  }
}

void WinogradConv::run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const {
  if (whole_blocks_) {
    run_blocks(args, workspace, threads);
  } else {
    run_steps(args, workspace, threads);
  }
}

void WinogradConv::run_blocks(const ConvArgs& args, void* workspace,
                              const sdk::Threads& threads) const {
  const auto block = [&](uint64_t begin, uint64_t end, uint32_t worker) {
    const Scratch scratch = scratch_at(workspace, worker);
    for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
      const int64_t tile = i * block_;
      const int64_t count = std::min(block_, tiles_ - tile);
      transform_inputs(args, scratch, tile, 0, count);
      for (int64_t p = 0; p < kWinogradPoints; ++p) multiply(args, scratch, count, p, 0, threads);
      transform_outputs(args, scratch, tile, 0, count);
    }
  };
  const auto blocks = static_cast<uint64_t>(ceil_div(tiles_, block_));
  if (threads_ == 1) {
    block(0, blocks, 0);
  } else {
    threads.parallel_for(blocks, 1, block);
  }
}

void WinogradConv::run_steps(const ConvArgs& args, void* workspace,
                             const sdk::Threads& threads) const {
  const Scratch scratch = scratch_at(workspace, 0);
  for (int64_t tile = 0; tile < tiles_; tile += block_) {
    const int64_t count = std::min(block_, tiles_ - tile);
    const auto grain = static_cast<uint64_t>(count) / (4 * threads_) + 1;
    threads.parallel_for(static_cast<uint64_t>(count), grain,
                         [&](uint64_t begin, uint64_t end, uint32_t) {
                           transform_inputs(args, scratch, tile, static_cast<int64_t>(begin),
                                            static_cast<int64_t>(end));
                         });
    threads.parallel_for(kWinogradPoints, kWinogradPoints / (4 * threads_) + 1,
                         [&](uint64_t begin, uint64_t end, uint32_t worker) {
                           for (uint64_t p = begin; p < end; ++p) {
                             multiply(args, scratch, count, static_cast<int64_t>(p), worker,
                                      threads);
                           }
                         });
    threads.parallel_for(static_cast<uint64_t>(count), grain,
                         [&](uint64_t begin, uint64_t end, uint32_t) {
                           transform_outputs(args, scratch, tile, static_cast<int64_t>(begin),
                                             static_cast<int64_t>(end));
                         });
  }
}

void WinogradConv::transform_inputs(const ConvArgs& args, const Scratch& scratch, int64_t tile,
                                    int64_t begin, int64_t end) const {
  const Window& window = shape_.window;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t image = (tile + i) / (tiles_y_ * tiles_x_);
    const int64_t y = (tile + i) / tiles_x_ % tiles_y_ * kWinogradOut - window.pad_begin[1];
    const int64_t x = (tile + i) % tiles_x_ * kWinogradOut - window.pad_begin[2];
    WinogradTile part{};
    part.height_stride = args.x_strides.height;
    part.width_stride = args.x_strides.width;
    part.y_begin = std::max<int64_t>(0, -y);
    part.y_end = std::min(kWinogradIn, window.in[1] - y);
    part.x_begin = std::max<int64_t>(0, -x);
    part.x_end = std::min(kWinogradIn, window.in[2] - x);
    const float* first =
        args.x + image * args.x_strides.batch + y * part.height_stride + x * part.width_stride;
    kernels_->input(part, first, shape_.in_channels, scratch.in + i * shape_.in_channels,
                    block_ * shape_.in_channels);
  }
}

void WinogradConv::multiply(const ConvArgs& args, const Scratch& scratch, int64_t tiles,
                            int64_t point, unsigned worker, const sdk::Threads& threads) const {
  const int64_t columns = point_.shape().columns;
  const float* in = scratch.in + point * block_ * shape_.in_channels;
  ProductArgs product;
  product.packed = args.packed + point * point_.packed_floats();
  product.out = scratch.out + point * block_ * columns;
  product.out_stride = columns;
  point_.run(product, 0, tiles, threads, scratch.product + worker * point_.scratch_bytes(),
             [&](const float** table, int64_t, int64_t row, int64_t count) {
               for (int64_t i = 0; i < count; ++i) table[i] = in + (row + i) * shape_.in_channels;
             });
}

void WinogradConv::transform_outputs(const ConvArgs& args, const Scratch& scratch, int64_t tile,
                                     int64_t begin, int64_t end) const {
  const Window& window = shape_.window;
  const ImageStrides residual = ImageStrides::dense(window.out, shape_.out_channels);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t image = (tile + i) / (tiles_y_ * tiles_x_);
    const int64_t y = (tile + i) / tiles_x_ % tiles_y_ * kWinogradOut;
    const int64_t x = (tile + i) % tiles_x_ * kWinogradOut;
    WinogradTile part{};
    part.height_stride = args.y_strides.height;
    part.width_stride = args.y_strides.width;
    part.y_end = std::min(kWinogradOut, window.out[1] - y);
    part.x_end = std::min(kWinogradOut, window.out[2] - x);
    WinogradTile from = part;
    from.height_stride = residual.height;
    from.width_stride = residual.width;
    float* out =
        args.y + image * args.y_strides.batch + y * part.height_stride + x * part.width_stride;
    const float* add = args.residual == nullptr ? nullptr
                                                : args.residual + image * residual.batch +
                                                      y * residual.height + x * residual.width;
    const int64_t columns = point_.shape().columns;
    kernels_->output(part, scratch.out + i * columns, block_ * columns, args.bias, add, from,
                     activation_.lo(), activation_.hi(), shape_.out_channels, out);
    if (activation_.in_registers()) continue;
    for (int64_t py = 0; py < part.y_end; ++py) {
      activations_->apply(activation_, out + py * part.height_stride, part.width_stride, part.x_end,
                          shape_.out_channels);
    }
  }
}

}  // namespace backplane::cpu
