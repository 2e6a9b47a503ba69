#include "plugins/cpu/dense/dynamic_conv.hpp"

#include <algorithm>

#include "plugins/cpu/dense/zero_point_tail.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

std::uint64_t int_bytes(std::int64_t count) {
  return align64(static_cast<std::uint64_t>(count) * 4);
}

/// Adds to each output pixel of a line what its window has of one line of x.
void add_line(const Window& window, const std::int32_t* x, std::int32_t* y) {
  const std::int64_t stride = window.stride[2];
  for (std::int64_t k = 0; k < window.kernel[2]; ++k) {
    const std::int64_t shift = k * window.dilation[2] - window.pad_begin[2];
    const std::int64_t begin = std::clamp<std::int64_t>(ceil_div(-shift, stride), 0, window.out[2]);
    const std::int64_t end =
        std::clamp<std::int64_t>(ceil_div(window.in[2] - shift, stride), begin, window.out[2]);
    for (std::int64_t i = begin; i < end; ++i) y[i] += x[i * stride + shift];
  }
}

/// Bytes as they lie in memory, which the column's numbers take no zero point off: unsigned ones of 0.
BytesX unshifted(bool is_signed, bool channels_first) {
  return {is_signed, channels_first, is_signed ? -128 : 0};
}

}  // namespace

DynamicConv::DynamicConv(const ConvShape& shape, bool x_signed, bool x_channels_first, Isa isa,
                         unsigned threads)
    : shape_(shape),
      x_signed_(x_signed),
      x_channels_first_(x_channels_first),
      isa_(isa),
      conv_(shape, unshifted(x_signed, x_channels_first), isa, threads) {}

std::uint64_t DynamicConv::packed_bytes() const {
  return ZeroPointTail::end(conv_.packed_bytes(), shape_.out_channels);
}

std::uint64_t DynamicConv::workspace_bytes() const {
  const Window& window = shape_.window;
  return int_bytes(shape_.out_channels) + int_bytes(shape_.batch * window.in_pixels()) +
         int_bytes(shape_.batch * window.out_pixels()) + conv_.workspace_bytes();
}

void DynamicConv::pack(const sdk::Tensor& weights, const sdk::Tensor* zeros, void* packed,
                       const sdk::Threads& threads) const {
  conv_.pack(weights, nullptr, nullptr, packed, threads);
  const ZeroPointTail tail =
      ZeroPointTail::behind(packed, conv_.packed_bytes(), shape_.out_channels);
  *tail.has_zeros = 0;
  const Bytes w(weights);
  const Bytes zero = zeros != nullptr ? Bytes(*zeros) : Bytes();
  const std::int64_t zero_step = zeros != nullptr && zeros->size() > 1 ? 1 : 0;
  const std::int32_t shift = w.is_signed ? 0 : 128;
  const std::int64_t size = shape_.in_channels * shape_.window.taps();
  for (std::int64_t channel = 0; channel < shape_.out_channels; ++channel) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += w.at(channel * size + i) - shift;
    tail.sums[channel] = sum;
    tail.zeros[channel] = zero.at(channel * zero_step) - shift;
    if (tail.zeros[channel] != 0) *tail.has_zeros = 1;
  }
}

void DynamicConv::run(const DynamicConvArgs& args, void* workspace,
                      const sdk::Threads& threads) const {
  static constexpr std::int32_t kOne = 1;
  const std::int64_t channels = shape_.out_channels;
  const ZeroPointTail tail = ZeroPointTail::behind(args.packed, conv_.packed_bytes(), channels);
  char* memory = static_cast<char*>(workspace);
  auto* of_channels = reinterpret_cast<std::int32_t*>(memory);
  memory += int_bytes(channels);
  auto* minus_pixels = reinterpret_cast<std::int32_t*>(memory);
  memory += int_bytes(shape_.batch * shape_.window.in_pixels());
  auto* minus_windows = reinterpret_cast<std::int32_t*>(memory);
  memory += int_bytes(shape_.batch * shape_.window.out_pixels());

  FinishSums finish = args.finish;
  const auto zero = static_cast<std::uint32_t>(args.x_zero + (x_signed_ ? 128 : 0));
  if (zero != 0 || args.addend != nullptr) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto addend = static_cast<std::uint32_t>(args.addend != nullptr ? args.addend[c] : 0);
      of_channels[c] =
          static_cast<std::int32_t>(addend - zero * static_cast<std::uint32_t>(tail.sums[c]));
    }
    finish.terms[0] = {&kOne, 0, of_channels};
  }
  if (*tail.has_zeros != 0) {
    sum_pixels(args, minus_pixels, threads);
    sum_windows(minus_pixels, minus_windows, threads);
    finish.terms[1] = {minus_windows, 1, tail.zeros};
  }
  finish.choose(isa_);
  ConvArgsU8 conv;
  conv.x = args.x;
  conv.zero = static_cast<std::uint8_t>(args.x_zero);
  conv.packed = args.packed;
  conv.finish.sums = true;
  conv.after = &finish;
  conv.y = args.y;
  conv_.run(conv, memory, threads);
}

/// Of each pixel of x: minus the sum of its channels, less their zero point.
void DynamicConv::sum_pixels(const DynamicConvArgs& args, std::int32_t* minus_pixels,
                             const sdk::Threads& threads) const {
  const std::int64_t pixels = shape_.window.in_pixels();
  const std::int64_t channels = shape_.in_channels;
  const std::uint8_t flip = x_signed_ ? 0x80 : 0;
  const auto zeros = static_cast<std::int32_t>(channels * (args.x_zero + (x_signed_ ? 128 : 0)));
  const double ns_each = 0.1 * static_cast<double>(channels) + 1;
  if (!x_channels_first_) {
    const SumBytes sum = sum_bytes(isa_);
    split_loop(
        threads, shape_.batch * pixels, ns_each, 16, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i)
            minus_pixels[i] =
                zeros - static_cast<std::int32_t>(sum(args.x + i * channels, channels, flip));
        });
    return;
  }
  for (std::int64_t image = 0; image < shape_.batch; ++image) {
    const std::uint8_t* x = args.x + image * channels * pixels;
    std::int32_t* to = minus_pixels + image * pixels;
    split_loop(threads, pixels, ns_each, 64, [&](std::int64_t begin, std::int64_t end) {
      std::fill(to + begin, to + end, zeros);
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::uint8_t* plane = x + c * pixels;
        for (std::int64_t i = begin; i < end; ++i) to[i] -= plane[i] ^ flip;
      }
    });
  }
}

/// Of each output pixel: the sum of its window's numbers.
void DynamicConv::sum_windows(const std::int32_t* minus_pixels, std::int32_t* minus_windows,
                              const sdk::Threads& threads) const {
  const Window& window = shape_.window;
  const std::int64_t line = window.out[2];
  const std::int64_t lines = shape_.batch * window.out[0] * window.out[1];
  const double ns_line = 0.3 * static_cast<double>(line * window.taps());
  split_loop(threads, lines, ns_line, 1, [&](std::int64_t begin, std::int64_t end) {
    for_each_line(window, begin * line, (end - begin) * line,
                  [&](std::int64_t image, std::int64_t oz, std::int64_t oy, std::int64_t,
                      std::int64_t first, std::int64_t count) {
                    std::int32_t* to = minus_windows + begin * line + first;
                    std::fill_n(to, count, 0);
                    for (std::int64_t kz = 0; kz < window.kernel[0]; ++kz) {
                      const std::int64_t z =
                          oz * window.stride[0] + kz * window.dilation[0] - window.pad_begin[0];
                      for (std::int64_t ky = 0; ky < window.kernel[1]; ++ky) {
                        const std::int64_t y =
                            oy * window.stride[1] + ky * window.dilation[1] - window.pad_begin[1];
                        if (z < 0 || z >= window.in[0] || y < 0 || y >= window.in[1]) continue;
                        add_line(window,
                                 minus_pixels +
                                     ((image * window.in[0] + z) * window.in[1] + y) * window.in[2],
                                 to);
                      }
                    }
                  });
  });
}

}  // namespace backplane::cpu
