// Formulas of ONNX's operator specifications, element by element in double precision: for operators that a device is
// most likely to have. https://onnx.ai/onnx/operators/
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "tools/backplane/check/reference.hpp"
#include "tools/backplane/check/reference_book.hpp"

namespace backplane::cli::check {
namespace {

using Unary = std::function<double(double)>;
using Binary = std::function<double(double, double)>;

double erf_gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double softplus(double x) { return std::log1p(std::exp(x)); }

const std::map<std::string, Unary>& plain_functions() {
  static const std::map<std::string, Unary> kFunctions = {
      {"Abs", [](double x) { return std::abs(x); }},
      {"Neg", [](double x) { return -x; }},
      {"Relu", [](double x) { return std::max(x, 0.0); }},
      {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"Tanh", [](double x) { return std::tanh(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Reciprocal", [](double x) { return 1 / x; }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Round", [](double x) { return std::nearbyint(x); }},
      {"Sign", [](double x) { return static_cast<double>((x > 0) - (x < 0)); }},
      {"Erf", [](double x) { return std::erf(x); }},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Tan", [](double x) { return std::tan(x); }},
      {"Asin", [](double x) { return std::asin(x); }},
      {"Acos", [](double x) { return std::acos(x); }},
      {"Atan", [](double x) { return std::atan(x); }},
      {"Sinh", [](double x) { return std::sinh(x); }},
      {"Cosh", [](double x) { return std::cosh(x); }},
      {"Asinh", [](double x) { return std::asinh(x); }},
      {"Acosh", [](double x) { return std::acosh(x); }},
      {"Atanh", [](double x) { return std::atanh(x); }},
      {"Softplus", softplus},
      {"Softsign", [](double x) { return x / (1 + std::abs(x)); }},
      {"HardSwish", [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
      {"Mish", [](double x) { return x * std::tanh(softplus(x)); }},
      {"Gelu", erf_gelu},
      {"Identity", [](double x) { return x; }},
      {"Not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
      {"IsNaN", [](double x) { return std::isnan(x) ? 1.0 : 0.0; }},
      {"IsInf", [](double x) { return std::isinf(x) ? 1.0 : 0.0; }}};
  return kFunctions;
}

/// Functions of one element with attributes; empty where there is none.
Unary unary_function(const NodeCase& node) {
  const std::string& op = node.op_type;
  const auto plain = plain_functions().find(op);
  if (plain != plain_functions().end()) return plain->second;
  if (op == "LeakyRelu") {
    const double alpha = attribute_or(node, "alpha", 0.01f);
    return [alpha](double x) { return x < 0 ? alpha * x : x; };
  }
  if (op == "Elu" || op == "Celu") {
    const double alpha = attribute_or(node, "alpha", 1.0f), inner = op == "Celu" ? alpha : 1;
    return [=](double x) { return x < 0 ? alpha * std::expm1(x / inner) : x; };
  }
  if (op == "HardSigmoid") {
    const double alpha = attribute_or(node, "alpha", 0.2f), beta = attribute_or(node, "beta", 0.5f);
    return [=](double x) { return std::clamp(alpha * x + beta, 0.0, 1.0); };
  }
  if (op == "ThresholdedRelu") {
    const double alpha = attribute_or(node, "alpha", 1.0f);
    return [alpha](double x) { return x > alpha ? x : 0.0; };
  }
  return {};
}

Binary binary_function(const NodeCase& node) {
  static const std::map<std::string, Binary> kFunctions = {
      {"Add", [](double a, double b) { return a + b; }},
      {"Sub", [](double a, double b) { return a - b; }},
      {"Mul", [](double a, double b) { return a * b; }},
      {"Pow", [](double a, double b) { return std::pow(a, b); }},
      {"And", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
      {"Or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
      {"Xor", [](double a, double b) { return (a != 0) != (b != 0) ? 1.0 : 0.0; }},
      {"Equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }},
      {"Less", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {"Greater", [](double a, double b) { return a > b ? 1.0 : 0.0; }},
      {"LessOrEqual", [](double a, double b) { return a <= b ? 1.0 : 0.0; }},
      {"GreaterOrEqual", [](double a, double b) { return a >= b ? 1.0 : 0.0; }}};
  if (node.op_type == "Div") {
    const bool whole = !is_floating(node.inputs[0].tensor.dtype);
    return [whole](double a, double b) { return whole ? std::trunc(a / b) : a / b; };
  }
  const auto found = kFunctions.find(node.op_type);
  return found == kFunctions.end() ? Binary() : found->second;
}

Tensor of_pairs(const NodeCase& node, const Binary& function) {
  const Tensor &a = node.inputs[0].tensor, &b = node.inputs[1].tensor;
  Tensor result = make_tensor(node.outputs[0], broadcast_dims(a.dims, b.dims));
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.set(i, function(a.at(broadcast_source(i, result.dims, a.dims)),
                           b.at(broadcast_source(i, result.dims, b.dims))));
  return result;
}

/// Rows by columns of the last two axes, the others broadcast; vectors as matrices of one row or column.
std::optional<Tensor> matmul(const NodeCase& node) {
  Tensor a = node.inputs[0].tensor, b = node.inputs[1].tensor;
  const bool row = a.dims.size() == 1, column = b.dims.size() == 1;
  if (row) a.dims.insert(a.dims.begin(), 1);
  if (column) b.dims.push_back(1);
  const Dims outer_a(a.dims.begin(), a.dims.end() - 2), outer_b(b.dims.begin(), b.dims.end() - 2);
  const std::int64_t m = a.dims[a.dims.size() - 2], k = a.dims.back(), n = b.dims.back();
  const Dims outer = broadcast_dims(outer_a, outer_b);
  Dims dims = outer;
  dims.push_back(m);
  dims.push_back(n);
  Tensor result = make_tensor(node.outputs[0], dims);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const std::int64_t matrix = i / (m * n), r = i / n % m, c = i % n;
    const std::int64_t at_a = broadcast_source(matrix, outer, outer_a) * m * k + r * k;
    const std::int64_t at_b = broadcast_source(matrix, outer, outer_b) * k * n + c;
    double sum = 0;
    for (std::int64_t j = 0; j < k; ++j) sum += a.at(at_a + j) * b.at(at_b + j * n);
    result.set(i, sum);
  }
  if (column) result.dims.pop_back();
  if (row) result.dims.erase(result.dims.end() - (column ? 1 : 2));
  return result;
}

Tensor gemm(const NodeCase& node) {
  const Tensor &a = node.inputs[0].tensor, &b = node.inputs[1].tensor;
  const bool flip_a = attribute_or(node, "transA", std::int64_t{0}) != 0;
  const bool flip_b = attribute_or(node, "transB", std::int64_t{0}) != 0;
  const double alpha = attribute_or(node, "alpha", 1.0f), beta = attribute_or(node, "beta", 1.0f);
  const std::int64_t m = a.dims[flip_a ? 1 : 0], k = a.dims[flip_a ? 0 : 1],
                     n = b.dims[flip_b ? 0 : 1];
  Tensor result = make_tensor(node.outputs[0], {m, n});
  for (std::int64_t i = 0; i < m * n; ++i) {
    const std::int64_t r = i / n, c = i % n;
    double sum = 0;
    for (std::int64_t j = 0; j < k; ++j)
      sum += a.at(flip_a ? j * m + r : r * k + j) * b.at(flip_b ? c * k + j : j * n + c);
    sum *= alpha;
    if (node.inputs.size() > 2) {
      const Tensor& added = node.inputs[2].tensor;
      sum += beta * added.at(broadcast_source(i, result.dims, added.dims));
    }
    result.set(i, sum);
  }
  return result;
}

/// Softmax and its like along one axis (from version 13 on); before that over all axes from there on.
Tensor softmax(const NodeCase& node) {
  const Tensor& x = node.inputs[0].tensor;
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  std::int64_t axis = attribute_or(node, "axis", node.since_version < 13 ? std::int64_t{1} : -1);
  if (axis < 0) axis += rank;
  const auto product = [&](std::int64_t first, std::int64_t last) {
    return std::accumulate(x.dims.begin() + first, x.dims.begin() + last, std::int64_t{1},
                           std::multiplies<>());
  };
  const bool one_axis = node.since_version >= 13;
  const std::int64_t inner = one_axis ? product(axis + 1, rank) : 1;
  const std::int64_t length =
      one_axis ? x.dims[static_cast<std::size_t>(axis)] : product(axis, rank);
  Tensor result = make_tensor(node.outputs[0], x.dims);
  for (std::int64_t line = 0; length > 0 && line < x.size() / length; ++line) {
    const std::int64_t start = line / inner * inner * length + line % inner;
    double top = -INFINITY, sum = 0;
    for (std::int64_t i = 0; i < length; ++i) top = std::max(top, x.at(start + i * inner));
    for (std::int64_t i = 0; i < length; ++i) sum += std::exp(x.at(start + i * inner) - top);
    for (std::int64_t i = 0; i < length; ++i) {
      const double value = x.at(start + i * inner) - top;
      result.set(start + i * inner,
                 node.op_type == "LogSoftmax" ? value - std::log(sum) : std::exp(value) / sum);
    }
  }
  return result;
}

Tensor transpose(const NodeCase& node) {
  const Tensor& x = node.inputs[0].tensor;
  std::vector<std::int64_t> perm(x.dims.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    perm[i] = static_cast<std::int64_t>(perm.size() - 1 - i);
  perm = attribute_or(node, "perm", perm);
  Dims dims, strides(x.dims.size(), 1);
  for (std::size_t i = x.dims.size(); i-- > 1;) strides[i - 1] = strides[i] * x.dims[i];
  for (const std::int64_t axis : perm) dims.push_back(x.dims[static_cast<std::size_t>(axis)]);
  Tensor result = make_tensor(x.dtype, dims);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    std::int64_t left = i, source = 0;
    for (std::size_t axis = dims.size(); axis-- > 0;) {
      source += left % dims[axis] * strides[static_cast<std::size_t>(perm[axis])];
      left /= dims[axis];
    }
    result.set(i, x.at(source));
  }
  return result;
}

/// x [n, c, h, w], w [m, c/group, kh, kw], with pads, strides, dilations.
std::optional<Tensor> convolution(const NodeCase& node) {
  const Tensor &x = node.inputs[0].tensor, &w = node.inputs[1].tensor;
  if (x.dims.size() != 4) return std::nullopt;
  const std::vector<std::int64_t> pads =
      attribute_or(node, "pads", std::vector<std::int64_t>{0, 0, 0, 0});
  const std::vector<std::int64_t> strides =
      attribute_or(node, "strides", std::vector<std::int64_t>{1, 1});
  const std::vector<std::int64_t> dilations =
      attribute_or(node, "dilations", std::vector<std::int64_t>{1, 1});
  const std::int64_t group = attribute_or(node, "group", std::int64_t{1});
  const std::int64_t channels = w.dims[1], maps = w.dims[0], kh = w.dims[2], kw = w.dims[3];
  const auto size = [&](std::size_t axis, std::int64_t kernel) {
    const std::int64_t padded = x.dims[axis + 2] + pads[axis] + pads[axis + 2];
    return (padded - (kernel - 1) * dilations[axis] - 1) / strides[axis] + 1;
  };
  const std::int64_t oh = size(0, kh), ow = size(1, kw);
  Tensor result = make_tensor(x.dtype, {x.dims[0], maps, oh, ow});
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const std::int64_t n = i / (maps * oh * ow), m = i / (oh * ow) % maps, r = i / ow % oh,
                       c = i % ow;
    double sum = node.inputs.size() > 2 ? node.inputs[2].tensor.at(m) : 0;
    for (std::int64_t k = 0; k < channels * kh * kw; ++k) {
      const std::int64_t channel = k / (kh * kw);
      const std::int64_t y = r * strides[0] - pads[0] + k / kw % kh * dilations[0];
      const std::int64_t z = c * strides[1] - pads[1] + k % kw * dilations[1];
      if (y < 0 || y >= x.dims[2] || z < 0 || z >= x.dims[3]) continue;
      const std::int64_t from = m / (maps / group) * channels + channel;
      sum += x.at(((n * x.dims[1] + from) * x.dims[2] + y) * x.dims[3] + z) *
             w.at(m * channels * kh * kw + k);
    }
    result.set(i, sum);
  }
  return result;
}

const ReferenceBook& references() {
  static const ReferenceBook kBook = [] {
    ReferenceBook book;
    add_elementwise_references(book);
    add_generated_references(book);
    add_indexed_references(book);
    add_movement_references(book);
    add_pool_references(book);
    add_quantized_references(book);
    add_reduction_references(book);
    return book;
  }();
  return kBook;
}

}  // namespace

std::optional<std::vector<Tensor>> compute_in_double(const NodeCase& node) {
  const auto one = [](Tensor tensor) { return std::vector<Tensor>{std::move(tensor)}; };
  if (!node.domain.empty()) return std::nullopt;
  if (const Unary function = unary_function(node)) {
    const Tensor& x = node.inputs[0].tensor;
    Tensor result = make_tensor(node.outputs[0], x.dims);
    for (std::int64_t i = 0; i < x.size(); ++i) result.set(i, function(x.at(i)));
    return one(std::move(result));
  }
  if (const Binary function = binary_function(node)) return one(of_pairs(node, function));
  const std::string& op = node.op_type;
  std::optional<Tensor> result;
  if (op == "MatMul") result = matmul(node);
  if (op == "Gemm") result = gemm(node);
  if (op == "Softmax" || op == "LogSoftmax") result = softmax(node);
  if (op == "Transpose") result = transpose(node);
  if (op == "Conv") result = convolution(node);
  if (result) return one(std::move(*result));
  const auto reference = references().find(op);
  return reference == references().end() ? std::nullopt : reference->second(node);
}

}  // namespace backplane::cli::check
