#include "plugins/common/device_ops/window.hpp"

#include <algorithm>

#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

std::int64_t entry(const Dims& list, std::size_t index, std::int64_t otherwise) {
  return index < list.size() ? list[index] : otherwise;
}

/// What of the padding of an axis comes before it: with SAME_LOWER the odd element too.
std::int64_t same_begin(const std::string& auto_pad, std::int64_t both) {
  return auto_pad == "SAME_UPPER" ? both / 2 : both - both / 2;
}

/// Kernels count places of images in 32 bits here and there.
void require_narrow(std::size_t axis, const common::WindowAxis& window, std::int64_t extent) {
  constexpr std::int64_t kWidest = std::int64_t{1} << 30;
  for (const std::int64_t size : {extent, window.stride, window.pad_begin, window.pad_end}) {
    if (size > kWidest)
      sdk::unsupported("a window of ", extent, " elements with stride ", window.stride,
                       " and pads ", window.pad_begin, " and ", window.pad_end,
                       " along spatial axis ", axis, "; up to ", kWidest, " are handled");
  }
}

/// Of weights all taps are visited, even of weights without channels.
void require_few_taps(DimsView kernel) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  common::checked_product(kernel).at_most(kMost, "a kernel of ", to_string(kernel));
}

}  // namespace

common::WindowAxis Window::axis(std::size_t at) const {
  return {in[at], out[at], kernel[at], stride[at], dilation[at], pad_begin[at], pad_end[at]};
}

WindowAttributes::WindowAttributes(const sdk::Node& node)
    : kernel_shape(node.get_ints("kernel_shape")),
      strides(node.get_ints("strides")),
      dilations(node.get_ints("dilations")),
      pads(node.get_ints("pads")),
      output_padding(node.get_ints("output_padding")),
      output_shape(node.get_ints("output_shape")),
      auto_pad(node.get_string("auto_pad", "NOTSET")),
      ceil_mode(node.get_int("ceil_mode", 0) != 0) {}

Window WindowAttributes::resolve(DimsView spatial, DimsView kernel) const {
  const std::size_t count = spatial.size();
  if (count > 3) sdk::unsupported("windows over ", count, " axes; the kernel takes three");
  if (kernel.size() != count)
    sdk::invalid("a window of ", kernel.size(), " axes over ", count, " spatial axes");
  Window window;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t to = 3 - count + i;
    common::WindowAxis given;
    given.in = spatial[i];
    given.kernel = kernel[i];
    given.stride = entry(strides, i, 1);
    given.dilation = entry(dilations, i, 1);
    given.pad_begin = entry(pads, i, 0);
    given.pad_end = entry(pads, count + i, 0);
    const common::WindowAxis found = common::resolved_window(i, given, auto_pad, ceil_mode);
    window.in[to] = found.in;
    window.out[to] = found.out;
    window.kernel[to] = found.kernel;
    window.stride[to] = found.stride;
    window.dilation[to] = found.dilation;
    window.pad_begin[to] = found.pad_begin;
    window.pad_end[to] = found.pad_end;
    require_narrow(i, found, (found.kernel - 1) * found.dilation + 1);
  }
  return window;
}

Window WindowAttributes::resolve_transposed(DimsView spatial, DimsView kernel) const {
  const std::size_t count = spatial.size();
  if (count > 3) sdk::unsupported("windows over ", count, " axes; the kernel takes three");
  if (kernel.size() != count)
    sdk::invalid("a window of ", kernel.size(), " axes over ", count, " spatial axes");
  require_few_taps(kernel);
  Window window;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t to = 3 - count + i;
    const std::int64_t stride = entry(strides, i, 1);
    const std::int64_t dilation = kernel[i] == 1 ? 1 : entry(dilations, i, 1);
    if (stride < 1 || dilation < 1 || kernel[i] < 1)
      sdk::invalid("a window with kernel ", kernel[i], ", stride ", stride, " and dilation ",
                   dilation);
    const std::int64_t reach = common::window_extent(i, kernel[i], dilation);
    const std::int64_t full =
        common::transposed_size(i, spatial[i], stride, reach, entry(output_padding, i, 0));
    std::int64_t begin = entry(pads, i, 0), end = entry(pads, count + i, 0);
    std::int64_t out =
        (common::Checked(full) - begin - end)
            .value("the sum of pads ", begin, " and ", end, " along spatial axis ", i);
    const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
    if (!output_shape.empty() || same) {
      out = output_shape.empty() ? (common::Checked(spatial[i]) * stride)
                                       .value(spatial[i], " elements by stride ", stride)
                                 : output_shape[output_shape.size() - count + i];
      const std::int64_t both = std::max<std::int64_t>(0, full - std::max<std::int64_t>(0, out));
      begin = same_begin(auto_pad, both);
      end = both - begin;
    }
    if (out < 0) sdk::invalid("the padding is larger than the output");
    window.in[to] = spatial[i];
    window.out[to] = out;
    window.kernel[to] = kernel[i];
    window.stride[to] = stride;
    window.dilation[to] = dilation;
    window.pad_begin[to] = begin;
    window.pad_end[to] = end;
    require_narrow(i, window.axis(to), reach);
  }
  return window;
}

Window WindowAttributes::resolve_convolution(const sdk::Tensor& x, const sdk::Tensor& w,
                                             std::int64_t groups) const {
  if (groups < 1 || x.rank() < 3 || w.rank() != x.rank() || x.dim(1) != w.dim(1) * groups ||
      w.dim(0) % groups != 0)
    sdk::invalid("a convolution of ", to_string(x.dims()), " with ", to_string(w.dims()), " in ",
                 groups, " groups");
  const DimsView kernel(w.dims().data() + 2, w.dims().size() - 2);
  require_few_taps(kernel);
  return resolve(DimsView(x.dims().data() + 2, x.dims().size() - 2), kernel);
}

Dims output_dims(DimsView x, std::int64_t channels, const Window& window) {
  Dims dims{x[0], channels};
  for (std::size_t axis = 5 - x.size(); axis < 3; ++axis) dims.push_back(window.out[axis]);
  return dims;
}

void add_numbers(Walk& walk, const Window& window) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto number = [&](const char* name, std::int64_t value) {
      walk.number(sdk::message(name, axis), value);
    };
    number("in_", window.in[axis]);
    number("out_", window.out[axis]);
    number("k_", window.kernel[axis]);
    number("s_", window.stride[axis]);
    number("d_", window.dilation[axis]);
    number("b_", window.pad_begin[axis]);
    number("e_", window.pad_end[axis]);
  }
}

}  // namespace backplane::device_ops
