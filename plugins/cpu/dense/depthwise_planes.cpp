#include "plugins/cpu/dense/depthwise_planes.hpp"

#include <algorithm>

#include "plugins/cpu/kernels/transpose_tile.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Floats of a block's input: with its output they stay in the second-level cache.
constexpr int64_t kBandFloats = 32768;
// Where planes are smaller, their order is changed faster for all channels at once.
constexpr int64_t kLeastPixels = 128;
// Multiply-adds worth a thread's attention.
constexpr int64_t kBandWork = 65536;

ConvShape some_channels(ConvShape shape, int64_t channels) {
  shape.in_channels = shape.out_channels = shape.groups = channels;
  return shape;
}

}  // namespace

bool DepthwisePlanes::pays(const ConvShape& shape) {
  const Window& window = shape.window;
  return DepthwiseConv::applies(shape) && shape.out_channels == shape.in_channels &&
         shape.out_channels >= kBlock && window.kernel[0] == 1 && window.in[0] == 1 &&
         window.out[0] == 1 && window.pad_begin[0] == 0 && window.in_pixels() >= kLeastPixels;
}

DepthwisePlanes::DepthwisePlanes(const ConvShape& shape, const Activation& activation, Isa isa,
                                 unsigned threads)
    : shape_(shape),
      isa_(isa),
      threads_(threads),
      blocks_(std::max<int64_t>(1, shape.out_channels / kBlock)),
      conv_(some_channels(shape, kBlock), activation, isa),
      last_(some_channels(shape, channels_of(blocks_ - 1)), activation, isa) {
  const Window& window = shape.window;
  const int64_t line_floats = std::max<int64_t>(1, window.in[2]) * kBlock;
  const int64_t high = (window.kernel[1] - 1) * window.dilation[1] + 1;
  // So many that few lines are copied more than once.
  const int64_t least = 4 * high / window.stride[1] + 1;
  lines_ = std::max(least, kBandFloats / (line_floats * window.stride[1]));
  lines_ = std::clamp<int64_t>(lines_, 1, std::max<int64_t>(1, window.out[1]));
}

int64_t DepthwisePlanes::packed_floats() const {
  return (blocks_ - 1) * conv_.packed_floats() + last_.packed_floats();
}

/// The most lines of x that an item reads.
int64_t DepthwisePlanes::lines_in() const {
  const Window& window = shape_.window;
  return std::min(window.in[1], (lines_ - 1) * window.stride[1] +
                                    (window.kernel[1] - 1) * window.dilation[1] + 1);
}

/// For a part of x, of the residual and of y.
uint64_t DepthwisePlanes::scratch_bytes() const {
  const Window& window = shape_.window;
  const int64_t pixels = lines_in() * window.in[2] + 2 * lines_ * window.out[2];
  return align64(static_cast<uint64_t>(pixels * channels_of(blocks_ - 1)) * 4);
}

void DepthwisePlanes::pack(const float* weights, const float* scales, float* packed,
                           const sdk::Threads& threads) const {
  const int64_t taps = shape_.window.taps();
  for (int64_t block = 0; block < blocks_; ++block) {
    conv_of(block).pack(weights + block * kBlock * taps,
                        scales != nullptr ? scales + block * kBlock : nullptr,
                        packed + block * conv_.packed_floats(), threads);
  }
}

void DepthwisePlanes::run(const ConvArgs& args, void* workspace,
                          const sdk::Threads& threads) const {
  const Window& window = shape_.window;
  const int64_t bands = ceil_div(window.out[1], lines_);
  const int64_t work = lines_ * window.out[2] * kBlock * window.taps();
  const auto grain = static_cast<uint64_t>(kBandWork / std::max<int64_t>(1, work) + 1);
  threads.parallel_for(
      static_cast<uint64_t>(shape_.batch * blocks_ * bands), grain,
      [&](uint64_t begin, uint64_t end, uint32_t worker) {
        auto* scratch =
            reinterpret_cast<float*>(static_cast<char*>(workspace) + worker * scratch_bytes());
        for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
          const int64_t block = i / bands;
          run_item(args, block / blocks_, block % blocks_, i % bands * lines_, scratch);
        }
      });
}

void DepthwisePlanes::gather(const float* planes, const std::array<int64_t, 3>& extents,
                             int64_t begin, int64_t end, int64_t channels, float* to) const {
  const int64_t plane = extents[1] * extents[2];
  transpose_tile(isa_, 4, reinterpret_cast<const char*>(planes + begin * extents[2]), plane * 4,
                 reinterpret_cast<char*>(to), channels * 4, (end - begin) * extents[2], channels);
}

void DepthwisePlanes::run_item(const ConvArgs& args, int64_t image, int64_t block, int64_t line,
                               float* scratch) const {
  const Window& window = shape_.window;
  const common::WindowAxis high = window.axis(1);
  const int64_t channels = channels_of(block), channel = block * kBlock;
  const int64_t place = image * shape_.out_channels + channel;
  const int64_t end = std::min(line + lines_, window.out[1]);
  const int64_t from = std::clamp<int64_t>(high.start(line), 0, window.in[1]);
  const int64_t to = std::clamp<int64_t>(
      high.start(end - 1) + (high.kernel - 1) * high.dilation + 1, from, window.in[1]);
  ConvArgs part;
  part.x_strides = ImageStrides::dense(window.in, channels);
  part.y_strides = ImageStrides::dense(window.out, channels);
  part.packed = args.packed + block * conv_.packed_floats();
  part.bias = args.bias != nullptr ? args.bias + channel : nullptr;
  gather(args.x + place * window.in_pixels(), window.in, from, to, channels, scratch);
  part.x = scratch - from * part.x_strides.height;
  scratch += lines_in() * part.x_strides.height;
  if (args.residual != nullptr) {
    gather(args.residual + place * window.out_pixels(), window.out, line, end, channels, scratch);
    part.residual = scratch - line * part.y_strides.height;
  }
  scratch += lines_ * part.y_strides.height;
  part.y = scratch - line * part.y_strides.height;
  conv_of(block).run_lines(part, 0, line, end);
  float* y = args.y + place * window.out_pixels() + line * window.out[2];
  transpose_tile(isa_, 4, reinterpret_cast<const char*>(scratch), channels * 4,
                 reinterpret_cast<char*>(y), window.out_pixels() * 4, channels,
                 (end - line) * window.out[2]);
}

}  // namespace backplane::cpu
