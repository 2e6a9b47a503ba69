// Windows over images, and convolutions turned round. https://onnx.ai/onnx/operators/
#include <algorithm>
#include <cmath>

#include "tools/backplane/check/reference_book.hpp"

namespace backplane::cli::check {
namespace {

using Elements = std::vector<double>;
/// What is made of the elements of a window that lie in the image.
using WindowFold = std::function<double(const NodeCase&, const Elements&)>;

bool has_automatic_pads(const NodeCase& node) {
  return attribute_or(node, "auto_pad", std::string("NOTSET")) != "NOTSET" ||
         attribute_or(node, "ceil_mode", std::int64_t{0}) != 0;
}

/// The elements under a window at a place of the result.
Elements window_at(const Tensor& x, const Dims& place, const Dims& kernel, const NodeCase& node) {
  const std::size_t axes = kernel.size();
  const Dims strides = attribute_or(node, "strides", Dims(axes, 1)),
             pads = attribute_or(node, "pads", Dims(2 * axes, 0)),
             dilations = attribute_or(node, "dilations", Dims(axes, 1));
  Elements values;
  for (std::int64_t k = 0; k < product(kernel); ++k) {
    const Dims tap = place_of(k, kernel);
    Dims from = place;
    bool is_inside = true;
    for (std::size_t i = 0; i < axes; ++i) {
      from[i + 2] = place[i + 2] * strides[i] - pads[i] + tap[i] * dilations[i];
      is_inside = is_inside && from[i + 2] >= 0 && from[i + 2] < x.dims[i + 2];
    }
    if (is_inside) values.push_back(x.at(index_of(from, x.dims)));
  }
  return values;
}

Reference window_pool(WindowFold fold) {
  return one_output([fold = std::move(fold)](const NodeCase& node) -> std::optional<Tensor> {
    const Tensor& x = input_of(node, 0);
    if (has_automatic_pads(node) || node.outputs.size() != 1) return std::nullopt;
    const Dims kernel = attribute_or(node, "kernel_shape", Dims());
    const std::size_t axes = kernel.size();
    const Dims strides = attribute_or(node, "strides", Dims(axes, 1)),
               pads = attribute_or(node, "pads", Dims(2 * axes, 0)),
               dilations = attribute_or(node, "dilations", Dims(axes, 1));
    Dims dims = x.dims;
    for (std::size_t i = 0; i < axes; ++i) {
      const std::int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
      dims[i + 2] = (x.dims[i + 2] + pads[i] + pads[i + axes] - reach) / strides[i] + 1;
    }
    Tensor result = make_tensor(x.dtype, dims);
    for (std::int64_t i = 0; i < result.size(); ++i)
      result.set(i, fold(node, window_at(x, place_of(i, dims), kernel, node)));
    return result;
  });
}

Reference image_pool(WindowFold fold) {
  return one_output([fold = std::move(fold)](const NodeCase& node) -> std::optional<Tensor> {
    const Tensor& x = input_of(node, 0);
    Dims dims(x.dims.size(), 1);
    std::copy_n(x.dims.begin(), 2, dims.begin());
    Tensor result = make_tensor(x.dtype, dims);
    const std::int64_t size = x.size() / std::max<std::int64_t>(result.size(), 1);
    for (std::int64_t i = 0; i < result.size(); ++i) {
      Elements values;
      for (std::int64_t k = 0; k < size; ++k) values.push_back(x.at(i * size + k));
      result.set(i, fold(node, values));
    }
    return result;
  });
}

double largest(const NodeCase&, const Elements& values) {
  return *std::max_element(values.begin(), values.end());
}
double mean(const NodeCase& node, const Elements& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  const bool counts_pads = attribute_or(node, "count_include_pad", std::int64_t{0}) != 0;
  const std::int64_t whole = product(attribute_or(node, "kernel_shape", Dims()));
  return sum / (counts_pads ? static_cast<double>(whole) : static_cast<double>(values.size()));
}
double p_norm(const NodeCase& node, const Elements& values) {
  const auto p = static_cast<double>(attribute_or(node, "p", std::int64_t{2}));
  double sum = 0;
  for (const double value : values) sum += std::pow(std::abs(value), p);
  return std::pow(sum, 1 / p);
}

/// x [n, c, h, w], w [c, m / group, kh, kw]: each element adds the weights, times itself, to the result.
std::optional<Tensor> turned_convolution(const NodeCase& node) {
  const Tensor &x = input_of(node, 0), &w = input_of(node, 1);
  if (x.dims.size() != 4 || has_automatic_pads(node) || has_input(node, 2) ||
      node.attributes.count("output_shape") + node.attributes.count("output_padding") > 0)
    return std::nullopt;
  const Dims strides = attribute_or(node, "strides", Dims{1, 1}),
             pads = attribute_or(node, "pads", Dims{0, 0, 0, 0}),
             dilations = attribute_or(node, "dilations", Dims{1, 1});
  const std::int64_t group = attribute_or(node, "group", std::int64_t{1});
  const std::int64_t channels = x.dims[1] / group, maps = w.dims[1];
  Dims dims{x.dims[0], maps * group, 0, 0};
  for (std::size_t i = 0; i < 2; ++i)
    dims[i + 2] = (x.dims[i + 2] - 1) * strides[i] + (w.dims[i + 2] - 1) * dilations[i] + 1 -
                  pads[i] - pads[i + 2];
  std::vector<double> sums(static_cast<std::size_t>(product(dims)));
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const Dims from = place_of(i, x.dims);
    for (std::int64_t k = 0; k < maps * w.dims[2] * w.dims[3]; ++k) {
      const Dims tap = place_of(k, {maps, w.dims[2], w.dims[3]});
      const Dims to{from[0], from[1] / channels * maps + tap[0],
                    from[2] * strides[0] + tap[1] * dilations[0] - pads[0],
                    from[3] * strides[1] + tap[2] * dilations[1] - pads[1]};
      if (to[2] < 0 || to[2] >= dims[2] || to[3] < 0 || to[3] >= dims[3]) continue;
      sums[static_cast<std::size_t>(index_of(to, dims))] +=
          x.at(i) * w.at(index_of({from[1], tap[0], tap[1], tap[2]}, w.dims));
    }
  }
  Tensor result = make_tensor(x.dtype, dims);
  for (std::int64_t i = 0; i < result.size(); ++i) result.set(i, sums[static_cast<std::size_t>(i)]);
  return result;
}

}  // namespace

void add_pool_references(ReferenceBook& book) {
  book["MaxPool"] = window_pool(largest);
  book["AveragePool"] = window_pool(mean);
  book["LpPool"] = window_pool(p_norm);
  book["GlobalMaxPool"] = image_pool(largest);
  book["GlobalAveragePool"] = image_pool(mean);
  book["GlobalLpPool"] = image_pool(p_norm);
  book["ConvTranspose"] = one_output(turned_convolution);
}

}  // namespace backplane::cli::check
