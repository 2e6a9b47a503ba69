// Convolutions of 1, 2 and 3 spatial axes, and pooling: one loop over output elements, one over the
// window.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/reference/window.hpp"

namespace backplane::reference {
namespace {

/// y[n, m, o] = sum of x[n, group * C/g + c, o * stride + k * dilation - pad] * w[m, c, k];
/// `x_zero` and `w_zero` are taken off first (w_zero per output channel or one for all).
Array convolve(const Call& call, const Array& x, const Array& w, double x_zero,
               const std::vector<double>& w_zero) {
  const Dims kernel(w.dims.begin() + 2, w.dims.end());
  const Window window = window_of(call, x.dims, kernel, false);
  const std::int64_t groups = call.integer("group", 1);
  const std::int64_t channels = w.dims[1];
  const std::int64_t out_channels = w.dims[0];
  Dims dims = {x.dims[0], out_channels};
  dims.insert(dims.end(), window.output.begin(), window.output.end());
  Array y = filled(x.type, dims);
  std::size_t position = 0;
  for_each_index(dims, [&](const Dims& index) {
    const std::int64_t m = index[1];
    const std::int64_t first = m / (out_channels / groups) * channels;
    const double zero = w_zero.empty() ? 0 : w_zero[w_zero.size() == 1 ? 0 : m];
    double sum = 0;
    for_each_tap(window, index, x.dims, [&](std::int64_t at, std::int64_t tap) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const double left = x.values[(index[0] * x.dims[1] + first + c) * window.input_size + at];
        const double right = w.values[(m * channels + c) * window.kernel_size + tap];
        sum += (left - x_zero) * (right - zero);
      }
    });
    y.values[position++] = sum;
  });
  return y;
}

void add_bias(Array& y, const Array* bias) {
  if (bias == nullptr) return;
  const std::int64_t inner = product(y.dims, 2, y.rank());
  for (std::int64_t i = 0; i < y.size(); ++i) y.values[i] += bias->values[i / inner % y.dims[1]];
}

Arrays conv(const Call& call) {
  Array y = convolve(call, call.input(0), call.input(1), 0, {});
  add_bias(y, call.optional(2));
  return {y};
}

Arrays conv_integer(const Call& call) {
  const Array* x_zero = call.optional(2);
  const Array* w_zero = call.optional(3);
  Array y = convolve(call, call.input(0), call.input(1), x_zero == nullptr ? 0 : x_zero->values[0],
                     w_zero == nullptr ? std::vector<double>{} : w_zero->values);
  y.type = ElementType::Int32;
  return {y};
}

/// Inputs: x, its scale and zero point, w likewise, y's scale and zero point, bias (int32, in units
/// of x * w).
Arrays qlinear_conv(const Call& call) {
  Array y =
      convolve(call, call.input(0), call.input(3), call.input(2).values[0], call.input(5).values);
  add_bias(y, call.optional(8));
  const std::vector<double>& w_scale = call.input(4).values;
  const double common = call.input(1).values[0] / call.input(6).values[0];
  y.type = call.input(7).type;
  const std::int64_t inner = product(y.dims, 2, y.rank());
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const double scale = w_scale[w_scale.size() == 1 ? 0 : i / inner % y.dims[1]];
    const double value = std::nearbyint(y.values[i] * scale * common) + call.input(7).values[0];
    y.values[i] = saturate_to(y.type, value);
  }
  return {y};
}

/// Every input element is spread over the window around it.
Arrays conv_transpose(const Call& call) {
  const Array& x = call.input(0);
  const Array& w = call.input(1);
  const std::int64_t groups = call.integer("group", 1);
  const Dims kernel(w.dims.begin() + 2, w.dims.end());
  const Window window = transposed_window_of(call, x.dims, kernel);
  const std::int64_t per_group = w.dims[1];
  Dims dims = {x.dims[0], per_group * groups};
  dims.insert(dims.end(), window.output.begin(), window.output.end());
  Array y = filled(x.type, dims);
  std::size_t position = 0;
  for_each_index(x.dims, [&](const Dims& index) {
    const double value = x.values[position++];
    const std::int64_t group = index[1] / (x.dims[1] / groups);
    for_each_index(kernel, [&](const Dims& k) {
      Dims at = {index[0], 0};
      for (std::size_t a = 0; a < kernel.size(); ++a) {
        at.push_back(index[a + 2] * window.strides[a] + k[a] * window.dilations[a] -
                     window.pads_begin[a]);
        if (at.back() < 0 || at.back() >= window.output[a]) return;
      }
      for (std::int64_t m = 0; m < per_group; ++m) {
        at[1] = group * per_group + m;
        const std::int64_t weight =
            (index[1] * per_group + m) * window.kernel_size + offset_of(kernel, k);
        y.values[offset_of(dims, at)] += value * w.values[weight];
      }
    });
  });
  add_bias(y, call.optional(2));
  return {y};
}

struct Pooled {
  double value = 0;
  std::int64_t argument = 0;  // offset in the image
};

Pooled pool_window(const Call& call, const Window& window, const Dims& index, const Array& x) {
  const std::string& op = call.node.op_type;
  const bool greatest = op.ends_with("MaxPool");
  const auto p = static_cast<double>(call.integer("p", 2));
  const std::int64_t image = (index[0] * x.dims[1] + index[1]) * window.input_size;
  Pooled result{greatest ? -std::numeric_limits<double>::infinity() : 0, -1};
  double count = 0;
  for_each_tap(window, index, x.dims, [&](std::int64_t at, std::int64_t) {
    const double v = x.values[image + at];
    ++count;
    if (!greatest) {
      result.value += op.ends_with("LpPool") ? std::pow(std::abs(v), p) : v;
    } else if (result.argument < 0 || v > result.value ||
               (std::isnan(v) && !std::isnan(result.value))) {
      result = {v, at};
    }
  });
  if (op.ends_with("LpPool")) result.value = std::pow(result.value, 1 / p);
  if (op.ends_with("AveragePool")) {
    if (call.integer("count_include_pad", 0) != 0) count = padded_count(window, index, x.dims);
    result.value /= count;
  }
  return result;
}

Arrays pool(const Call& call) {
  const Array& x = call.input(0);
  const bool global = call.node.op_type.starts_with("Global");
  const Dims image(x.dims.begin() + 2, x.dims.end());
  const Window window = window_of(call, x.dims, global ? image : call.list("kernel_shape"), true);
  Dims dims = {x.dims[0], x.dims[1]};
  dims.insert(dims.end(), window.output.begin(), window.output.end());
  Array y = filled(x.type, dims);
  Array arguments = filled(ElementType::Int64, dims);
  std::size_t position = 0;
  for_each_index(dims, [&](const Dims& index) {
    const Pooled pooled = pool_window(call, window, index, x);
    y.values[position] = pooled.value;
    std::int64_t at = pooled.argument;
    if (call.integer("storage_order", 0) != 0) {  // column-major within an image
      std::int64_t mirrored = 0;
      std::int64_t rest = at;
      Dims place(image.size());
      for (std::size_t a = image.size(); a > 0; --a) {
        place[a - 1] = rest % image[a - 1];
        rest /= image[a - 1];
      }
      for (std::size_t a = image.size(); a > 0; --a)
        mirrored = mirrored * image[a - 1] + place[a - 1];
      at = mirrored;
    }
    arguments.values[position++] =
        static_cast<double>((index[0] * x.dims[1] + index[1]) * window.input_size + at);
  });
  Arrays results = {y};
  if (call.output_count > 1) results.push_back(arguments);
  return results;
}

const Registration kConv({"Conv"}, conv);
const Registration kConvInteger({"ConvInteger"}, conv_integer);
const Registration kQLinearConv({"QLinearConv"}, qlinear_conv);
const Registration kConvTranspose({"ConvTranspose"}, conv_transpose);
const Registration kPool({"MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool",
                          "GlobalLpPool"},
                         pool);

}  // namespace
}  // namespace backplane::reference
