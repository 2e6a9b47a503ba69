// Operators whose indices are data: Gather and Scatter, OneHot, Compress, NonZero, TopK.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

Dims joined(const Dims& a, const Dims& b, const Dims& c) {
  Dims all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  return all;
}

Arrays gather(const Call& call) {
  const Array& x = call.input(0);
  const Array& indices = call.input(1);
  const std::int64_t axis = positive_axis(call.integer("axis", 0), x.rank());
  const Dims outer(x.dims.begin(), x.dims.begin() + axis);
  const Dims inner(x.dims.begin() + axis + 1, x.dims.end());
  Array y{x.type, joined(outer, indices.dims, inner), {}};
  const std::int64_t inner_size = element_count(inner);
  for (std::int64_t o = 0; o < element_count(outer); ++o) {
    for (const std::int64_t index : call.integers(1)) {
      const std::int64_t row = o * x.dims[axis] + positive_axis(index, x.dims[axis]);
      for (std::int64_t i = 0; i < inner_size; ++i)
        y.values.push_back(x.values[row * inner_size + i]);
    }
  }
  return {y};
}

Arrays gather_elements(const Call& call) {
  const Array& x = call.input(0);
  const Array& indices = call.input(1);
  const std::int64_t axis = positive_axis(call.integer("axis", 0), x.rank());
  const Dims list = call.integers(1);
  Array y{x.type, indices.dims, {}};
  for_each_index(indices.dims, [&](Dims at) {
    at[axis] = positive_axis(list[y.values.size()], x.dims[axis]);
    y.values.push_back(x.values[offset_of(x.dims, at)]);
  });
  return {y};
}

/// The start in `dims` of what the n-th tuple of an indices array, of `width` numbers, points at
/// after `batch` axes.
Dims tuple_at(const Dims& list, std::int64_t n, std::int64_t width, const Dims& dims,
              std::int64_t batch) {
  Dims place;
  for (std::int64_t k = 0; k < width; ++k) {
    place.push_back(positive_axis(list[n * width + k], dims[batch + k]));
  }
  return place;
}

Arrays gather_nd(const Call& call) {
  const Array& x = call.input(0);
  const Array& indices = call.input(1);
  const std::int64_t batch = call.integer("batch_dims", 0);
  const std::int64_t width = indices.dims.back();
  const Dims list = call.integers(1);
  const Dims tuples(indices.dims.begin(), indices.dims.end() - 1);
  const Dims rest(x.dims.begin() + batch + width, x.dims.end());
  Array y{x.type, joined(tuples, rest, {}), {}};
  std::int64_t n = 0;
  for_each_index(tuples, [&](const Dims& tuple) {
    const Dims front(tuple.begin(), tuple.begin() + batch);
    const Dims place = tuple_at(list, n++, width, x.dims, batch);
    for_each_index(rest, [&](const Dims& inner) {
      y.values.push_back(x.values[offset_of(x.dims, joined(front, place, inner))]);
    });
  });
  return {y};
}

void combine(double& target, double value, const std::string& reduction) {
  if (reduction == "add") {
    target += value;
  } else if (reduction == "mul") {
    target *= value;
  } else if (reduction == "max") {
    target = std::fmax(target, value);
  } else if (reduction == "min") {
    target = std::fmin(target, value);
  } else {
    target = value;
  }
}

Arrays scatter_elements(const Call& call) {
  Array y = call.input(0);
  const Array& updates = call.input(2);
  const std::int64_t axis = positive_axis(call.integer("axis", 0), y.rank());
  const Dims list = call.integers(1);
  std::size_t position = 0;
  for_each_index(updates.dims, [&](Dims at) {
    at[axis] = positive_axis(list[position], y.dims[axis]);
    combine(y.values[offset_of(y.dims, at)], updates.values[position],
            call.text("reduction", "none"));
    ++position;
  });
  return {y};
}

Arrays scatter_nd(const Call& call) {
  Array y = call.input(0);
  const Array& indices = call.input(1);
  const Array& updates = call.input(2);
  const std::int64_t width = indices.dims.back();
  const Dims list = call.integers(1);
  const Dims rest(y.dims.begin() + width, y.dims.end());
  const std::int64_t tuples = product(indices.dims, 0, indices.rank() - 1);
  std::size_t position = 0;
  for (std::int64_t n = 0; n < tuples; ++n) {
    const Dims place = tuple_at(list, n, width, y.dims, 0);
    for_each_index(rest, [&](const Dims& inner) {
      combine(y.values[offset_of(y.dims, joined(place, inner, {}))], updates.values[position++],
              call.text("reduction", "none"));
    });
  }
  return {y};
}

Arrays one_hot(const Call& call) {
  const Array& indices = call.input(0);
  const auto depth = static_cast<std::int64_t>(call.input(1).values[0]);
  const Array& values = call.input(2);
  const std::int64_t axis = positive_axis(call.integer("axis", -1), indices.rank() + 1);
  Dims dims = indices.dims;
  dims.insert(dims.begin() + axis, depth);
  Array y{values.type, dims, {}};
  for_each_index(dims, [&](const Dims& index) {
    Dims from = index;
    from.erase(from.begin() + axis);
    const auto hot = static_cast<std::int64_t>(indices.values[offset_of(indices.dims, from)]);
    y.values.push_back(values.values[positive_axis(hot, depth) == index[axis] ? 1 : 0]);
  });
  return {y};
}

Arrays compress(const Call& call) {
  Array x = call.input(0);
  if (!call.has("axis")) x.dims = {x.size()};
  const std::int64_t axis = positive_axis(call.integer("axis", 0), x.rank());
  Dims chosen;
  const std::vector<double>& condition = call.input(1).values;
  for (std::size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) chosen.push_back(static_cast<std::int64_t>(i));
  }
  Array y{x.type, x.dims, {}};
  y.dims[axis] = static_cast<std::int64_t>(chosen.size());
  for_each_index(y.dims, [&](Dims index) {
    index[axis] = chosen[index[axis]];
    y.values.push_back(x.values[offset_of(x.dims, index)]);
  });
  return {y};
}

Arrays non_zero(const Call& call) {
  const Array& x = call.input(0);
  std::vector<Dims> found;
  std::size_t position = 0;
  for_each_index(x.dims, [&](const Dims& index) {
    if (x.values[position++] != 0) found.push_back(index);
  });
  Array y{ElementType::Int64, {x.rank(), static_cast<std::int64_t>(found.size())}, {}};
  for (std::int64_t axis = 0; axis < x.rank(); ++axis) {
    for (const Dims& index : found) y.values.push_back(static_cast<double>(index[axis]));
  }
  return {y};
}

/// Equal elements in the order of their indices; NaN is not asked for.
Arrays top_k(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t axis = positive_axis(call.integer("axis", -1), x.rank());
  const std::int64_t k = call.optional(1) != nullptr ? call.integers(1)[0] : call.integer("k", 1);
  const bool largest = call.integer("largest", 1) != 0;
  Dims lines = x.dims;
  lines[axis] = 1;
  Dims dims = x.dims;
  dims[axis] = k;
  Array values = filled(x.type, dims);
  Array indices = filled(ElementType::Int64, dims);
  for_each_index(lines, [&](Dims at) {
    std::vector<double> line;
    for (at[axis] = 0; at[axis] < x.dims[axis]; ++at[axis])
      line.push_back(x.values[offset_of(x.dims, at)]);
    std::vector<std::int64_t> order(line.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return largest ? line[a] > line[b] : line[a] < line[b];
    });
    for (at[axis] = 0; at[axis] < k; ++at[axis]) {
      const std::int64_t place = offset_of(dims, at);
      values.values[place] = line[order[at[axis]]];
      indices.values[place] = static_cast<double>(order[at[axis]]);
    }
  });
  return {values, indices};
}

const Registration kGather({"Gather"}, gather);
const Registration kGatherElements({"GatherElements"}, gather_elements);
const Registration kGatherNd({"GatherND"}, gather_nd);
Arrays tensor_scatter(const Call& call) {
  const Array& update = call.input(1);
  Array y = call.input(0);
  const std::int64_t axis = positive_axis(call.integer("axis", -2), y.rank());
  const bool goes_around = call.text("mode", "linear") == "circular";
  const Dims starts = call.optional(2) == nullptr ? Dims(y.dims[0], 0) : call.integers(2);
  std::size_t position = 0;
  for_each_index(update.dims, [&](const Dims& index) {
    Dims at = index;
    at[axis] += starts[index[0]];
    if (goes_around) at[axis] %= y.dims[axis];
    y.values[offset_of(y.dims, at)] = update.values[position++];
  });
  return {y};
}

const Registration kScatterElements({"ScatterElements", "Scatter"}, scatter_elements);
const Registration kScatterNd({"ScatterND"}, scatter_nd);
const Registration kTensorScatter({"TensorScatter"}, tensor_scatter);
const Registration kOneHot({"OneHot"}, one_hot);
const Registration kCompress({"Compress"}, compress);
const Registration kNonZero({"NonZero"}, non_zero);
const Registration kTopK({"TopK"}, top_k);

}  // namespace
}  // namespace backplane::reference
