#include "plugins/common/device_ops/window_lines.hpp"

#include <algorithm>

namespace backplane::device_ops {
namespace {

/// Floats that a work item reads at most: they stay in a core's first cache. Loads pass their end by less than two vectors.
constexpr std::int64_t kMostFloats = 4096, kSlackFloats = 32;
/// Elements of y that are worth an item.
constexpr std::int64_t kLeastOutputs = 2048;

std::int64_t floats_of(const Window& window, std::int64_t band, std::int64_t tile) {
  const std::int64_t lines =
      (band - 1) * window.stride[1] + (window.kernel[1] - 1) * window.dilation[1] + 1;
  const std::int64_t phase = tile + (window.kernel[2] - 1) * window.dilation[2] / window.stride[2];
  return lines * phase * window.stride[2];
}

}  // namespace

bool is_planar(const Window& window) {
  constexpr std::int64_t kWidest = std::int64_t{1} << 30;
  return window.in[0] == 1 && window.out[0] == 1 && window.kernel[0] == 1 &&
         window.in[2] < kWidest && window.pad_begin[2] < kWidest;
}

std::optional<WindowLines> WindowLines::over(const Device& device, const Window& window) {
  constexpr std::int64_t kMostTaps = 1024;
  if (!device.limits().is_processor || !is_planar(window) || window.stride[2] > 2 ||
      window.kernel[2] > kMostTaps || window.kernel[1] > kMostTaps ||
      window.dilation[1] > kMostFloats || window.dilation[2] > kMostFloats ||
      window.stride[1] > kMostFloats)
    return std::nullopt;
  WindowLines lines;
  lines.width = device.limits().vector_floats;
  while (lines.width > 4 && window.out[2] <= lines.width / 2) lines.width /= 2;
  lines.height = window.out[1] == 1 ? 1 : 4;
  lines.tile = std::min(window.out[2], kMostColumns);
  const std::int64_t least = std::min(window.out[1], lines.height);
  while (lines.tile > 4 * lines.width && floats_of(window, least, lines.tile) > kMostFloats)
    lines.tile = (lines.tile + 1) / 2;
  if (floats_of(window, 1, lines.tile) > kMostFloats) return std::nullopt;
  lines.band = std::clamp<std::int64_t>(kLeastOutputs / lines.tile, 1, window.out[1]);
  while (lines.band > 1 && floats_of(window, lines.band, lines.tile) > kMostFloats) --lines.band;
  return lines;
}

void WindowLines::define(KernelText& text, const Window& window) const {
  // More taps than these would be most of the program, which takes its compiler minutes. So does LLVM with a part of the taps at
  // a time, where they are no multiple of it.
  constexpr std::int64_t kMostUnrolled = 64;
  const auto unroll = [](std::int64_t taps) {
    return taps <= kMostUnrolled ? "_Pragma(\"unroll\")" : "_Pragma(\"unroll 1\")";
  };
  text.define("VW", width).define("HEIGHT", height).define("LINES", kMostFloats + kSlackFloats);
  text.define("STRIDE", window.stride[2]);
  text.define("KERNEL_H", window.kernel[1]).define("KERNEL_W", window.kernel[2]);
  text.define("UNROLL_TAPS", unroll(window.taps()));
  text.define("UNROLL_ACROSS", unroll(window.kernel[2]));
}

void WindowLines::set(LaunchPlan& plan, const Window& window, std::int64_t planes) const {
  for (const std::int64_t number : {window.in[1], window.in[2], window.out[1], window.out[2],
                                    window.stride[1], window.pad_begin[1], window.pad_begin[2],
                                    window.dilation[1], window.dilation[2], band, tile})
    plan.scalar(number);
  const auto parts = [](std::int64_t size, std::int64_t part) {
    return static_cast<std::size_t>((size + part - 1) / part);
  };
  plan.items = {parts(window.out[1], band), static_cast<std::size_t>(planes),
                parts(window.out[2], tile)};
  plan.group = {1, 1, 1};
}

}  // namespace backplane::device_ops
