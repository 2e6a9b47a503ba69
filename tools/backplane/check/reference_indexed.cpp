// Operators that are told places. https://onnx.ai/onnx/operators/
#include <algorithm>
#include <map>

#include "tools/backplane/check/reference_book.hpp"

namespace backplane::cli::check {
namespace {

std::int64_t whole(const Tensor& tensor, std::int64_t index) {
  return static_cast<std::int64_t>(tensor.at(index));
}
std::size_t axis_of(const NodeCase& node, const Tensor& x, std::int64_t otherwise) {
  return static_cast<std::size_t>(
      from_start(attribute_or(node, "axis", otherwise), static_cast<std::int64_t>(x.dims.size())));
}
bool has_other_than(const NodeCase& node, const std::vector<std::string>& known) {
  return std::any_of(node.attributes.begin(), node.attributes.end(), [&](const auto& attribute) {
    return std::find(known.begin(), known.end(), attribute.first) == known.end();
  });
}

/// The first place that tuple `row` of indices names.
Dims named_place(const Tensor& indices, std::int64_t row, const Tensor& x) {
  Dims place(x.dims.size(), 0);
  const std::int64_t width = indices.dims.back();
  for (std::int64_t i = 0; i < width; ++i) {
    const auto axis = static_cast<std::size_t>(i);
    place[axis] = from_start(whole(indices, row * width + i), x.dims[axis]);
  }
  return place;
}

/// How many elements each tuple stands for.
std::int64_t slice_size(const Tensor& indices, const Tensor& x) {
  return product({x.dims.begin() + static_cast<std::ptrdiff_t>(indices.dims.back()), x.dims.end()});
}

std::optional<Tensor> gathered_slices(const NodeCase& node) {
  if (!node.attributes.empty()) return std::nullopt;
  const Tensor &x = input_of(node, 0), &indices = input_of(node, 1);
  Dims dims(indices.dims.begin(), indices.dims.end() - 1);
  dims.insert(dims.end(), x.dims.begin() + static_cast<std::ptrdiff_t>(indices.dims.back()),
              x.dims.end());
  const std::int64_t slice = slice_size(indices, x);
  Tensor result = make_tensor(x.dtype, dims);
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.set(i, x.at(index_of(named_place(indices, i / slice, x), x.dims) + i % slice));
  return result;
}

std::optional<Tensor> scattered_slices(const NodeCase& node) {
  if (!node.attributes.empty()) return std::nullopt;
  Tensor result = input_of(node, 0);
  const Tensor &indices = input_of(node, 1), &updates = input_of(node, 2);
  const std::int64_t slice = slice_size(indices, result);
  for (std::int64_t i = 0; i < updates.size(); ++i)
    result.set(index_of(named_place(indices, i / slice, result), result.dims) + i % slice,
               updates.at(i));
  return result;
}

std::optional<Tensor> scattered(const NodeCase& node) {
  if (has_other_than(node, {"axis"})) return std::nullopt;
  Tensor result = input_of(node, 0);
  const Tensor &indices = input_of(node, 1), &updates = input_of(node, 2);
  const std::size_t axis = axis_of(node, result, 0);
  for (std::int64_t i = 0; i < updates.size(); ++i) {
    Dims place = place_of(i, updates.dims);
    place[axis] = from_start(whole(indices, i), result.dims[axis]);
    result.set(index_of(place, result.dims), updates.at(i));
  }
  return result;
}

std::optional<Tensor> one_hot_rows(const NodeCase& node) {
  const Tensor &indices = input_of(node, 0), &values = input_of(node, 2);
  const std::int64_t depth = integers_of(node, 1).at(0);
  const auto axis =
      static_cast<std::ptrdiff_t>(from_start(attribute_or(node, "axis", std::int64_t{-1}),
                                             static_cast<std::int64_t>(indices.dims.size()) + 1));
  Dims dims = indices.dims;
  dims.insert(dims.begin() + axis, depth);
  Tensor result = make_tensor(values.dtype, dims);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    Dims place = place_of(i, dims);
    const std::int64_t here = place[static_cast<std::size_t>(axis)];
    place.erase(place.begin() + axis);
    const bool is_hot = from_start(whole(indices, index_of(place, indices.dims)), depth) == here;
    result.set(i, values.at(is_hot ? 1 : 0));
  }
  return result;
}

std::optional<Tensor> compressed(const NodeCase& node) {
  const Tensor &x = input_of(node, 0), &condition = input_of(node, 1);
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < condition.size(); ++i) {
    if (condition.at(i) != 0) kept.push_back(i);
  }
  const auto count = static_cast<std::int64_t>(kept.size());
  if (node.attributes.empty())
    return moved(x, {count},
                 [&](const Dims& place) { return kept[static_cast<std::size_t>(place[0])]; });
  const std::size_t axis = axis_of(node, x, 0);
  Dims dims = x.dims;
  dims[axis] = count;
  return moved(x, dims, [&](Dims place) {
    place[axis] = kept[static_cast<std::size_t>(place[axis])];
    return index_of(place, x.dims);
  });
}

std::optional<Tensor> reversed(const NodeCase& node) {
  const Tensor &x = input_of(node, 0), &lengths = input_of(node, 1);
  const auto time = static_cast<std::size_t>(attribute_or(node, "time_axis", std::int64_t{0}));
  const auto batch = static_cast<std::size_t>(attribute_or(node, "batch_axis", std::int64_t{1}));
  return moved(x, x.dims, [&](Dims place) {
    const std::int64_t length = whole(lengths, place[batch]);
    if (place[time] < length) place[time] = length - 1 - place[time];
    return index_of(place, x.dims);
  });
}

std::optional<Tensor> tensor_scattered(const NodeCase& node) {
  if (has_other_than(node, {"axis"})) return std::nullopt;
  Tensor result = input_of(node, 0);
  const Tensor &update = input_of(node, 1), &first = input_of(node, 2);
  const std::size_t axis = axis_of(node, result, -2);
  for (std::int64_t i = 0; i < update.size(); ++i) {
    Dims place = place_of(i, update.dims);
    place[axis] += whole(first, place[0]);
    result.set(index_of(place, result.dims), update.at(i));
  }
  return result;
}

/// Of all elements, sorted: the elements, where each stands first, which one each place has, how often each is there.
std::optional<std::vector<Tensor>> unique_elements(const NodeCase& node) {
  if (!node.attributes.empty() || node.outputs.size() != 4) return std::nullopt;
  const Tensor& x = input_of(node, 0);
  std::map<double, std::vector<std::int64_t>> places;
  for (std::int64_t i = 0; i < x.size(); ++i) places[x.at(i)].push_back(i);
  const auto count = static_cast<std::int64_t>(places.size());
  Tensor values = make_tensor(x.dtype, {count}), first = make_tensor(BP_INT64, {count}),
         inverse = make_tensor(BP_INT64, {x.size()}), counts = make_tensor(BP_INT64, {count});
  std::int64_t number = 0;
  for (const auto& [value, at] : places) {
    values.set(number, value);
    first.set(number, static_cast<double>(at.front()));
    counts.set(number, static_cast<double>(at.size()));
    for (const std::int64_t place : at) inverse.set(place, static_cast<double>(number));
    ++number;
  }
  return std::vector<Tensor>{values, first, inverse, counts};
}

struct Box {
  double top, left, bottom, right;
  double area() const { return (bottom - top) * (right - left); }
};

/// Its corners may be any two that lie across from each other.
Box box_at(const Tensor& boxes, std::int64_t index) {
  const auto at = [&](std::int64_t i) { return boxes.at(index * 4 + i); };
  return {std::min(at(0), at(2)), std::min(at(1), at(3)), std::max(at(0), at(2)),
          std::max(at(1), at(3))};
}

double overlap(const Box& a, const Box& b) {
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top),
               width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double both = std::max(height, 0.0) * std::max(width, 0.0);
  return both / (a.area() + b.area() - both);
}

std::optional<Tensor> best_boxes(const NodeCase& node) {
  if (!node.attributes.empty() || node.inputs.size() != 5) return std::nullopt;
  const Tensor &boxes = input_of(node, 0), &scores = input_of(node, 1);
  const std::int64_t most = integers_of(node, 2).at(0), count = scores.dims[2];
  const double together = input_of(node, 3).at(0), least = input_of(node, 4).at(0);
  std::vector<std::int64_t> rows;
  for (std::int64_t line = 0; line < scores.dims[0] * scores.dims[1]; ++line) {
    const std::int64_t image = line / scores.dims[1];
    std::vector<std::int64_t> order, taken;
    for (std::int64_t i = 0; i < count; ++i) {
      if (scores.at(line * count + i) > least) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return scores.at(line * count + a) > scores.at(line * count + b);
    });
    for (const std::int64_t i : order) {
      const Box box = box_at(boxes, image * count + i);
      const bool is_apart = std::all_of(taken.begin(), taken.end(), [&](std::int64_t other) {
        return overlap(box, box_at(boxes, image * count + other)) <= together;
      });
      if (is_apart && static_cast<std::int64_t>(taken.size()) < most) taken.push_back(i);
    }
    for (const std::int64_t i : taken) rows.insert(rows.end(), {image, line % scores.dims[1], i});
  }
  Tensor result = int64s(rows);
  result.dims = {static_cast<std::int64_t>(rows.size()) / 3, 3};
  return result;
}

/// Maxima back to where they were.
std::optional<Tensor> unpooled(const NodeCase& node) {
  const Tensor &x = input_of(node, 0), &places = input_of(node, 1);
  const Dims kernel = attribute_or(node, "kernel_shape", Dims()),
             strides = attribute_or(node, "strides", Dims(kernel.size(), 1));
  if (has_other_than(node, {"kernel_shape", "strides"}) || has_input(node, 2)) return std::nullopt;
  Dims dims = x.dims;
  for (std::size_t i = 0; i < kernel.size(); ++i)
    dims[i + 2] = (dims[i + 2] - 1) * strides[i] + kernel[i];
  Tensor result = make_tensor(x.dtype, dims);
  for (std::int64_t i = 0; i < x.size(); ++i) result.set(whole(places, i), x.at(i));
  return result;
}

}  // namespace

void add_indexed_references(ReferenceBook& book) {
  book["GatherND"] = one_output(gathered_slices);
  book["ScatterND"] = one_output(scattered_slices);
  for (const char* name : {"Scatter", "ScatterElements"}) book[name] = one_output(scattered);
  book["OneHot"] = one_output(one_hot_rows);
  book["Compress"] = one_output(compressed);
  book["ReverseSequence"] = one_output(reversed);
  book["TensorScatter"] = one_output(tensor_scattered);
  book["Unique"] = unique_elements;
  book["NonMaxSuppression"] = one_output(best_boxes);
  book["MaxUnpool"] = one_output(unpooled);
}

}  // namespace backplane::cli::check
