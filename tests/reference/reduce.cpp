// Reductions, ArgMax and ArgMin, CumSum.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

/// One output element from all that are reduced into it.
double reduce_values(const std::string& op, const std::vector<double>& values) {
  double sum = 0;
  double product_of = 1;
  double squares = 0;
  double absolute = 0;
  double most = -std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  for (const double v : values) {
    sum += v;
    product_of *= v;
    squares += v * v;
    absolute += std::abs(v);
    most = std::isnan(v) || std::isnan(most) ? std::nan("") : std::fmax(most, v);
    least = std::isnan(v) || std::isnan(least) ? std::nan("") : std::fmin(least, v);
  }
  if (op == "ReduceSum") return sum;
  if (op == "ReduceMean") return sum / static_cast<double>(values.size());
  if (op == "ReduceMax") return most;
  if (op == "ReduceMin") return least;
  if (op == "ReduceProd") return product_of;
  if (op == "ReduceL1") return absolute;
  if (op == "ReduceL2") return std::sqrt(squares);
  if (op == "ReduceSumSquare") return squares;
  if (op == "ReduceLogSum") return std::log(sum);
  const double shift = std::isfinite(most) ? most : 0;  // ReduceLogSumExp
  double exponentials = 0;
  for (const double v : values) exponentials += std::exp(v - shift);
  return shift + std::log(exponentials);
}

/// What an empty reduction of Max or Min gives: the end of the type's range.
double empty_value(const std::string& op, ElementType type) {
  const bool greatest = op == "ReduceMin";
  if (type == ElementType::Bool) return greatest ? 1 : 0;
  if (!is_float(type)) return greatest ? highest(type) : lowest(type);
  const double infinity = std::numeric_limits<double>::infinity();
  return greatest ? infinity : -infinity;
}

Arrays reduce(const Call& call) {
  const Array& x = call.input(0);
  const std::string& op = call.node.op_type;
  std::vector<std::int64_t> axes = call.list("axes");
  if (call.optional(1) != nullptr) axes = call.integers(1);
  const bool keep = call.integer("keepdims", 1) != 0;
  std::vector<bool> reduced(x.dims.size(), axes.empty());
  if (axes.empty() && call.integer("noop_with_empty_axes", 0) != 0) {
    reduced.assign(x.dims.size(), false);
  }
  for (const std::int64_t axis : axes) reduced[positive_axis(axis, x.rank())] = true;

  Dims kept_dims = x.dims;
  Dims dims;
  for (std::size_t axis = 0; axis < x.dims.size(); ++axis) {
    if (reduced[axis]) kept_dims[axis] = 1;
    if (!reduced[axis] || keep) dims.push_back(kept_dims[axis]);
  }
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(element_count(kept_dims)));
  std::size_t position = 0;
  for_each_index(x.dims, [&](const Dims& index) {
    groups[offset_broadcast(kept_dims, index)].push_back(x.values[position++]);
  });
  Array y{x.type, dims, {}};
  const bool extreme = op == "ReduceMax" || op == "ReduceMin";
  for (const std::vector<double>& group : groups) {
    y.values.push_back(group.empty() && extreme ? empty_value(op, x.type)
                                                : reduce_values(op, group));
  }
  return {y};
}

Arrays arg_extreme(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t axis = positive_axis(call.integer("axis", 0), x.rank());
  const bool keep = call.integer("keepdims", 1) != 0;
  const bool last = call.integer("select_last_index", 0) != 0;
  const double sign = call.node.op_type == "ArgMax" ? 1 : -1;
  Dims outer = x.dims;
  outer[axis] = 1;
  Array y = filled(ElementType::Int64, outer);
  std::size_t position = 0;
  for_each_index(outer, [&](const Dims& index) {
    Dims at = index;
    double best = 0;
    for (at[axis] = 0; at[axis] < x.dims[axis]; ++at[axis]) {
      const double value = sign * x.values[offset_of(x.dims, at)];
      if (at[axis] == 0 || value > best || (last && value == best)) {
        best = value;
        y.values[position] = static_cast<double>(at[axis]);
      }
    }
    ++position;
  });
  if (!keep) y.dims.erase(y.dims.begin() + axis);
  return {y};
}

Arrays cumulative_sum(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t axis = positive_axis(call.integers(1)[0], x.rank());
  const bool exclusive = call.integer("exclusive", 0) != 0;
  const bool reverse = call.integer("reverse", 0) != 0;
  Array y = x;
  std::size_t position = 0;
  for_each_index(x.dims, [&](const Dims& index) {
    Dims at = index;
    double sum = 0;
    for (at[axis] = 0; at[axis] < x.dims[axis]; ++at[axis]) {
      const std::int64_t distance = reverse ? at[axis] - index[axis] : index[axis] - at[axis];
      if (distance > 0 || (distance == 0 && !exclusive)) sum += x.values[offset_of(x.dims, at)];
    }
    y.values[position++] = sum;
  });
  return {y};
}

const Registration kReduce({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd",
                            "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
                            "ReduceLogSumExp"},
                           reduce);
const Registration kArg({"ArgMax", "ArgMin"}, arg_extreme);
const Registration kCumSum({"CumSum"}, cumulative_sum);

}  // namespace
}  // namespace backplane::reference
