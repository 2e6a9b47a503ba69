// Scaled dot-product attention, one result at a time: https://onnx.ai/onnx/operators/onnx__Attention.html
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// [batch, heads, positions, width] of three or four axes.
Array four_axes(const Array& x, std::int64_t heads) {
  if (x.rank() == 4) return x;
  Array y{x.type, {x.dims[0], heads, x.dims[1], x.dims[2] / heads}, {}};
  for_each_index(y.dims, [&](const Dims& at) {
    y.values.push_back(x.values[offset_of(x.dims, {at[0], at[2], at[1] * y.dims[3] + at[3]})]);
  });
  return y;
}

/// `fresh` behind the cached `past`.
Array joined(const Array* past, const Array& fresh) {
  if (past == nullptr) return fresh;
  Array y{fresh.type, fresh.dims, {}};
  y.dims[2] += past->dims[2];
  for_each_index(y.dims, [&](Dims at) {
    const Array& from = at[2] < past->dims[2] ? *past : fresh;
    if (&from == &fresh) at[2] -= past->dims[2];
    y.values.push_back(from.values[offset_of(from.dims, at)]);
  });
  return y;
}

struct Settings {
  double scale, softcap;
  std::int64_t offset, length, left, right;
  bool causal;
};

/// What is added to a score before the Softmax.
double bias_of(const Settings& s, const Array* mask, const Dims& at) {
  const std::int64_t position = s.offset + at[2], key = at[3];
  if (key >= s.length || (s.causal && key > position) || (s.left >= 0 && key < position - s.left) ||
      (s.right >= 0 && key > position + s.right))
    return kNever;
  if (mask == nullptr) return 0;
  if (key >= mask->dims.back()) return kNever;
  const double value = mask->values[offset_broadcast(mask->dims, at)];
  if (mask->type == ElementType::Bool) return value != 0 ? 0 : kNever;
  return value;
}

std::vector<double> weights_of(const Settings& s, const Array& q, const Array& k, const Array* mask,
                               Dims at, std::int64_t kv_head) {
  std::vector<double> weights;
  double most = kNever;
  // A row of each at a time: an offset for every product would take most of the time of the tests.
  const std::int64_t width = q.dims[3];
  const auto query = q.values.begin() + offset_of(q.dims, {at[0], at[1], at[2], 0});
  const auto keys = k.values.begin() + offset_of(k.dims, {at[0], kv_head, 0, 0});
  for (at[3] = 0; at[3] < k.dims[2]; ++at[3]) {
    double score = 0;
    for (std::int64_t i = 0; i < width; ++i) score += query[i] * keys[at[3] * width + i];
    score *= s.scale;
    if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
    weights.push_back(score + bias_of(s, mask, at));
    most = std::max(most, weights.back());
  }
  double sum = 0;
  for (double& weight : weights) {
    weight = most == kNever ? 0 : std::exp(weight - most);
    sum += weight;
  }
  for (double& weight : weights) weight = sum == 0 ? 0 : weight / sum;
  return weights;
}

Array flat(const Array& x) {
  Array y{x.type, {x.dims[0], x.dims[2], x.dims[1] * x.dims[3]}, {}};
  for_each_index(y.dims, [&](const Dims& at) {
    y.values.push_back(
        x.values[offset_of(x.dims, {at[0], at[2] / x.dims[3], at[1], at[2] % x.dims[3]})]);
  });
  return y;
}

Arrays attention(const Call& call) {
  const Array q = four_axes(call.input(0), call.integer("q_num_heads", 1));
  const std::int64_t kv_heads = call.integer("kv_num_heads", 1);
  const Array *mask = call.optional(3), *past = call.optional(4), *lengths = call.optional(6);
  const Array k = joined(past, four_axes(call.input(1), kv_heads));
  const Array v = joined(call.optional(5), four_axes(call.input(2), kv_heads));
  Settings s{};
  s.scale = call.number("scale", 1 / std::sqrt(static_cast<double>(q.dims[3])));
  s.softcap = call.number("softcap", 0);
  s.left = call.integer("left_window_size", -1);
  s.right = call.integer("right_window_size", -1);
  s.causal = call.integer("is_causal", 0) != 0;
  const std::int64_t group = q.dims[1] / k.dims[1];
  Array y{q.type, {q.dims[0], q.dims[1], q.dims[2], v.dims[3]}, {}};
  for_each_index({q.dims[0], q.dims[1], q.dims[2], 1}, [&](const Dims& at) {
    s.length = k.dims[2];
    s.offset = past != nullptr ? past->dims[2] : 0;
    if (lengths != nullptr) {
      s.length = static_cast<std::int64_t>(lengths->values[at[0]]);
      s.offset = s.length - q.dims[2];
    }
    const std::vector<double> weights = weights_of(s, q, k, mask, at, at[1] / group);
    const std::int64_t values = offset_of(v.dims, {at[0], at[1] / group, 0, 0});
    for (std::int64_t i = 0; i < v.dims[3]; ++i) {
      double sum = 0;
      for (std::int64_t key = 0; key < v.dims[2]; ++key)
        sum += weights[key] * v.values[values + key * v.dims[3] + i];
      y.values.push_back(sum);
    }
  });
  Arrays outputs{call.input(0).rank() == 3 ? flat(y) : y};
  if (call.output_count > 1) outputs.push_back(k);
  if (call.output_count > 2) outputs.push_back(v);
  return outputs;
}

const Registration kAttention({"Attention"}, attention);

}  // namespace
}  // namespace backplane::reference
