// Operators that move elements. https://onnx.ai/onnx/operators/
#include <algorithm>

#include "tools/backplane/check/reference_book.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

Tensor renamed(Tensor x, Dims dims) {
  x.dims = std::move(dims);
  return x;
}

std::int64_t rank_of(const Tensor& x) { return static_cast<std::int64_t>(x.dims.size()); }
std::size_t axis_of(std::int64_t axis, const Tensor& x) {
  return static_cast<std::size_t>(from_start(axis, rank_of(x)));
}

std::optional<Tensor> reshaped(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  Dims dims = integers_of(node, 1);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && i < x.dims.size()) dims[i] = x.dims[i];
  }
  const auto open = std::find(dims.begin(), dims.end(), -1);
  if (open != dims.end()) {
    *open = 1;
    if (product(dims) == 0) return std::nullopt;
    *open = x.size() / product(dims);
  }
  return renamed(x, dims);
}

std::optional<Tensor> flattened(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const std::int64_t axis = from_start(attribute_or(node, "axis", std::int64_t{1}), rank_of(x));
  const Dims front(x.dims.begin(), x.dims.begin() + axis),
      back(x.dims.begin() + axis, x.dims.end());
  return renamed(x, {product(front), product(back)});
}

std::optional<Tensor> squeezed(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const auto axes = integers_of(node, "axes", 1);
  Dims dims;
  for (std::int64_t i = 0; i < rank_of(x); ++i) {
    const std::int64_t dim = x.dims[static_cast<std::size_t>(i)];
    const bool is_named = axes && (std::count(axes->begin(), axes->end(), i) > 0 ||
                                   std::count(axes->begin(), axes->end(), i - rank_of(x)) > 0);
    if (axes ? !is_named : dim != 1) dims.push_back(dim);
  }
  return renamed(x, dims);
}

std::optional<Tensor> unsqueezed(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  Ints axes = integers_of(node, "axes", 1).value();
  const auto rank = rank_of(x) + static_cast<std::int64_t>(axes.size());
  for (std::int64_t& axis : axes) axis = from_start(axis, rank);
  std::sort(axes.begin(), axes.end());
  Dims dims = x.dims;
  for (const std::int64_t axis : axes) dims.insert(dims.begin() + axis, 1);
  return renamed(x, dims);
}

std::optional<Tensor> concatenated(const NodeCase& node) {
  const Tensor& first = input_of(node, 0);
  const std::size_t axis = axis_of(attribute_or(node, "axis", std::int64_t{1}), first);
  Dims dims = first.dims;
  dims[axis] = 0;
  for (const NodeCase::Input& input : node.inputs) dims[axis] += input.tensor.dims[axis];
  Tensor result = make_tensor(first.dtype, dims);
  std::int64_t before = 0;
  for (const NodeCase::Input& input : node.inputs) {
    for (std::int64_t i = 0; i < input.tensor.size(); ++i) {
      Dims place = place_of(i, input.tensor.dims);
      place[axis] += before;
      result.set(index_of(place, dims), input.tensor.at(i));
    }
    before += input.tensor.dims[axis];
  }
  return result;
}

std::optional<std::vector<Tensor>> split_parts(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const std::size_t axis = axis_of(attribute_or(node, "axis", std::int64_t{0}), x);
  const auto sizes = integers_of(node, "split", 1);
  if (!sizes) return std::nullopt;
  std::vector<Tensor> results;
  std::int64_t before = 0;
  for (const std::int64_t size : *sizes) {
    Dims dims = x.dims;
    dims[axis] = size;
    results.push_back(moved(x, dims, [&](Dims place) {
      place[axis] += before;
      return index_of(place, x.dims);
    }));
    before += size;
  }
  return results;
}

std::optional<Tensor> sliced(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const Ints starts = integers_of(node, "starts", 1).value(),
             ends = integers_of(node, "ends", 2).value();
  Ints axes = integers_of(node, "axes", 3).value_or(Ints());
  for (std::size_t i = axes.size(); i < starts.size(); ++i)
    axes.push_back(static_cast<std::int64_t>(i));
  const Ints steps = has_input(node, 4) ? integers_of(node, 4) : Ints(starts.size(), 1);
  Dims dims = x.dims, first(x.dims.size(), 0), step(x.dims.size(), 1);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t axis = axis_of(axes[i], x);
    const std::int64_t count = x.dims[axis], way = steps[i];
    const std::int64_t low = way > 0 ? 0 : -1, high = way > 0 ? count : count - 1;
    first[axis] = std::clamp(from_start(starts[i], count), std::int64_t{0}, high);
    const std::int64_t last = std::clamp(from_start(ends[i], count), low, high);
    const std::int64_t reach = way > 0 ? last - first[axis] : first[axis] - last;
    dims[axis] = std::max<std::int64_t>(0, (reach + std::abs(way) - 1) / std::abs(way));
    step[axis] = way;
  }
  return moved(x, dims, [&](Dims place) {
    for (std::size_t axis = 0; axis < place.size(); ++axis)
      place[axis] = first[axis] + place[axis] * step[axis];
    return index_of(place, x.dims);
  });
}

std::optional<Tensor> expanded(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const Dims dims = broadcast_dims(x.dims, integers_of(node, 1));
  return moved(x, dims, [&](const Dims& place) {
    return broadcast_source(index_of(place, dims), dims, x.dims);
  });
}

std::optional<Tensor> tiled(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  Dims dims = integers_of(node, 1);
  for (std::size_t axis = 0; axis < dims.size(); ++axis) dims[axis] *= x.dims[axis];
  return moved(x, dims, [&](Dims place) {
    for (std::size_t axis = 0; axis < place.size(); ++axis) place[axis] %= x.dims[axis];
    return index_of(place, x.dims);
  });
}

std::optional<Tensor> padded(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const std::string mode = attribute_or(node, "mode", std::string("constant"));
  const Ints pads = integers_of(node, "pads", 1).value();
  if (has_input(node, 2) || has_input(node, 3) || mode == "wrap") return std::nullopt;
  const std::size_t rank = x.dims.size();
  Dims dims = x.dims;
  for (std::size_t axis = 0; axis < rank; ++axis) dims[axis] += pads[axis] + pads[axis + rank];
  return moved(x, dims, [&](Dims place) -> std::int64_t {
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const std::int64_t last = x.dims[axis] - 1;
      std::int64_t at = place[axis] - pads[axis];
      if (mode == "constant" && (at < 0 || at > last)) return -1;
      if (mode == "reflect") at = at < 0 ? -at : at > last ? 2 * last - at : at;
      place[axis] = std::clamp(at, std::int64_t{0}, last);
    }
    return index_of(place, x.dims);
  });
}

std::optional<Tensor> gathered(const NodeCase& node) {
  const Tensor &x = input_of(node, 0), &indices = input_of(node, 1);
  const std::size_t axis = axis_of(attribute_or(node, "axis", std::int64_t{0}), x);
  Dims dims(x.dims.begin(), x.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), x.dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.dims.end());
  const auto first = static_cast<std::ptrdiff_t>(axis),
             behind = first + static_cast<std::ptrdiff_t>(indices.dims.size());
  return moved(x, dims, [&](const Dims& place) {
    const Dims at(place.begin() + first, place.begin() + behind);
    Dims from(place.begin(), place.begin() + first);
    from.push_back(from_start(static_cast<std::int64_t>(indices.at(index_of(at, indices.dims))),
                              x.dims[axis]));
    from.insert(from.end(), place.begin() + behind, place.end());
    return index_of(from, x.dims);
  });
}

std::optional<Tensor> gathered_elements(const NodeCase& node) {
  const Tensor &x = input_of(node, 0), &indices = input_of(node, 1);
  const std::size_t axis = axis_of(attribute_or(node, "axis", std::int64_t{0}), x);
  return moved(x, indices.dims, [&](Dims place) {
    place[axis] = from_start(static_cast<std::int64_t>(indices.at(index_of(place, indices.dims))),
                             x.dims[axis]);
    return index_of(place, x.dims);
  });
}

std::optional<Tensor> to_depth(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const std::int64_t block = attribute_or(node, "blocksize", std::int64_t{1}), channels = x.dims[1];
  return moved(x, {x.dims[0], channels * block * block, x.dims[2] / block, x.dims[3] / block},
               [&](const Dims& place) {
                 const std::int64_t part = place[1] / channels;
                 return index_of({place[0], place[1] % channels, place[2] * block + part / block,
                                  place[3] * block + part % block},
                                 x.dims);
               });
}

std::optional<Tensor> to_space(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const std::int64_t block = attribute_or(node, "blocksize", std::int64_t{1});
  const std::int64_t channels = x.dims[1] / block / block;
  const bool by_columns = attribute_or(node, "mode", std::string("DCR")) == "CRD";
  return moved(x, {x.dims[0], channels, x.dims[2] * block, x.dims[3] * block},
               [&](const Dims& place) {
                 const std::int64_t part = place[2] % block * block + place[3] % block;
                 const std::int64_t channel =
                     by_columns ? place[1] * block * block + part : part * channels + place[1];
                 return index_of({place[0], channel, place[2] / block, place[3] / block}, x.dims);
               });
}

std::optional<Tensor> triangular(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const bool upper = attribute_or(node, "upper", std::int64_t{1}) != 0;
  const std::int64_t k = has_input(node, 1) ? integers_of(node, 1).at(0) : 0;
  return moved(x, x.dims, [&](const Dims& place) -> std::int64_t {
    const std::int64_t beside = place[place.size() - 1] - place[place.size() - 2];
    const bool stays = upper ? beside >= k : beside <= k;
    return stays ? index_of(place, x.dims) : -1;
  });
}

std::optional<Tensor> dims_of(const NodeCase& node) {
  if (node.attributes.empty()) return int64s(input_of(node, 0).dims);
  return std::nullopt;
}

std::optional<Tensor> count_of(const NodeCase& node) {
  return int64_scalar(input_of(node, 0).size());
}

std::optional<Tensor> places_of_others_than_zero(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  std::vector<Dims> places;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    if (x.at(i) != 0) places.push_back(place_of(i, x.dims));
  }
  const auto count = static_cast<std::int64_t>(places.size());
  Tensor result = make_tensor(BP_INT64, {rank_of(x), count});
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.set(
        i, static_cast<double>(
               places[static_cast<std::size_t>(i % count)][static_cast<std::size_t>(i / count)]));
  return result;
}

std::optional<Tensor> cropped_and_padded(const NodeCase& node) {
  if (!node.attributes.empty()) return std::nullopt;
  const Tensor& x = input_of(node, 0);
  const Dims dims = integers_of(node, 1);
  return moved(x, dims, [&](Dims place) -> std::int64_t {
    for (std::size_t axis = 0; axis < place.size(); ++axis) {
      const std::int64_t more = dims[axis] - x.dims[axis];
      place[axis] -= more > 0 ? more / 2 : -(-more / 2);
      if (place[axis] < 0 || place[axis] >= x.dims[axis]) return -1;
    }
    return index_of(place, x.dims);
  });
}

}  // namespace

void add_movement_references(ReferenceBook& book) {
  book["Reshape"] = one_output(reshaped);
  book["Flatten"] = one_output(flattened);
  book["Squeeze"] = one_output(squeezed);
  book["Unsqueeze"] = one_output(unsqueezed);
  book["Concat"] = one_output(concatenated);
  book["Split"] = split_parts;
  book["Slice"] = one_output(sliced);
  book["Expand"] = one_output(expanded);
  book["Tile"] = one_output(tiled);
  book["Pad"] = one_output(padded);
  book["Gather"] = one_output(gathered);
  book["GatherElements"] = one_output(gathered_elements);
  book["SpaceToDepth"] = one_output(to_depth);
  book["DepthToSpace"] = one_output(to_space);
  book["Trilu"] = one_output(triangular);
  book["Shape"] = one_output(dims_of);
  book["Size"] = one_output(count_of);
  book["CenterCropPad"] = one_output(cropped_and_padded);
  book["NonZero"] = one_output(places_of_others_than_zero);
}

}  // namespace backplane::cli::check
