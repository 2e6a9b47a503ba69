// Operators that give an array other dims, ask for dims, or make arrays from numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

Array one_axis(const Dims& values) {
  Array y{ElementType::Int64, {static_cast<std::int64_t>(values.size())}, {}};
  for (const std::int64_t value : values) y.values.push_back(static_cast<double>(value));
  return y;
}

Arrays reshape(const Call& call) {
  Array y = call.input(0);
  Dims dims = call.optional(1) != nullptr ? call.integers(1) : call.list("shape");
  const bool allow_zero = call.integer("allowzero", 0) != 0;
  std::int64_t known = 1;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] == 0 && !allow_zero) dims[axis] = y.dims[axis];
    if (dims[axis] != -1) known *= dims[axis];
  }
  for (std::int64_t& dim : dims) {
    if (dim == -1) dim = known == 0 ? 0 : y.size() / known;
  }
  y.dims = dims;
  return {y};
}

Arrays flatten(const Call& call) {
  Array y = call.input(0);
  const std::int64_t axis = positive_axis(call.integer("axis", 1), y.rank());
  y.dims = {product(y.dims, 0, axis), product(y.dims, axis, y.rank())};
  return {y};
}

/// Axes are an attribute before opset 13 and an input from then on.
Dims axes_of(const Call& call) {
  return call.optional(1) != nullptr ? call.integers(1) : call.list("axes");
}

Arrays squeeze(const Call& call) {
  Array y = call.input(0);
  Dims axes = axes_of(call);
  for (std::int64_t& axis : axes) axis = positive_axis(axis, y.rank());
  Dims dims;
  for (std::int64_t axis = 0; axis < y.rank(); ++axis) {
    const bool named = std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (axes.empty() ? y.dims[axis] != 1 : !named) dims.push_back(y.dims[axis]);
  }
  y.dims = dims;
  return {y};
}

Arrays unsqueeze(const Call& call) {
  Array y = call.input(0);
  Dims axes = axes_of(call);
  const auto rank = y.rank() + static_cast<std::int64_t>(axes.size());
  for (std::int64_t& axis : axes) axis = positive_axis(axis, rank);
  Dims dims;
  std::size_t next = 0;
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    const bool is_new = std::find(axes.begin(), axes.end(), axis) != axes.end();
    dims.push_back(is_new ? 1 : y.dims[next++]);
  }
  y.dims = dims;
  return {y};
}

Arrays shape(const Call& call) {
  const Dims& dims = call.input(0).dims;
  const auto rank = static_cast<std::int64_t>(dims.size());
  const auto bound = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const std::int64_t begin = bound(call.integer("start", 0));
  const std::int64_t end = std::max(begin, bound(call.integer("end", rank)));
  return {one_axis(Dims(dims.begin() + begin, dims.begin() + end))};
}

Arrays size(const Call& call) {
  return {filled(ElementType::Int64, {}, static_cast<double>(call.input(0).size()))};
}

Arrays constant_of_shape(const Call& call) {
  const auto* value = call.has("value") ? std::get_if<Array>(call.find("value")) : nullptr;
  if (value == nullptr) return {filled(ElementType::Float, call.integers(0))};
  return {filled(value->type, call.integers(0), value->values[0])};
}

Arrays range(const Call& call) {
  const double start = call.input(0).values[0];
  const double limit = call.input(1).values[0];
  const double delta = call.input(2).values[0];
  const auto count = static_cast<std::int64_t>(std::fmax(std::ceil((limit - start) / delta), 0));
  Array y = filled(call.input(0).type, {count});
  for (std::int64_t i = 0; i < count; ++i) y.values[i] = start + static_cast<double>(i) * delta;
  return {y};
}

Arrays eye_like(const Call& call) {
  const Array& x = call.input(0);
  const auto type =
      static_cast<ElementType>(call.integer("dtype", static_cast<std::int64_t>(x.type)));
  Array y = filled(type, x.dims);
  const std::int64_t k = call.integer("k", 0);
  for (std::int64_t row = 0; row < x.dims[0]; ++row) {
    if (row + k >= 0 && row + k < x.dims[1]) y.values[row * x.dims[1] + row + k] = 1;
  }
  return {y};
}

Arrays constant(const Call& call) { return {std::get<Array>(*call.find("value"))}; }

const Registration kReshape({"Reshape"}, reshape);
const Registration kFlatten({"Flatten"}, flatten);
const Registration kSqueeze({"Squeeze"}, squeeze);
const Registration kUnsqueeze({"Unsqueeze"}, unsqueeze);
const Registration kShape({"Shape"}, shape);
const Registration kSize({"Size"}, size);
const Registration kConstantOfShape({"ConstantOfShape"}, constant_of_shape);
const Registration kRange({"Range"}, range);
const Registration kEyeLike({"EyeLike"}, eye_like);
const Registration kConstant({"Constant"}, constant);

}  // namespace
}  // namespace backplane::reference
