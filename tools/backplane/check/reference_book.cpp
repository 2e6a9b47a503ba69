#include "tools/backplane/check/reference_book.hpp"

#include <algorithm>

namespace backplane::cli::check {

Reference one_output(OneTensor make) {
  return [make = std::move(make)](const NodeCase& node) -> std::optional<std::vector<Tensor>> {
    std::optional<Tensor> made = make(node);
    if (!made) return std::nullopt;
    return std::vector<Tensor>{std::move(*made)};
  };
}

bool has_input(const NodeCase& node, std::size_t input) {
  return input < node.inputs.size() && node.inputs[input].tensor.dtype != BP_NONE;
}

std::vector<std::int64_t> integers_of(const NodeCase& node, std::size_t input) {
  const Tensor& tensor = input_of(node, input);
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    numbers.push_back(static_cast<std::int64_t>(tensor.at(i)));
  return numbers;
}

std::optional<std::vector<std::int64_t>> integers_of(const NodeCase& node, const std::string& name,
                                                     std::size_t input) {
  const auto found = node.attributes.find(name);
  if (found != node.attributes.end()) return std::get<std::vector<std::int64_t>>(found->second);
  if (!has_input(node, input)) return std::nullopt;
  return integers_of(node, input);
}

std::int64_t product(const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}

Dims place_of(std::int64_t index, const Dims& dims) {
  Dims place(dims.size());
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    place[axis] = index % dims[axis];
    index /= dims[axis];
  }
  return place;
}

std::int64_t index_of(const Dims& place, const Dims& dims) {
  std::int64_t index = 0;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) index = index * dims[axis] + place[axis];
  return index;
}

std::int64_t broadcast_source(std::int64_t index, const Dims& whole, const Dims& dims) {
  const Dims place = place_of(index, whole);
  Dims source(dims.size());
  for (std::size_t axis = 0; axis < dims.size(); ++axis)
    source[axis] = dims[axis] == 1 ? 0 : place[whole.size() - dims.size() + axis];
  return index_of(source, dims);
}

Dims broadcast_dims(const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()), 1);
  for (const Dims* dims : {&a, &b}) {
    for (std::size_t i = 0; i < dims->size(); ++i) {
      std::int64_t& at = result[result.size() - dims->size() + i];
      if ((*dims)[i] != 1) at = (*dims)[i];
    }
  }
  return result;
}

Tensor moved(const Tensor& x, const Dims& dims,
             const std::function<std::int64_t(const Dims&)>& source) {
  Tensor result = make_tensor(x.dtype, dims);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const std::int64_t from = source(place_of(i, dims));
    result.set(i, from < 0 ? 0 : x.at(from));
  }
  return result;
}

}  // namespace backplane::cli::check
