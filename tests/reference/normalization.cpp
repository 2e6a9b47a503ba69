// Softmax and its relatives, and the normalisations.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

using Line = std::vector<double>;

/// x seen as [outer, axis, inner]: `body` rewrites each of the outer * inner lines along the axis.
void for_each_line(Array& x, std::int64_t outer, std::int64_t length, std::int64_t inner,
                   const std::function<void(Line& line)>& body) {
  Line line(static_cast<std::size_t>(length));
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      for (std::int64_t k = 0; k < length; ++k) line[k] = x.values[(o * length + k) * inner + i];
      body(line);
      for (std::int64_t k = 0; k < length; ++k) x.values[(o * length + k) * inner + i] = line[k];
    }
  }
}

void softmax_line(Line& line, const std::string& op) {
  if (line.empty()) return;
  const double most = *std::max_element(line.begin(), line.end());
  if (op == "Hardmax") {
    const auto first = std::max_element(line.begin(), line.end()) - line.begin();
    std::fill(line.begin(), line.end(), 0);
    line[first] = 1;
    return;
  }
  double sum = 0;
  for (const double v : line) sum += std::exp(v - most);
  for (double& v : line) {
    v = op == "Softmax" ? std::exp(v - most) / sum : v - most - std::log(sum);
  }
}

/// Before opset 13 the axes from `axis` on are one.
Arrays softmax(const Call& call) {
  Array y = call.input(0);
  const bool flattens = call.node.opset < 13;
  const std::int64_t axis = positive_axis(call.integer("axis", flattens ? 1 : -1), y.rank());
  const std::int64_t end = flattens ? y.rank() : axis + 1;
  for_each_line(y, product(y.dims, 0, axis), product(y.dims, axis, end),
                product(y.dims, end, y.rank()),
                [&](Line& line) { softmax_line(line, call.node.op_type); });
  return {y};
}

struct Moments {
  double mean = 0;
  double variance = 0;
};

Moments moments_of(const Line& line) {
  Moments m;
  const auto count = static_cast<double>(line.size());
  for (const double v : line) m.mean += v / count;
  for (const double v : line) m.variance += (v - m.mean) * (v - m.mean) / count;
  return m;
}

/// (x - mean) / sqrt(variance + epsilon); 0 where a line has none.
void standardize(Line& line, double epsilon) {
  const Moments m = moments_of(line);
  for (double& v : line) v = (v - m.mean) / std::sqrt(m.variance + epsilon);
}

constexpr double kEpsilon = static_cast<double>(1e-5f);

Arrays batch_normalization(const Call& call) {
  Array y = call.input(0);
  const double epsilon = call.number("epsilon", kEpsilon);
  const std::int64_t channels = y.rank() > 1 ? y.dims[1] : 1;
  const std::int64_t inner = y.rank() > 1 ? product(y.dims, 2, y.rank()) : 1;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const std::int64_t c = i / inner % channels;
    const double scaled =
        (y.values[i] - call.input(3).values[c]) / std::sqrt(call.input(4).values[c] + epsilon);
    y.values[i] = scaled * call.input(1).values[c] + call.input(2).values[c];
  }
  return {y};
}

/// InstanceNormalization, and GroupNormalization with parameters per group (opset 18) or per
/// channel (21).
Arrays group_normalization(const Call& call) {
  Array y = call.input(0);
  const bool instance = call.node.op_type == "InstanceNormalization";
  const std::int64_t channels = y.dims[1];
  const std::int64_t groups = instance ? channels : call.integer("num_groups", 1);
  const std::int64_t length = groups == 0 ? 0 : product(y.dims, 1, y.rank()) / groups;
  const double epsilon = call.number("epsilon", kEpsilon);
  for_each_line(y, y.dims[0] * groups, length, 1, [&](Line& line) { standardize(line, epsilon); });
  const std::int64_t inner = product(y.dims, 2, y.rank());
  const std::int64_t share = !instance && call.node.opset < 21 ? channels / groups : 1;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const std::int64_t at = i / inner % channels / share;
    y.values[i] = y.values[i] * call.input(1).values[at] + call.input(2).values[at];
  }
  return {y};
}

/// LayerNormalization with its two optional outputs, and RMSNormalization, which keeps the mean.
Arrays layer_normalization(const Call& call) {
  const Array& x = call.input(0);
  Array y = x;
  const bool rms = call.node.op_type == "RMSNormalization";
  const std::int64_t axis = positive_axis(call.integer("axis", -1), y.rank());
  const double epsilon = call.number("epsilon", kEpsilon);
  Dims outer_dims = y.dims;
  for (std::int64_t a = axis; a < y.rank(); ++a) outer_dims[a] = 1;
  Array means{ElementType::Float, outer_dims, {}};
  Array inverses = means;
  for_each_line(y, product(y.dims, 0, axis), product(y.dims, axis, y.rank()), 1, [&](Line& line) {
    Moments m = moments_of(line);
    if (rms) m = {0, m.variance + m.mean * m.mean};
    const double inverse = 1 / std::sqrt(m.variance + epsilon);
    for (double& v : line) v = (v - m.mean) * inverse;
    means.values.push_back(m.mean);
    inverses.values.push_back(inverse);
  });
  const Array* bias = call.optional(2);
  std::size_t position = 0;
  for_each_index(y.dims, [&](const Dims& index) {
    double& v = y.values[position++];
    v *= call.input(1).values[offset_broadcast(call.input(1).dims, index)];
    if (bias != nullptr) v += bias->values[offset_broadcast(bias->dims, index)];
  });
  Arrays results = {y};
  if (call.output_count > 1) results.push_back(means);
  if (call.output_count > 2) results.push_back(inverses);
  return results;
}

Arrays local_response(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t size = call.integer("size", 1);
  const double alpha = call.number("alpha", static_cast<double>(1e-4f));
  const double beta = call.number("beta", 0.75);
  const double bias = call.number("bias", 1);
  const std::int64_t channels = x.dims[1];
  const std::int64_t inner = product(x.dims, 2, x.rank());
  Array y = x;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t c = i / inner % channels;
    double squares = 0;
    for (std::int64_t k = c - (size - 1) / 2; k <= c + size / 2; ++k) {
      if (k < 0 || k >= channels) continue;
      const double v = x.values[i + (k - c) * inner];
      squares += v * v;
    }
    y.values[i] = x.values[i] / std::pow(bias + alpha / static_cast<double>(size) * squares, beta);
  }
  return {y};
}

Arrays lp_normalization(const Call& call) {
  Array y = call.input(0);
  const std::int64_t axis = positive_axis(call.integer("axis", -1), y.rank());
  const bool first = call.integer("p", 2) == 1;
  for_each_line(y, product(y.dims, 0, axis), y.dims[axis], product(y.dims, axis + 1, y.rank()),
                [&](Line& line) {
                  double norm = 0;
                  for (const double v : line) norm += first ? std::abs(v) : v * v;
                  if (!first) norm = std::sqrt(norm);
                  for (double& v : line) v = norm == 0 ? 0 : v / norm;
                });
  return {y};
}

Arrays mean_variance(const Call& call) {
  Array y = call.input(0);
  const std::vector<std::int64_t> axes = call.list("axes", {0, 2, 3});
  Dims group_dims = y.dims;
  for (const std::int64_t axis : axes) group_dims[positive_axis(axis, y.rank())] = 1;
  std::vector<Line> groups(static_cast<std::size_t>(element_count(group_dims)));
  std::size_t position = 0;
  for_each_index(y.dims, [&](const Dims& index) {
    groups[offset_broadcast(group_dims, index)].push_back(y.values[position++]);
  });
  position = 0;
  for_each_index(y.dims, [&](const Dims& index) {
    const Moments m = moments_of(groups[offset_broadcast(group_dims, index)]);
    double& v = y.values[position++];
    v = (v - m.mean) / (std::sqrt(m.variance) + 1e-9);
  });
  return {y};
}

const Registration kSoftmax({"Softmax", "LogSoftmax", "Hardmax"}, softmax);
const Registration kBatch({"BatchNormalization"}, batch_normalization);
const Registration kGroup({"InstanceNormalization", "GroupNormalization"}, group_normalization);
const Registration kLayer({"LayerNormalization", "RMSNormalization"}, layer_normalization);
const Registration kLocal({"LRN"}, local_response);
const Registration kLp({"LpNormalization"}, lp_normalization);
const Registration kMeanVariance({"MeanVarianceNormalization"}, mean_variance);

}  // namespace
}  // namespace backplane::reference
