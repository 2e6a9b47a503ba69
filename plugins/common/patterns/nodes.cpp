#include "plugins/common/patterns/nodes.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/common/half.hpp"

namespace backplane::patterns {
namespace {

std::int64_t size_of(const sdk::ValueInfo& value, int axis) {
  return value.dims()[static_cast<std::size_t>(axis)];
}

/// Whether the element is there, and of T.
template <class T>
bool read_number(const sdk::Tensor& tensor, float& number) {
  const T* const element = tensor.data<T>();
  if (element != nullptr) number = common::widen(*element);
  return element != nullptr;
}

}  // namespace

bool is_read_by_others(const sdk::ValueInfo& value, const std::vector<sdk::Node>& nodes) {
  std::size_t reads = 0;
  for (const sdk::Node& node : nodes) {
    for (std::size_t i = 0; i < node.input_count(); ++i) reads += node.input(i) == value;
  }
  return value.is_output() || value.consumer_count() != reads;
}

bool same_size(const sdk::ValueInfo& a, int a_axis, const sdk::ValueInfo& b, int b_axis) {
  const std::int64_t left = size_of(a, a_axis), right = size_of(b, b_axis);
  if (left >= 0 && right >= 0) return left == right;
  const char* const one = sdk::host().graph->value_symbol(a.raw(), a_axis);
  const char* const other = sdk::host().graph->value_symbol(b.raw(), b_axis);
  return one != nullptr && other != nullptr && *one != 0 && std::strcmp(one, other) == 0;
}

DimsMatch match_dims(const sdk::ValueInfo& a, const sdk::ValueInfo& b) {
  if (a.rank() < 0 || a.rank() != b.rank()) return DimsMatch::kOther;
  DimsMatch match = DimsMatch::kSame;
  for (int axis = 0; axis < a.rank(); ++axis) {
    const std::int64_t left = size_of(a, axis), right = size_of(b, axis);
    if (left >= 0 && right >= 0 && left != right) return DimsMatch::kOther;
    if (!same_size(a, axis, b, axis)) match = DimsMatch::kPerhaps;
  }
  return match;
}

bool number_of(const sdk::ValueInfo& value, float& number) {
  if (!value || !value.is_constant() || sdk::element_count(value.dims()) != 1) return false;
  const sdk::Tensor tensor = value.constant();
  switch (value.type()) {
    case sdk::DataType::Float:
      return read_number<float>(tensor, number);
    case sdk::DataType::Float16:
      return read_number<sdk::Half>(tensor, number);
    case sdk::DataType::BFloat16:
      return read_number<sdk::BFloat16>(tensor, number);
    default:
      return false;
  }
}

bool scalar_of(const sdk::ValueInfo& value, float& number) {
  return value && value.rank() <= 1 && number_of(value, number);
}

bool number_beside(const sdk::ValueInfo& constant, const sdk::ValueInfo& value, float& number) {
  return number_of(constant, number) && constant.rank() <= value.rank();
}

bool read_axes(const sdk::Node& node, int rank, sdk::Dims& axes) {
  axes = node.get_ints("axes");
  if (node.input_count() > 1 && node.input(1)) {
    if (!node.input(1).is_constant()) return false;
    const sdk::Tensor tensor = node.input(1).constant();
    if (tensor.size() > 0 && tensor.bytes_data() == nullptr) return false;
    axes = tensor.to_ints();
  }
  for (std::int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) return false;
    axis += axis < 0 ? rank : 0;
  }
  std::sort(axes.begin(), axes.end());
  if (!axes.empty()) return true;
  for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
  return node.get_int("noop_with_empty_axes", 0) == 0;
}

}  // namespace backplane::patterns
