#include "plugins/cpu/dense/conv_planes.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/dense/sliding.hpp"
#include "plugins/cpu/kernels/transpose_tile.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Floats of x that an item reads: they stay in the first-level cache while blocks of filters go over them.
constexpr int64_t kItemFloats = 6144;
// Pixels of a line, of which blocks of vectors of all widths are parts.
constexpr int64_t kPixelStep = 192;
constexpr int64_t kMostPixels = 1152;
// The most input channels of a group.
constexpr int64_t kMostDepth = 8;
// Floats.
constexpr int64_t kMostCopied = 1 << 18;
// Multiply-adds that take as long as the change of a float's place.
constexpr int64_t kReorder = 4;
// Multiply-adds worth a thread's attention.
constexpr int64_t kItemWork = 65536;

/// Lines of x that a window covers.
int64_t lines_of(const Window& window) { return (window.kernel[1] - 1) * window.dilation[1] + 1; }
/// Pixels of one residue that a line of windows reads besides one for each.
int64_t more_pixels(const Window& window) {
  return (window.kernel[2] - 1) * window.dilation[2] / window.stride[2];
}

}  // namespace

bool PlanesConv::pays(const ConvShape& shape, Isa isa) {
  const Window& window = shape.window;
  if (shape.groups < 1 || shape.in_channels < shape.groups || shape.out_channels < shape.groups ||
      shape.in_channels > kMostDepth * shape.groups)
    return false;
  if (window.kernel[0] != 1 || window.in[0] != 1 || window.out[0] != 1) return false;
  const int64_t lanes = plane_kernels(isa).lanes;
  if (window.kernel[1] < 1 || window.kernel[2] < 1 || window.out[1] < 1 || window.out[2] < lanes)
    return false;
  // What an item copies is to stay near.
  const int64_t high = lines_of(window);
  const int64_t wide = more_pixels(window);
  if (high > kMostCopied || wide > kMostCopied || window.stride[2] > kMostCopied) return false;
  const int64_t run = kPixelStep + wide + lanes;
  const int64_t runs = std::min(window.kernel[2], window.stride[2]) * high * kMostDepth;
  if (run * (runs + window.stride[2]) > kMostCopied) return false;
  // Vectors of channels are full, too; lines of a signal are read in place here.
  if (DepthwiseConv::applies(shape) && shape.out_channels >= lanes)
    return window.in[1] == 1 && window.stride[2] == 1;
  // Here vectors are lines of pixels, there filters; and there the order of what is computed changes.
  const int64_t filters = shape.out_channels / shape.groups;
  const int64_t pixels = window.out[2];
  const int64_t depth = shape.in_channels / shape.groups * window.taps();
  const int64_t here = ceil_div(pixels, lanes) * lanes * filters * depth;
  const int64_t there = pixels * (ceil_div(filters, lanes) * lanes * depth + kReorder * filters);
  return here <= there;
}

PlanesConv::PlanesConv(const ConvShape& shape, const Activation& activation, Isa isa,
                       unsigned threads)
    : shape_(shape),
      activation_(activation),
      isa_(isa),
      threads_(threads),
      kernels_(&plane_kernels(isa)),
      activations_(&activation_kernels(isa)),
      depth_(shape.in_channels / shape.groups),
      filters_(shape.out_channels / shape.groups),
      blocks_(ceil_div(filters_, kMaxBlockFilters)) {
  find_residues();
  cut_items();
  find_offsets();
}

void PlanesConv::find_residues() {
  const Window& window = shape_.window;
  std::vector<int64_t> of_taps;
  for (int64_t k = 0; k < window.kernel[2]; ++k)
    of_taps.push_back(k * window.dilation[2] % window.stride[2]);
  residues_ = of_taps;
  std::sort(residues_.begin(), residues_.end());
  residues_.erase(std::unique(residues_.begin(), residues_.end()), residues_.end());
  for (const int64_t residue : of_taps) {
    residue_places_.push_back(std::lower_bound(residues_.begin(), residues_.end(), residue) -
                              residues_.begin());
  }
}

/// Items fit into the cache, and there are some for each thread.
void PlanesConv::cut_items() {
  const Window& window = shape_.window;
  const auto residues = static_cast<int64_t>(residues_.size());
  const int64_t high = lines_of(window);
  const int64_t wide = more_pixels(window);
  const int64_t pixel_floats = depth_ * high * residues;
  const int64_t most =
      std::clamp(kItemFloats / pixel_floats / kPixelStep * kPixelStep, kPixelStep, kMostPixels);
  const int64_t out_x = std::max<int64_t>(1, window.out[2]);
  const int64_t out_y = std::max<int64_t>(1, window.out[1]);
  pixels_ = out_x <= most
                ? out_x
                : ceil_div(ceil_div(out_x, ceil_div(out_x, most)), kPixelStep) * kPixelStep;
  parts_ = ceil_div(out_x, pixels_);
  run_pitch_ = pixels_ + wide + kernels_->lanes;
  const int64_t line_floats = depth_ * residues * run_pitch_ * window.stride[1];
  const auto lines_in = [&](int64_t floats) {
    return 1 + (floats - high * depth_ * residues * run_pitch_) / line_floats;
  };
  // So many that lines of x are copied about twice at most, unless the cache is far too small.
  const int64_t least = std::min(ceil_div(high, window.stride[1]) - 1, lines_in(4 * kItemFloats));
  lines_ = parts_ > 1 ? 1 : std::clamp<int64_t>(std::max(lines_in(kItemFloats), least), 1, out_y);
  // Of several groups whole ones.
  const int64_t step = shape_.groups > 1 ? blocks_ : 1;
  const int64_t steps = shape_.groups > 1 ? shape_.groups : blocks_;
  const int64_t step_work = pixels_ * filters_ * depth_ * window.taps() * step / blocks_;
  int64_t item_steps = steps;
  if (shape_.groups > 1) {
    item_steps = std::max<int64_t>(1, kItemFloats / std::max<int64_t>(1, pixel_floats * pixels_));
    item_steps = std::min(item_steps, steps);
  }
  const int64_t wanted = threads_ > 1 ? 4 * static_cast<int64_t>(threads_) : 1;
  const auto items = [&] {
    return shape_.batch * ceil_div(out_y, lines_) * parts_ * ceil_div(steps, item_steps);
  };
  while (items() < wanted && lines_ > 1 && step_work * item_steps * lines_ > 2 * kItemWork)
    lines_ = ceil_div(lines_, 2);
  while (items() < wanted && item_steps > 1 && step_work * item_steps * lines_ > 2 * kItemWork)
    item_steps = ceil_div(item_steps, 2);
  bands_ = ceil_div(out_y, lines_);
  item_blocks_ = item_steps * step;
  block_items_ = ceil_div(steps, item_steps);
  copied_lines_ = (lines_ - 1) * window.stride[1] + high;
  const int64_t groups = shape_.groups > 1 ? ceil_div(item_blocks_, blocks_) : 1;
  residue_pitch_ = groups * depth_ * copied_lines_ * run_pitch_;
}

uint64_t PlanesConv::scratch_bytes() const {
  // With a stride, lines are padded before their pixels are parted.
  const int64_t stride = shape_.window.stride[2];
  const int64_t runs = static_cast<int64_t>(residues_.size()) + (stride > 1 ? stride : 0);
  return align64(static_cast<uint64_t>(runs * residue_pitch_) * 4);
}

/// Of each position along the height, each channel and each position along the width: where its pixels begin.
template <class Place>
std::vector<int64_t> PlanesConv::offsets(const Place& place) const {
  std::vector<int64_t> all;
  for (int64_t y = 0; y < shape_.window.kernel[1]; ++y) {
    for (int64_t c = 0; c < depth_; ++c) {
      for (int64_t x = 0; x < shape_.window.kernel[2]; ++x) all.push_back(place(y, c, x));
    }
  }
  return all;
}

void PlanesConv::find_offsets() {
  const Window& window = shape_.window;
  offsets_in_place_ = offsets([&](int64_t y, int64_t c, int64_t x) {
    return (c * window.in[1] + y * window.dilation[1]) * window.in[2] + x * window.dilation[2];
  });
  offsets_in_copy_ = offsets([&](int64_t y, int64_t c, int64_t x) {
    return residue_places_[static_cast<std::size_t>(x)] * residue_pitch_ +
           (c * copied_lines_ + y * window.dilation[1]) * run_pitch_ +
           x * window.dilation[2] / window.stride[2];
  });
}

/// The order of the steps is that of the offsets, so that the lines of a window that lie inside of the image are a run of
/// steps.
void PlanesConv::pack(const float* weights, const float* scales, float* packed,
                      const sdk::Threads&) const {
  const Window& window = shape_.window;
  const int64_t taps = window.taps(), width = window.kernel[2];
  for (int64_t group = 0; group < shape_.groups; ++group) {
    for (int64_t block = 0; block < blocks_; ++block) {
      const int64_t first = group * filters_ + filters_before(block);
      const int64_t last = group * filters_ + filters_before(block + 1);
      for (int64_t step = 0; step < window.kernel[1] * depth_ * width; ++step) {
        const int64_t x = step % width, c = step / width % depth_, y = step / width / depth_;
        for (int64_t f = first; f < last; ++f) {
          const float weight = weights[(f * depth_ + c) * taps + y * width + x];
          *packed++ = scales != nullptr ? weight * scales[f] : weight;
        }
      }
    }
  }
}

void PlanesConv::run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const {
  const int64_t items = shape_.batch * bands_ * parts_ * block_items_;
  const int64_t work = shape_.batch * shape_.window.out_pixels() * shape_.out_channels * depth_ *
                       shape_.window.taps();
  const auto grain = static_cast<uint64_t>(kItemWork / std::max<int64_t>(1, work / items) + 1);
  threads.parallel_for(
      static_cast<uint64_t>(items), grain, [&](uint64_t begin, uint64_t end, uint32_t worker) {
        auto* scratch =
            reinterpret_cast<float*>(static_cast<char*>(workspace) + worker * scratch_bytes());
        for (uint64_t i = begin; i < end; ++i)
          run_item(args, item(static_cast<int64_t>(i)), scratch);
      });
}

PlanesConv::Item PlanesConv::item(int64_t index) const {
  const Window& window = shape_.window;
  const int64_t blocks = index % block_items_ * item_blocks_;
  index /= block_items_;
  const int64_t pixel = index % parts_ * pixels_;
  index /= parts_;
  const int64_t line = index % bands_ * lines_;
  return {index / bands_,
          line,
          std::min(line + lines_, window.out[1]),
          pixel,
          std::min(pixel + pixels_, window.out[2]),
          blocks,
          std::min(blocks + item_blocks_, blocks_ * shape_.groups)};
}

bool PlanesConv::in_place(const Item& item) const {
  const common::WindowAxis wide = shape_.window.axis(2);
  if (wide.stride != 1 || item.pixel_end - item.pixel_begin < kernels_->lanes) return false;
  return wide.start(item.pixel_begin) >= 0 &&
         wide.start(item.pixel_end - 1) + (wide.kernel - 1) * wide.dilation < wide.in;
}

void PlanesConv::run_item(const ConvArgs& args, const Item& item, float* scratch) const {
  const bool copied = !in_place(item);
  const float* x = args.x + item.image * shape_.in_channels * shape_.window.in_pixels();
  if (copied) {
    copy_item(x, item, scratch);
    x = scratch;
  }
  for (int64_t block = item.block_begin; block < item.block_end; ++block)
    run_block(args, item, block, copied, x);
}

/// Lines whose windows have the same lines inside of the image are one run.
void PlanesConv::run_block(const ConvArgs& args, const Item& item, int64_t block, bool copied,
                           const float* x) const {
  const Window& window = shape_.window;
  const int64_t group = block / blocks_;
  const int64_t filter = group * filters_ + filters_before(block % blocks_);
  const int64_t filters = group * filters_ + filters_before(block % blocks_ + 1) - filter;
  const int64_t line_steps = depth_ * window.kernel[2];
  const float* weights = args.packed + line_steps * window.kernel[1] * filter;
  const int64_t* offsets = (copied ? offsets_in_copy_ : offsets_in_place_).data();
  const common::WindowAxis high = window.axis(1);
  PlaneRun run{};
  run.x = x;
  run.x_line = window.stride[1] * (copied ? run_pitch_ : window.in[2]);
  run.pixels = item.pixel_end - item.pixel_begin;
  run.y_line = window.out[2];
  run.plane = window.out_pixels();
  run.bias = args.bias != nullptr ? args.bias + filter : nullptr;
  run.lo = activation_.lo();
  run.hi = activation_.hi();
  for (int64_t y = item.line_begin; y < item.line_end; y += run.lines) {
    const int64_t first = high.first_inside(y), last = high.count_before(high.in, y);
    run.lines = 1;
    while (y + run.lines < item.line_end && high.first_inside(y + run.lines) == first &&
           high.count_before(high.in, y + run.lines) == last)
      ++run.lines;
    run.steps = std::max<int64_t>(0, last - first) * line_steps;
    run.weights = weights + first * line_steps * filters;
    run.offsets = offsets + first * line_steps;
    run.at = copied ? (group - item.block_begin / blocks_) * depth_ * copied_lines_ * run_pitch_ +
                          (y - item.line_begin) * run.x_line
                    : group * depth_ * window.in_pixels() + high.start(y) * window.in[2] +
                          window.axis(2).start(item.pixel_begin);
    const int64_t place =
        (item.image * shape_.out_channels + filter) * run.plane + y * run.y_line + item.pixel_begin;
    run.y = args.y + place;
    run.residual = args.residual != nullptr ? args.residual + place : nullptr;
    kernels_->run[filters](run);
    for (int64_t line = 0; line < run.lines && !activation_.in_registers(); ++line)
      activations_->apply(activation_, run.y + line * run.y_line, run.plane, filters, run.pixels);
  }
}

/// Lines outside of the image are left out: no step reads them. Pixels of long lines inside of it are parted where they lie,
/// others from a copy of all lines with their padding.
void PlanesConv::copy_item(const float* x, const Item& item, float* scratch) const {
  const Window& window = shape_.window;
  const common::WindowAxis wide = window.axis(2);
  const int64_t groups_begin = item.block_begin / blocks_;
  const int64_t groups_end = (item.block_end - 1) / blocks_ + 1;
  const int64_t top = window.axis(1).start(item.line_begin);
  const int64_t lines = (item.line_end - item.line_begin - 1) * window.stride[1] + lines_of(window);
  const int64_t count = item.pixel_end - item.pixel_begin + more_pixels(window);
  const int64_t begin = wide.start(item.pixel_begin), end = begin + count * wide.stride;
  // What lies inside of the image.
  const int64_t first = std::clamp<int64_t>(0, begin, end);
  const int64_t last = std::clamp<int64_t>(wide.in, first, end);
  const bool parts_lines = wide.stride > 1 && parts_ > 1 && first == begin && last == end;
  const auto residues = static_cast<int64_t>(residues_.size());
  float* padded = wide.stride > 1 ? scratch + residues * residue_pitch_ : scratch;
  for (int64_t c = groups_begin * depth_; c < groups_end * depth_; ++c) {
    for (int64_t y = std::max<int64_t>(0, top); y < std::min(top + lines, window.in[1]); ++y) {
      const float* line = x + (c * window.in[1] + y) * window.in[2];
      const int64_t place = ((c - groups_begin * depth_) * copied_lines_ + y - top) * run_pitch_;
      if (parts_lines) {
        part_residues(line + begin, count, scratch + place);
        continue;
      }
      float* to = padded + place * wide.stride;
      std::fill(to, to + (first - begin), 0.0f);
      std::copy(line + first, line + last, to + (first - begin));
      std::fill(to + (last - begin), to + (end - begin), 0.0f);
    }
  }
  if (wide.stride > 1 && !parts_lines) part_residues(padded, residue_pitch_, scratch);
}

void PlanesConv::part_residues(const float* from, int64_t count, float* to) const {
  const int64_t stride = shape_.window.stride[2];
  if (static_cast<int64_t>(residues_.size()) == stride) {
    transpose_tile(isa_, 4, reinterpret_cast<const char*>(from), stride * 4,
                   reinterpret_cast<char*>(to), residue_pitch_ * 4, stride, count);
    return;
  }
  for (const int64_t residue : residues_) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride + residue];
    to += residue_pitch_;
  }
}

}  // namespace backplane::cpu
