#include "plugins/cpu/dense/conv_spread.hpp"

#include <algorithm>

#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Products in memory together: they are read again from the second-level cache.
constexpr std::int64_t kPartFloats = 64 * 1024;

void add_run(const float* __restrict from, std::int64_t count, float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

/// The input place that reaches output place `out` through kernel position `k`; -1: none.
std::int64_t source_of(const Window& window, std::size_t axis, std::int64_t out, std::int64_t k) {
  const std::int64_t at = out + window.pad_begin[axis] - k * window.dilation[axis];
  if (at < 0 || at % window.stride[axis] != 0) return -1;
  const std::int64_t place = at / window.stride[axis];
  return place < window.in[axis] ? place : -1;
}

}  // namespace

bool SpreadConv::pays(const ConvShape& shape, Isa isa) {
  const Window& window = shape.window;
  const int lanes = tile_kernels(isa).lanes;
  // One position reaches each output pixel where nothing overlaps: the products are those of columns then, too.
  return shape.groups == 1 && shape.out_channels > 0 && 2 * shape.out_channels <= lanes &&
         window.taps() * shape.out_channels >= lanes &&
         (window.dilation[2] == 1 || window.kernel[2] == 1);
}

SpreadConv::SpreadConv(const ConvShape& shape, const Activation& activation, Isa isa,
                       unsigned threads)
    : shape_(shape), activation_(activation), activations_(&activation_kernels(isa)) {
  part_pixels_ = std::clamp<std::int64_t>(kPartFloats / std::max<std::int64_t>(1, pixel_floats()),
                                          1, std::max<std::int64_t>(1, shape.window.in_pixels()));
  ProductShape product;
  product.rows = part_pixels_;
  product.depth = shape.in_channels;
  product.columns = pixel_floats();
  product_ = Product(product, Activation{}, isa, threads);
}

void SpreadConv::pack(const float* weights, const float* scales, float* packed, float* beside,
                      const sdk::Threads& threads) const {
  const std::int64_t taps = shape_.window.taps(), columns = shape_.out_channels;
  float* to = beside;
  for (std::int64_t c = 0; c < shape_.in_channels; ++c, weights += taps * columns) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      for (std::int64_t j = 0; j < columns; ++j)
        *to++ = weights[j * taps + tap] * (scales != nullptr ? scales[j] : 1.0f);
    }
  }
  WeightView view;
  view.data = beside;
  view.depth = shape_.in_channels;
  view.depth_stride = taps * columns;
  view.column_stride = 1;
  product_.pack(view, 0, packed, threads);
}

std::uint64_t SpreadConv::workspace_bytes() const {
  return product_.scratch_bytes() +
         align64(static_cast<std::uint64_t>(part_pixels_ * pixel_floats()) * 4);
}

/// Line `line` of the output's lines of all planes and images.
float* SpreadConv::line_of(const ConvArgs& args, std::int64_t line) const {
  const Window& window = shape_.window;
  const std::int64_t plane = line / window.out[1];
  return args.y + plane / window.out[0] * args.y_strides.batch +
         plane % window.out[0] * args.y_strides.depth +
         line % window.out[1] * args.y_strides.height;
}

/// Adds what pixels of line `in_line` of the input have for the kernel's row of positions that begins with `tap`. The row is taken in
/// pieces of a stride, the last one first: pieces of neighbours do not overlap, and sums are in the order of pixels.
void SpreadConv::add_pixels(const Part& part, std::int64_t in_line, std::int64_t tap, float* y,
                            std::int64_t y_step) const {
  const Window& window = shape_.window;
  const std::int64_t columns = shape_.out_channels, width = window.in[2], kernel = window.kernel[2],
                     stride = window.stride[2];
  const std::int64_t first = std::max<std::int64_t>(0, part.begin - in_line * width);
  const std::int64_t last = std::min(width, part.end - in_line * width);
  for (std::int64_t begin = (kernel - 1) / stride * stride; begin >= 0; begin -= stride) {
    const std::int64_t end = std::min(kernel, begin + stride);
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t at = i * stride - window.pad_begin[2];
      const std::int64_t k = std::max(begin, -at), k_end = std::min(end, window.out[2] - at);
      if (k >= k_end) continue;
      const float* from =
          part.products + (in_line * width + i - part.begin) * pixel_floats() + (tap + k) * columns;
      float* to = y + (at + k) * y_step;
      if (y_step == columns) {
        add_run(from, (k_end - k) * columns, to);
      } else {
        for (std::int64_t j = k; j < k_end; ++j, from += columns, to += y_step)
          add_run(from, columns, to);
      }
    }
  }
}

/// What a part adds to a line of the output. Kernel positions from the last one on reach it from pixels in their order.
void SpreadConv::add_line(const ConvArgs& args, const Part& part, std::int64_t line) const {
  const Window& window = shape_.window;
  const std::int64_t oz = line / window.out[1] % window.out[0], oy = line % window.out[1];
  float* y = line_of(args, line);
  for (std::int64_t kz = window.kernel[0]; kz-- > 0;) {
    const std::int64_t z = source_of(window, 0, oz, kz);
    if (z < 0) continue;
    for (std::int64_t ky = window.kernel[1]; ky-- > 0;) {
      const std::int64_t from = source_of(window, 1, oy, ky);
      if (from >= 0)
        add_pixels(part, z * window.in[1] + from, (kz * window.kernel[1] + ky) * window.kernel[2],
                   y, args.y_strides.width);
    }
  }
}

void SpreadConv::run(const ConvArgs& args, char* workspace, const sdk::Threads& threads) const {
  const Window& window = shape_.window;
  const std::int64_t columns = shape_.out_channels, width = window.out[2];
  const std::int64_t image_lines = window.out[0] * window.out[1];
  const auto line_ns = 0.5 * static_cast<double>(width * columns);
  const auto each_line = [&](std::int64_t first, std::int64_t count, double ns, const auto& body) {
    split_loop(threads, count, ns, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(first + i);
    });
  };
  each_line(0, shape_.batch * image_lines, line_ns, [&](std::int64_t line) {
    float* y = line_of(args, line);
    if (args.bias == nullptr && args.y_strides.width == columns)
      return static_cast<void>(std::fill_n(y, width * columns, 0.0f));
    for (std::int64_t i = 0; i < width; ++i, y += args.y_strides.width) {
      for (std::int64_t j = 0; j < columns; ++j) y[j] = args.bias != nullptr ? args.bias[j] : 0.0f;
    }
  });
  auto* products = reinterpret_cast<float*>(workspace + product_.scratch_bytes());
  ProductArgs product;
  product.packed = args.packed;
  product.out = products;
  product.out_stride = pixel_floats();
  const ImageStrides& steps = args.x_strides;
  for (std::int64_t image = 0; image < shape_.batch; ++image) {
    for (std::int64_t begin = 0; begin < window.in_pixels(); begin += part_pixels_) {
      const Part part{image, begin, std::min(window.in_pixels(), begin + part_pixels_), products};
      product_.run(product, 0, part.end - begin, threads, workspace,
                   [&](const float** table, std::int64_t, std::int64_t row, std::int64_t rows) {
                     for (std::int64_t i = 0; i < rows; ++i) {
                       const std::int64_t pixel = begin + row + i, line = pixel / window.in[2];
                       table[i] = args.x + image * steps.batch + line / window.in[1] * steps.depth +
                                  line % window.in[1] * steps.height +
                                  pixel % window.in[2] * steps.width;
                     }
                   });
      each_line(image * image_lines, image_lines, line_ns,
                [&](std::int64_t line) { add_line(args, part, line); });
    }
  }
  if (!activation_.changes()) return;
  each_line(0, shape_.batch * image_lines, line_ns, [&](std::int64_t line) {
    activations_->apply(activation_, line_of(args, line), args.y_strides.width, width, columns);
  });
}

}  // namespace backplane::cpu
