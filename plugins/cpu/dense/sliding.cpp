#include "plugins/cpu/dense/sliding.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr int64_t kMostOutputs = 4;  // of a channel

/// The taps of a run of an output line that lie inside of the image, with the pointer of its first pixel.
/// Returns how many there are.
template <class Sink>
int64_t collect_taps(const Window& window, const float* image, const ImageStrides& strides,
                     int64_t out_z, int64_t out_y, const LineRun& run, const Sink& sink) {
  int64_t count = 0;
  const common::WindowAxis deep = window.axis(0), high = window.axis(1);
  const int64_t z_end = deep.count_before(deep.in, out_z),
                y_end = high.count_before(high.in, out_y);
  for (int64_t kz = deep.first_inside(out_z); kz < z_end; ++kz) {
    const int64_t z = deep.start(out_z) + kz * deep.dilation;
    for (int64_t ky = high.first_inside(out_y); ky < y_end; ++ky) {
      const int64_t y = high.start(out_y) + ky * high.dilation;
      for (int64_t kx = run.tap_begin; kx < run.tap_end; ++kx) {
        const int64_t at =
            run.begin * window.stride[2] - window.pad_begin[2] + kx * window.dilation[2];
        sink(count++, (kz * window.kernel[1] + ky) * window.kernel[2] + kx,
             image + z * strides.depth + y * strides.height + at * strides.width);
      }
    }
  }
  return count;
}

/// Positions along one axis that count for an average with padding: those inside of the padded image.
int64_t padded_extent(const Window& window, std::size_t axis, int64_t out) {
  return window.axis(axis).count_before(window.in[axis] + window.pad_end[axis], out);
}

/// Calls line(image, z, y) for every line of images of these extents, in parallel. A line has `work` multiply-adds or
/// elements.
template <class Line>
void for_each_line(const std::array<int64_t, 3>& extents, int64_t batch, int64_t work,
                   const sdk::Threads& threads, const Line& line) {
  constexpr int64_t kWork = 32768;  // worth a thread's attention
  const int64_t lines = batch * extents[0] * extents[1];
  const auto grain = static_cast<uint64_t>(kWork / std::max<int64_t>(1, work) + 1);
  threads.parallel_for(
      static_cast<uint64_t>(lines), grain, [&](uint64_t begin, uint64_t end, uint32_t) {
        for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i)
          line(i / (extents[0] * extents[1]), i / extents[1] % extents[0], i % extents[1]);
      });
}

// Multiply-adds of a part of a line: long ones are signals, of which there may be no other.
constexpr int64_t kLinePartWork = 131072;

/// The work of a line of a window's output.
int64_t line_work(const Window& window, int64_t channels) {
  return window.out[2] * channels * window.most_inside();
}

/// Each of `count` elements kTimes times: a number that is known, of which the compiler makes shuffles.
template <int64_t kTimes>
void repeat_each(const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < kTimes; ++k) to[i * kTimes + k] = from[i];
  }
}

auto repeat_of(int64_t times) {
  return times == 2 ? repeat_each<2> : times == 3 ? repeat_each<3> : repeat_each<kMostOutputs>;
}

}  // namespace

std::vector<LineRun> line_runs(const Window& window) {
  const common::WindowAxis wide = window.axis(2);
  // Windows [whole_begin, whole_end) lie inside: not one by one, as there may be millions.
  const int64_t room = wide.in - 1 - (wide.kernel - 1) * wide.dilation + wide.pad_begin;
  const int64_t whole_begin = ceil_div(wide.pad_begin, wide.stride);
  const int64_t whole_end = room < 0 ? 0 : std::min(wide.out, room / wide.stride + 1);
  std::vector<LineRun> runs;
  for (int64_t x = 0; x < wide.out; ++x) {
    if (x == whole_begin && x < whole_end) {
      runs.push_back({x, whole_end, 0, wide.kernel});
      x = whole_end - 1;
      continue;
    }
    const int64_t first = wide.first_inside(x);
    const LineRun one{x, x + 1, first, std::max(first, wide.count_before(wide.in, x))};
    if (!runs.empty() && runs.back().tap_begin == one.tap_begin &&
        runs.back().tap_end == one.tap_end) {
      ++runs.back().end;
    } else {
      runs.push_back(one);
    }
  }
  return runs;
}

DepthwiseConv::DepthwiseConv(const ConvShape& shape, const Activation& activation, Isa isa)
    : shape_(shape),
      activation_(activation),
      kernels_(&window_kernels(isa)),
      activations_(&activation_kernels(isa)),
      weight_pitch_(std::max(shape.out_channels, kernels_->repeated(shape.out_channels))),
      runs_(line_runs(shape.window)),
      slide_(sliding(isa)) {}

/// What is made for kernels of 3 by 3 lets no more than the first position of the first window and the last of the last one lie
/// outside of the image.
SlidingRows DepthwiseConv::sliding(Isa isa) const {
  const Window& window = shape_.window;
  if (shape_.out_channels < kernels_->lanes) return nullptr;
  if (window.kernel[0] != 1 || window.out[0] != 1 || window.pad_begin[0] != 0) return nullptr;
  if (window.kernel[1] > SlidingRun::kRows || window.dilation[2] != 1) return nullptr;
  const SlidingRows rows = sliding_rows(isa, window.kernel[2], window.stride[2]);
  if (rows == nullptr || kernels_->sliding_depthwise == nullptr) return rows;
  if (window.kernel[1] > 3 || window.kernel[2] != 3) return rows;
  const int64_t last = window.out[2] - 1;
  const bool overlaps = std::all_of(runs_.begin(), runs_.end(), [last](const LineRun& run) {
    const bool begins =
        run.tap_begin == 0 || (run.tap_begin == 1 && run.begin == 0 && run.end == 1);
    const bool ends = run.tap_end == 3 || (run.tap_end == 2 && run.begin == last);
    return begins && ends;
  });
  return overlaps ? kernels_->sliding_depthwise : rows;
}

void DepthwiseConv::pack(const float* weights, const float* scales, float* packed,
                         const sdk::Threads&) const {
  const int64_t taps = shape_.window.taps();
  for (int64_t c = 0; c < shape_.out_channels; ++c) {
    const float scale = scales != nullptr ? scales[c] : 1.0f;
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t at = c; at < weight_pitch_; at += shape_.out_channels)
        packed[t * weight_pitch_ + at] = weights[c * taps + t] * scale;
    }
  }
}

bool DepthwiseConv::applies(const ConvShape& shape) {
  if (shape.groups != shape.in_channels || shape.groups < 1 || shape.window.taps() > kMaxTaps)
    return false;
  // Every input channel is copied once for each of its outputs: many are better made by a product.
  return shape.out_channels == shape.in_channels ||
         (shape.in_channels >= 8 && shape.out_channels <= kMostOutputs * shape.in_channels);
}

uint64_t DepthwiseConv::workspace_bytes() const {
  if (multiplier() == 1) return 0;
  return static_cast<uint64_t>(shape_.batch * shape_.window.in_pixels() * shape_.out_channels) * 4;
}

void DepthwiseConv::run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const {
  ConvArgs each = args;
  if (multiplier() > 1) {
    auto* repeated = static_cast<float*>(workspace);
    repeat_channels(args, repeated, threads);
    each.x = repeated;
    each.x_strides = ImageStrides::dense(shape_.window.in, shape_.out_channels);
  }
  const Window& window = shape_.window;
  const int64_t work = line_work(window, shape_.out_channels), pixels = window.out[2];
  if (slide_ != nullptr && args.residual == nullptr) {
    return for_each_line(window.out, shape_.batch, work, threads,
                         [&](int64_t image, int64_t, int64_t y) { slide_line(each, image, y); });
  }
  const int64_t parts = std::max<int64_t>(1, std::min(pixels, work / kLinePartWork));
  for_each_line({window.out[0], window.out[1] * parts, 1}, shape_.batch, work / parts, threads,
                [&](int64_t image, int64_t z, int64_t at) {
                  const int64_t y = at / parts, part = at % parts;
                  run_line(each, image, z, y, pixels * part / parts, pixels * (part + 1) / parts);
                });
}

void DepthwiseConv::run_lines(const ConvArgs& args, int64_t image, int64_t begin,
                              int64_t end) const {
  for (int64_t y = begin; y < end; ++y) {
    if (slide_ != nullptr && args.residual == nullptr) {
      slide_line(args, image, y);
    } else {
      run_line(args, image, 0, y, 0, shape_.window.out[2]);
    }
  }
}

/// The input with each channel as often as it has outputs.
void DepthwiseConv::repeat_channels(const ConvArgs& args, float* repeated,
                                    const sdk::Threads& threads) const {
  const Window& window = shape_.window;
  const ImageStrides& strides = args.x_strides;
  const int64_t pixel_floats = shape_.out_channels;
  const auto repeat = repeat_of(multiplier());
  const int64_t line_floats = window.in[2] * shape_.out_channels;
  for_each_line(
      window.in, shape_.batch, line_floats, threads, [&](int64_t image, int64_t z, int64_t y) {
        const float* pixel =
            args.x + image * strides.batch + z * strides.depth + y * strides.height;
        float* to = repeated + ((image * window.in[0] + z) * window.in[1] + y) * line_floats;
        for (int64_t x = 0; x < window.in[2]; ++x, pixel += strides.width, to += pixel_floats)
          repeat(pixel, shape_.in_channels, to);
      });
}

void DepthwiseConv::slide_line(const ConvArgs& args, int64_t image, int64_t y) const {
  const Window& window = shape_.window;
  const common::WindowAxis high = window.axis(1);
  const int64_t first = high.first_inside(y);
  SlidingRun run{};
  run.rows = static_cast<int>(high.count_before(high.in, y) - first);
  if (run.rows < 1) return run_line(args, image, 0, y, 0, window.out[2]);
  run.x_step = args.x_strides.width;
  const float* x = args.x + image * args.x_strides.batch - window.pad_begin[2] * run.x_step;
  for (int r = 0; r < run.rows; ++r) {
    const int64_t ky = first + r;
    run.x[r] = x + (high.start(y) + ky * high.dilation) * args.x_strides.height;
    run.weights[r] = args.packed + ky * window.kernel[2] * shape_.out_channels;
  }
  run.begin = -window.pad_begin[2];
  run.in = window.in[2];
  run.stride = window.stride[2];
  run.y = args.y + image * args.y_strides.batch + y * args.y_strides.height;
  run.y_step = args.y_strides.width;
  run.pixels = window.out[2];
  run.channels = shape_.out_channels;
  run.before = runs_.front().tap_begin == 0;
  run.after = runs_.back().tap_end == window.kernel[2];
  run.bias = args.bias;
  run.lo = activation_.lo();
  run.hi = activation_.hi();
  slide_(run);
  if (!activation_.in_registers())
    activations_->apply(activation_, run.y, run.y_step, run.pixels, run.channels);
}

void DepthwiseConv::run_line(const ConvArgs& args, int64_t image, int64_t z, int64_t y,
                             int64_t begin, int64_t end) const {
  const Window& window = shape_.window;
  const int64_t channels = shape_.out_channels;
  const ImageStrides residual = ImageStrides::dense(window.out, channels);
  std::array<const float*, kMaxTaps> taps;  // written as far as they are read
  std::array<const float*, kMaxTaps> weights;
  WindowRun run{};
  run.taps = taps.data();
  run.weights = weights.data();
  run.x_step = window.stride[2] * args.x_strides.width;
  run.y_step = args.y_strides.width;
  run.channels = channels;
  run.bias = args.bias;
  run.residual_step = residual.width;
  run.lo = activation_.lo();
  run.hi = activation_.hi();
  const float* x = args.x + image * args.x_strides.batch;
  float* out =
      args.y + image * args.y_strides.batch + z * args.y_strides.depth + y * args.y_strides.height;
  const bool dense =
      kernels_->repeated(channels) > 0 && run.x_step == channels && run.y_step == channels;
  const auto kernel = dense ? kernels_->dense_depthwise : kernels_->depthwise;
  for (LineRun part : runs_) {
    part.begin = std::max(part.begin, begin);
    part.end = std::min(part.end, end);
    if (part.begin >= part.end) continue;
    run.tap_count = collect_taps(
        window, x, args.x_strides, z, y, part, [&](int64_t i, int64_t tap, const float* pixel) {
          taps[static_cast<std::size_t>(i)] = pixel;
          weights[static_cast<std::size_t>(i)] = args.packed + tap * weight_pitch_;
        });
    run.pixels = part.end - part.begin;
    run.y = out + part.begin * run.y_step;
    if (args.residual != nullptr) {
      run.residual = args.residual + image * residual.batch + z * residual.depth +
                     y * residual.height + part.begin * residual.width;
    }
    kernel(run);
    if (!activation_.in_registers())
      activations_->apply(activation_, run.y, run.y_step, run.pixels, channels);
  }
}

void Pooling::run_line(const float* x, const ImageStrides& x_strides, float* y, int64_t y_step,
                       int64_t out_z, int64_t out_y) const {
  std::array<const float*, kMaxTaps> taps;  // written as far as they are read
  WindowRun run{};
  run.taps = taps.data();
  run.x_step = window_.stride[2] * x_strides.width;
  run.y_step = y_step;
  run.channels = channels_;
  const auto pool = [&](const LineRun& part) {
    run.tap_count = collect_taps(
        window_, x, x_strides, out_z, out_y, part,
        [&](int64_t i, int64_t, const float* pixel) { taps[static_cast<std::size_t>(i)] = pixel; });
    run.pixels = part.end - part.begin;
    run.y = y + part.begin * y_step;
    if (kind_ == kMax && run.tap_count > 0) {
      kernels_->max(run);
    } else if (kind_ == kMax) {
      for (int64_t p = 0; p < run.pixels; ++p) {
        std::fill_n(run.y + p * y_step, channels_, -std::numeric_limits<float>::infinity());
      }
    } else {
      const auto padded = [&](std::size_t axis, int64_t at) {
        return static_cast<double>(padded_extent(window_, axis, at));
      };
      const double counted = kind_ == kMean
                                 ? static_cast<double>(run.tap_count)
                                 : padded(0, out_z) * padded(1, out_y) * padded(2, part.begin);
      run.scale = 1.0f / static_cast<float>(std::max(1.0, counted));
      kernels_->mean(run);
    }
  };
  for (LineRun part : runs_) {
    // With ceil_mode the last windows may reach past the padding, and then count fewer positions.
    while (kind_ == kMeanWithPadding && part.begin + 1 < part.end &&
           padded_extent(window_, 2, part.begin) != padded_extent(window_, 2, part.end - 1)) {
      LineRun one = part;
      one.end = part.begin + 1;
      pool(one);
      ++part.begin;
    }
    pool(part);
  }
}

void Pooling::run(const float* x, const ImageStrides& x_strides, float* y,
                  const ImageStrides& y_strides, const sdk::Threads& threads) const {
  for_each_line(
      window_.out, batch_, line_work(window_, channels_), threads,
      [&](int64_t image, int64_t out_z, int64_t out_y) {
        run_line(x + image * x_strides.batch, x_strides,
                 y + image * y_strides.batch + out_z * y_strides.depth + out_y * y_strides.height,
                 y_strides.width, out_z, out_y);
      });
}

}  // namespace backplane::cpu
