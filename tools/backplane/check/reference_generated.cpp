// Operators that make values from sizes and attributes. https://onnx.ai/onnx/operators/
#include <algorithm>
#include <array>
#include <cmath>

#include "tools/backplane/check/reference_book.hpp"

namespace backplane::cli::check {
namespace {

std::optional<Tensor> constant_value(const NodeCase& node) {
  const auto number = node.attributes.find("value_float");
  if (number != node.attributes.end()) {
    Tensor result = make_tensor(BP_FLOAT, {});
    result.set(0, std::get<float>(number->second));
    return result;
  }
  const auto numbers = node.attributes.find("value_ints");
  if (numbers == node.attributes.end()) return std::nullopt;
  return int64s(std::get<std::vector<std::int64_t>>(numbers->second));
}

std::optional<Tensor> all_zeros(const NodeCase& node) {
  if (!node.attributes.empty()) return std::nullopt;
  return make_tensor(BP_FLOAT, integers_of(node, 0));
}

std::optional<Tensor> ones_on_a_diagonal(const NodeCase& node) {
  const std::int64_t k = attribute_or(node, "k", std::int64_t{0});
  Tensor result = make_tensor(node.outputs[0], input_of(node, 0).dims);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const Dims place = place_of(i, result.dims);
    result.set(i, place[1] - place[0] == k ? 1 : 0);
  }
  return result;
}

std::optional<Tensor> numbers_of_a_range(const NodeCase& node) {
  const double start = input_of(node, 0).at(0), limit = input_of(node, 1).at(0),
               step = input_of(node, 2).at(0);
  const double count = std::max(std::ceil((limit - start) / step), 0.0);
  Tensor result = make_tensor(node.outputs[0], {static_cast<std::int64_t>(count)});
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.set(i, start + static_cast<double>(i) * step);
  return result;
}

/// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N)
Reference cosine_window(std::array<double, 3> a) {
  return one_output([a](const NodeCase& node) -> std::optional<Tensor> {
    const std::int64_t size = integers_of(node, 0).at(0);
    const bool periodic = attribute_or(node, "periodic", std::int64_t{1}) != 0;
    const double steps = static_cast<double>(periodic ? size : size - 1);
    Tensor result = make_tensor(node.outputs[0], {size});
    for (std::int64_t i = 0; i < size; ++i) {
      const double angle = 2 * M_PI * static_cast<double>(i) / steps;
      result.set(i, a[0] - a[1] * std::cos(angle) + a[2] * std::cos(2 * angle));
    }
    return result;
  });
}

/// Where nobody trains it leaves everything as it is.
std::optional<Tensor> dropped(const NodeCase& node) {
  if (node.outputs.size() != 1 || has_input(node, 2)) return std::nullopt;
  return input_of(node, 0);
}

}  // namespace

void add_generated_references(ReferenceBook& book) {
  book["Constant"] = one_output(constant_value);
  book["ConstantOfShape"] = one_output(all_zeros);
  book["EyeLike"] = one_output(ones_on_a_diagonal);
  book["Range"] = one_output(numbers_of_a_range);
  book["HannWindow"] = cosine_window({0.5, 0.5, 0});
  book["HammingWindow"] = cosine_window({25.0 / 46, 21.0 / 46, 0});
  book["BlackmanWindow"] = cosine_window({0.42, 0.5, 0.08});
  book["Dropout"] = one_output(dropped);
}

}  // namespace backplane::cli::check
