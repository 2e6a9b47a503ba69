#include "plugins/cpu/dense/depthwise_transposed.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

/// The input element that an axis' output gets through a kernel position; none where there is no such element.
std::optional<int64_t> reached_through(const common::WindowAxis& axis, int64_t out,
                                       int64_t position) {
  const int64_t place = out + axis.pad_begin - position * axis.dilation;
  if (place < 0 || place % axis.stride != 0 || place / axis.stride >= axis.in) return std::nullopt;
  return place / axis.stride;
}

}  // namespace

bool DepthwiseTransposed::applies(const ConvShape& shape) {
  return shape.groups > 1 && shape.groups == shape.in_channels &&
         shape.groups == shape.out_channels && shape.window.taps() <= kMaxTaps;
}

DepthwiseTransposed::DepthwiseTransposed(const ConvShape& shape, const Activation& activation,
                                         Isa isa)
    : shape_(shape),
      activation_(activation),
      kernels_(&window_kernels(isa)),
      activations_(&activation_kernels(isa)) {
  const Window& window = shape.window;
  for (int64_t first = 0; first < std::min(window.stride[2], window.out[2]); ++first)
    add_runs(first);
}

/// Pixels first, first + stride ... of a line, parted where the positions inside of the image change.
void DepthwiseTransposed::add_runs(int64_t first) {
  const common::WindowAxis wide = shape_.window.axis(2);
  const int64_t pixels = ceil_div(wide.out - first, wide.stride);
  std::vector<Tap> taps;
  std::vector<int64_t> seams{0, pixels};
  for (int64_t k = 0; k < wide.kernel; ++k) {
    const int64_t place = first + wide.pad_begin - k * wide.dilation;
    if (place % wide.stride != 0) continue;
    const int64_t in = place / wide.stride;  // of the first pixel, and may lie outside
    taps.push_back({k, in});
    seams.push_back(std::clamp<int64_t>(-in, 0, pixels));
    seams.push_back(std::clamp<int64_t>(wide.in - in, 0, pixels));
  }
  std::sort(seams.begin(), seams.end());
  for (std::size_t i = 0; i + 1 < seams.size(); ++i) {
    const int64_t begin = seams[i], end = seams[i + 1];
    if (begin == end) continue;
    Run run{first + begin * wide.stride, end - begin, {}};
    for (const Tap& tap : taps) {
      const int64_t in = tap.in + begin;
      if (in >= 0 && in < wide.in) run.taps.push_back({tap.position, in});
    }
    runs_.push_back(std::move(run));
  }
}

void DepthwiseTransposed::pack(const float* weights, const float* scales, float* packed) const {
  const int64_t taps = shape_.window.taps(), channels = shape_.out_channels;
  for (int64_t c = 0; c < channels; ++c) {
    const float scale = scales != nullptr ? scales[c] : 1.0f;
    for (int64_t t = 0; t < taps; ++t) packed[t * channels + c] = weights[c * taps + t] * scale;
  }
}

void DepthwiseTransposed::run(const ConvArgs& args, const sdk::Threads& threads) const {
  constexpr int64_t kLineWork = 32768;  // worth a thread's attention
  const Window& window = shape_.window;
  const int64_t lines = window.out[0] * window.out[1];
  const int64_t work = window.in[2] * window.kernel[2] * shape_.out_channels;
  threads.parallel_for(
      static_cast<uint64_t>(shape_.batch * lines),
      static_cast<uint64_t>(kLineWork / std::max<int64_t>(1, work) + 1),
      [&](uint64_t begin, uint64_t end, uint32_t) {
        for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i)
          run_line(args, i / lines, i / window.out[1] % window.out[0], i % window.out[1]);
      });
}

void DepthwiseTransposed::run_line(const ConvArgs& args, int64_t image, int64_t z,
                                   int64_t y) const {
  struct Row {
    int64_t position;
    const float* x;
  };
  const Window& window = shape_.window;
  const int64_t channels = shape_.out_channels;
  std::array<Row, kMaxTaps> rows;  // written as far as they are read, as the arrays below
  std::size_t row_count = 0;
  const float* x = args.x + image * args.x_strides.batch;
  for (int64_t kz = 0; kz < window.kernel[0]; ++kz) {
    const std::optional<int64_t> in_z = reached_through(window.axis(0), z, kz);
    if (!in_z) continue;
    for (int64_t ky = 0; ky < window.kernel[1]; ++ky) {
      const std::optional<int64_t> in_y = reached_through(window.axis(1), y, ky);
      if (!in_y) continue;
      rows[row_count++] = {(kz * window.kernel[1] + ky) * window.kernel[2],
                           x + *in_z * args.x_strides.depth + *in_y * args.x_strides.height};
    }
  }
  std::array<const float*, kMaxTaps> taps, weights;
  float* out =
      args.y + image * args.y_strides.batch + z * args.y_strides.depth + y * args.y_strides.height;
  WindowRun run{};
  run.taps = taps.data();
  run.weights = weights.data();
  run.x_step = args.x_strides.width;
  run.y_step = window.stride[2] * args.y_strides.width;
  run.channels = channels;
  run.bias = args.bias;
  run.lo = activation_.lo();
  run.hi = activation_.hi();
  for (const Run& part : runs_) {
    std::size_t count = 0;
    for (std::size_t r = 0; r < row_count; ++r) {
      for (const Tap& tap : part.taps) {
        taps[count] = rows[r].x + tap.in * args.x_strides.width;
        weights[count++] = args.packed + (rows[r].position + tap.position) * channels;
      }
    }
    run.tap_count = static_cast<int64_t>(count);
    run.pixels = part.pixels;
    run.y = out + part.begin * args.y_strides.width;
    kernels_->depthwise(run);
  }
  if (!activation_.in_registers())
    activations_->apply(activation_, out, args.y_strides.width, window.out[2], channels);
}

}  // namespace backplane::cpu
