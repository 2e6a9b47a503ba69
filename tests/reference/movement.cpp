// Operators that put elements elsewhere by a rule of indices: Transpose, Concat, Split, Slice, Pad,
// Tile, Expand ...
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

/// The array of `dims` whose element at an index is x at source(index).
Array gathered(const Array& x, const Dims& dims,
               const std::function<Dims(const Dims& index)>& source) {
  Array y{x.type, dims, {}};
  for_each_index(dims, [&](const Dims& index) {
    y.values.push_back(x.values[offset_of(x.dims, source(index))]);
  });
  return y;
}

Arrays transpose(const Call& call) {
  const Array& x = call.input(0);
  Dims perm = call.list("perm");
  if (perm.empty()) {
    for (std::int64_t axis = x.rank() - 1; axis >= 0; --axis) perm.push_back(axis);
  }
  Dims dims;
  for (const std::int64_t axis : perm) dims.push_back(x.dims[axis]);
  return {gathered(x, dims, [&](const Dims& index) {
    Dims from(index.size());
    for (std::size_t axis = 0; axis < perm.size(); ++axis) from[perm[axis]] = index[axis];
    return from;
  })};
}

Arrays concat(const Call& call) {
  const Array& first = call.input(0);
  const std::int64_t axis = positive_axis(call.integer("axis", 1), first.rank());
  Dims dims = first.dims;
  dims[axis] = 0;
  for (const Array* x : call.inputs) dims[axis] += x->dims[axis];
  Array y{first.type, dims, {}};
  for_each_index(dims, [&](Dims index) {
    std::size_t which = 0;
    while (index[axis] >= call.inputs[which]->dims[axis])
      index[axis] -= call.inputs[which++]->dims[axis];
    y.values.push_back(call.inputs[which]->values[offset_of(call.inputs[which]->dims, index)]);
  });
  return {y};
}

/// Sizes: an attribute before opset 13, then an input; else equal parts, the last one smaller
/// (opset 18).
Arrays split(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t axis = positive_axis(call.integer("axis", 0), x.rank());
  Dims sizes = call.optional(1) != nullptr ? call.integers(1) : call.list("split");
  if (sizes.empty()) {
    const auto parts = static_cast<std::int64_t>(call.output_count);
    const std::int64_t part = (x.dims[axis] + parts - 1) / parts;
    std::int64_t left = x.dims[axis];
    for (std::int64_t i = 0; i < parts; ++i) {
      sizes.push_back(std::min(part, left));
      left -= sizes.back();
    }
  }
  Arrays results;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    Dims dims = x.dims;
    dims[axis] = size;
    results.push_back(gathered(x, dims, [&](Dims index) {
      index[axis] += begin;
      return index;
    }));
    begin += size;
  }
  return results;
}

/// How many elements of an axis of `size` lie between `begin` and `end`.
std::int64_t count_steps(std::int64_t begin, std::int64_t end, std::int64_t step,
                         std::int64_t size) {
  std::int64_t count = 0;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end; at += step) {
    ++count;
    // A step may be as large as an int64 is.
    if (step >= size || step <= -size) break;
  }
  return count;
}

/// Attributes before opset 10, inputs from then on.
Arrays slice(const Call& call) {
  const Array& x = call.input(0);
  const bool by_input = call.optional(1) != nullptr;
  const Dims starts = by_input ? call.integers(1) : call.list("starts");
  const Dims ends = by_input ? call.integers(2) : call.list("ends");
  Dims axes = call.optional(3) != nullptr ? call.integers(3) : call.list("axes");
  for (std::size_t i = axes.size(); i < starts.size() && !call.has("axes") && !call.optional(3);
       ++i) {
    axes.push_back(static_cast<std::int64_t>(i));
  }
  const Dims steps = call.optional(4) != nullptr ? call.integers(4) : Dims(starts.size(), 1);
  Dims dims = x.dims;
  Dims begin(x.dims.size(), 0);
  Dims step(x.dims.size(), 1);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t axis = positive_axis(axes[i], x.rank());
    const std::int64_t size = x.dims[axis];
    step[axis] = steps[i];
    const std::int64_t high = steps[i] > 0 ? size : size - 1;
    // Backwards a start before the first element is the first one, other than in Python.
    const auto bound = [&](std::int64_t at, std::int64_t low) {
      return std::min(std::max(at < 0 ? at + size : at, low), high);
    };
    begin[axis] = bound(starts[i], 0);
    const std::int64_t end = bound(ends[i], steps[i] > 0 ? 0 : -1);
    dims[axis] = count_steps(begin[axis], end, steps[i], size);
  }
  return {gathered(x, dims, [&](Dims index) {
    for (std::size_t axis = 0; axis < index.size(); ++axis) {
      index[axis] = begin[axis] + (index[axis] == 0 ? 0 : index[axis] * step[axis]);
    }
    return index;
  })};
}

/// Where index `at` of a padded axis comes from in an axis of `size`; -1: from the constant.
std::int64_t pad_source(std::int64_t at, std::int64_t size, const std::string& mode) {
  if (at >= 0 && at < size) return at;
  if (mode == "edge") return std::clamp<std::int64_t>(at, 0, size - 1);
  if (mode == "wrap") return ((at % size) + size) % size;
  if (mode != "reflect") return -1;
  while (at < 0 || at >= size) {
    if (size == 1) return 0;
    at = at < 0 ? -at : 2 * (size - 1) - at;
  }
  return at;
}

Arrays pad(const Call& call) {
  const Array& x = call.input(0);
  const std::string mode = call.text("mode", "constant");
  const Dims pads = call.optional(1) != nullptr ? call.integers(1) : call.list("pads");
  double value = call.number("value", 0);
  if (const Array* input = call.optional(2)) value = input->values[0];
  Dims axes;
  for (std::int64_t axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
  if (call.optional(3) != nullptr) axes = call.integers(3);
  Dims before(x.dims.size(), 0);
  Dims dims = x.dims;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = positive_axis(axes[i], x.rank());
    before[axis] = pads[i];
    dims[axis] += pads[i] + pads[i + axes.size()];
  }
  Array y{x.type, dims, {}};
  for_each_index(dims, [&](Dims index) {
    bool inside = true;
    for (std::size_t axis = 0; axis < index.size(); ++axis) {
      index[axis] = pad_source(index[axis] - before[axis], x.dims[axis], mode);
      inside = inside && index[axis] >= 0;
    }
    y.values.push_back(inside ? x.values[offset_of(x.dims, index)] : value);
  });
  return {y};
}

Arrays tile(const Call& call) {
  const Array& x = call.input(0);
  const Dims repeats = call.integers(1);
  Dims dims = x.dims;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) dims[axis] *= repeats[axis];
  return {gathered(x, dims, [&](Dims index) {
    for (std::size_t axis = 0; axis < index.size(); ++axis) index[axis] %= x.dims[axis];
    return index;
  })};
}

Arrays expand(const Call& call) {
  const Array& x = call.input(0);
  Array y = filled(x.type, broadcast(x.dims, call.integers(1)));
  std::size_t position = 0;
  for_each_index(y.dims, [&](const Dims& index) {
    y.values[position++] = x.values[offset_broadcast(x.dims, index)];
  });
  return {y};
}

Arrays depth_to_space(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t b = call.integer("blocksize", 1);
  const bool crd = call.text("mode", "DCR") == "CRD";
  const std::int64_t channels = x.dims[1] / (b * b);
  return {gathered(x, {x.dims[0], channels, x.dims[2] * b, x.dims[3] * b}, [&](const Dims& i) {
    const std::int64_t block = i[2] % b * b + i[3] % b;
    const std::int64_t c = crd ? i[1] * b * b + block : block * channels + i[1];
    return Dims{i[0], c, i[2] / b, i[3] / b};
  })};
}

Arrays space_to_depth(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t b = call.integer("blocksize", 1);
  return {
      gathered(x, {x.dims[0], x.dims[1] * b * b, x.dims[2] / b, x.dims[3] / b}, [&](const Dims& i) {
        const std::int64_t block = i[1] / x.dims[1];
        return Dims{i[0], i[1] % x.dims[1], i[2] * b + block / b, i[3] * b + block % b};
      })};
}

Arrays trilu(const Call& call) {
  Array y = call.input(0);
  const std::int64_t k = call.optional(1) != nullptr ? call.integers(1)[0] : 0;
  const bool upper = call.integer("upper", 1) != 0;
  const std::int64_t rows = y.dims[y.rank() - 2];
  const std::int64_t columns = y.dims[y.rank() - 1];
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const std::int64_t distance = i % columns - i / columns % rows;
    if (upper ? distance < k : distance > k) y.values[i] = 0;
  }
  return {y};
}

Arrays reverse_sequence(const Call& call) {
  const Array& x = call.input(0);
  const Dims lengths = call.integers(1);
  const std::int64_t batch = call.integer("batch_axis", 1);
  const std::int64_t time = call.integer("time_axis", 0);
  return {gathered(x, x.dims, [&](Dims index) {
    const std::int64_t length = lengths[index[batch]];
    if (index[time] < length) index[time] = length - 1 - index[time];
    return index;
  })};
}

const Registration kTranspose({"Transpose"}, transpose);
const Registration kConcat({"Concat"}, concat);
const Registration kSplit({"Split"}, split);
const Registration kSlice({"Slice"}, slice);
const Registration kPad({"Pad"}, pad);
const Registration kTile({"Tile"}, tile);
const Registration kExpand({"Expand"}, expand);
const Registration kDepthToSpace({"DepthToSpace"}, depth_to_space);
const Registration kSpaceToDepth({"SpaceToDepth"}, space_to_depth);
const Registration kTrilu({"Trilu"}, trilu);
const Registration kReverseSequence({"ReverseSequence"}, reverse_sequence);

}  // namespace
}  // namespace backplane::reference
