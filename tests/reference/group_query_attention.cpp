// com.microsoft::GroupQueryAttention, one result at a time:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <algorithm>
#include <cmath>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

/// One call, with a head of queries, keys or values by its number among all of them where they are packed.
struct Grouped {
  explicit Grouped(const Call& its_call) : call(its_call) {
    const Dims& dims = call.input(0).dims;
    is_packed = call.optional(1) == nullptr;
    batch = dims[0];
    queries = dims[1];
    width = dims[2] / (heads + (is_packed ? 2 * kv_heads : 0));
    room = past != nullptr ? past->dims[2] : 0;
    total = past != nullptr ? call.integers(6)[0] : queries;
  }

  /// What a sequence uses of the past.
  std::int64_t used(std::int64_t b) const {
    return past == nullptr || total == queries ? 0 : call.integers(5)[b] + 1 - queries;
  }

  /// How many of so many positions a cache has: a sliding one has room for the last.
  std::int64_t kept(std::int64_t positions) const {
    if (!is_sliding || positions <= room) return positions;
    const std::int64_t step = room - call.integer("local_window_size", -1) + 1;
    while (positions > room) positions -= step;
    return positions;
  }

  /// Positions that a sequence had and its past no longer has.
  std::int64_t gone(std::int64_t b) const { return used(b) - kept(used(b)); }

  double fresh(std::size_t input, std::int64_t b, std::int64_t head, std::int64_t p,
               std::int64_t i) const {
    if (is_packed && input > 0) head += heads + (input == 2 ? kv_heads : 0);
    const Array& from = call.input(is_packed ? 0 : input);
    return from.values[offset_of(from.dims, {b, p, head * width + i})];
  }

  /// A new query's or key's column, normalized.
  double normal(std::size_t input, std::int64_t b, std::int64_t head, std::int64_t p,
                std::int64_t i) const {
    const Array* weight = call.optional(14 + input);
    const double x = fresh(input, b, head, p, i);
    if (weight == nullptr) return x;
    double squares = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const double other = fresh(input, b, head, p, k);
      squares += other * other / static_cast<double>(width);
    }
    return x / std::sqrt(squares + call.number("qk_norm_epsilon", 1e-6)) * weight->values[i];
  }

  /// A new query's or key's column after its rotation.
  double turned(std::size_t input, std::int64_t b, std::int64_t head, std::int64_t p,
                std::int64_t i) const {
    const double x = normal(input, b, head, p, i);
    if (call.integer("do_rotary", 0) == 0) return x;
    const Array &cos = call.input(7), &sin = call.input(8);
    const std::int64_t half = cos.dims[1];
    if (i >= 2 * half) return x;
    std::int64_t place = used(b) + p;
    if (const Array* given = call.optional(9))
      place = static_cast<std::int64_t>(given->values[offset_broadcast(given->dims, {b, p})]);
    const bool pairs = call.integer("rotary_interleaved", 0) != 0;
    const std::int64_t angle = pairs ? i / 2 : i % half;
    const bool is_first = pairs ? i % 2 == 0 : i < half;
    const std::int64_t step = pairs ? 1 : half;
    const double other = normal(input, b, head, p, is_first ? i + step : i - step);
    const double c = cos.values[offset_of(cos.dims, {place, angle})];
    const double s = sin.values[offset_of(sin.dims, {place, angle})];
    return is_first ? x * c - other * s : other * s + x * c;
  }

  /// Keys (input 1) or values (2) of the past and then new ones, as much as the longest sequence has: [batch, kv heads, rows,
  /// width].
  Array joined(std::size_t input) const {
    std::int64_t rows = queries;
    for (std::int64_t b = 0; b < batch; ++b) rows = std::max(rows, kept(used(b)) + queries);
    Array y{call.input(0).type, {batch, kv_heads, rows, width}, {}};
    const Array* before = call.optional(input + 2);
    for_each_index(y.dims, [&](const Dims& at) {
      const std::int64_t p = at[2] - kept(used(at[0]));
      double value = 0;
      if (p >= 0 && p < queries) {
        value = input == 1 ? turned(1, at[0], at[1], p, at[3]) : fresh(2, at[0], at[1], p, at[3]);
      } else if (p < 0) {
        value = before->values[offset_of(before->dims, at)];
      }
      y.values.push_back(value);
    });
    return y;
  }

  /// What is handed on: the last rows that a sequence's cache has, and then what the past has there.
  Array present(const Array& rows, std::size_t input) const {
    Array y{rows.type, {batch, kv_heads, is_sliding ? room : std::max(room, total), width}, {}};
    const Array* before = call.optional(input + 2);
    for_each_index(y.dims, [&](const Dims& at) {
      const std::int64_t end = used(at[0]) + queries, left = kept(end);
      double value = 0;
      if (at[2] < left) {
        const std::int64_t row = at[2] + end - left - gone(at[0]);
        value = rows.values[offset_of(rows.dims, {at[0], at[1], row, at[3]})];
      } else if (at[2] < room) {
        value = before->values[offset_of(before->dims, at)];
      }
      y.values.push_back(value);
    });
    return y;
  }

  bool sees(std::int64_t place, std::int64_t key, std::int64_t end) const {
    const bool is_causal = call.integer("causal", 1) != 0;
    const std::int64_t window = call.integer("local_window_size", -1);
    if (key >= end || (is_causal && key > place)) return false;
    return window <= 0 || (!is_causal && past == nullptr) || key > place - window;
  }

  std::vector<double> weights(const Array& keys, std::int64_t b, std::int64_t head,
                              std::int64_t p) const {
    double scale = call.number("scale", 0);
    if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(width));
    const double cap = call.number("softcap", 0);
    const Array* bias = call.optional(10);
    const std::int64_t end = used(b) + queries;
    std::vector<double> weights(static_cast<std::size_t>(keys.dims[2]), 0);
    double sum = 0;
    if (const Array* sinks = call.optional(11)) {
      sum = std::exp(sinks->values[head]);
    } else if (call.integer("smooth_softmax", -1) == 1) {
      sum = 1;
    }
    std::vector<double> query;
    for (std::int64_t i = 0; i < width; ++i) query.push_back(turned(0, b, head, p, i));
    for (std::int64_t key = 0; key < end - gone(b); ++key) {
      if (!sees(used(b) + p, key + gone(b), end)) continue;
      double score = 0;
      for (std::int64_t i = 0; i < width; ++i)
        score += query[static_cast<std::size_t>(i)] *
                 keys.values[offset_of(keys.dims, {b, head / (heads / kv_heads), key, i})];
      score *= scale;
      if (cap > 0) score = cap * std::tanh(score / cap);
      if (bias != nullptr) score += bias->values[offset_broadcast(bias->dims, {b, head, p, key})];
      weights[key] = std::exp(score);  // scores of tests are small
      sum += weights[key];
    }
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  const Call& call;
  std::int64_t heads = call.integer("num_heads", 1), kv_heads = call.integer("kv_num_heads", 1);
  const Array* past = call.optional(3);
  bool is_packed = false, is_sliding = call.integer("sliding_window_cache", 0) != 0;
  std::int64_t batch = 0, queries = 0, width = 0, room = 0, total = 0;
};

Arrays group_query_attention(const Call& call) {
  const Grouped op(call);
  const Array keys = op.joined(1), values = op.joined(2);
  Array y = filled(call.input(0).type, {op.batch, op.queries, op.heads * op.width});
  for_each_index({op.batch, op.queries, op.heads}, [&](const Dims& at) {
    const std::vector<double> weights = op.weights(keys, at[0], at[2], at[1]);
    const std::int64_t kv_head = at[2] / (op.heads / op.kv_heads);
    for (std::int64_t i = 0; i < op.width; ++i) {
      double sum = 0;
      for (std::int64_t key = 0; key < values.dims[2]; ++key)
        sum += weights[key] * values.values[offset_of(values.dims, {at[0], kv_head, key, i})];
      y.values[offset_of(y.dims, {at[0], at[1], at[2] * op.width + i})] = sum;
    }
  });
  return {y, op.present(keys, 1), op.present(values, 2)};
}

const Registration kGroupQueryAttention({"GroupQueryAttention"}, group_query_attention);

}  // namespace
}  // namespace backplane::reference
