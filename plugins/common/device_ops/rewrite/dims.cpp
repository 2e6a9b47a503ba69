// What is known of dims whose sizes are known only in a run.
#include <cstring>

#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::device_ops {
namespace {

std::int64_t size_of(const sdk::ValueInfo& value, int axis) {
  return value.dims()[static_cast<std::size_t>(axis)];
}

}  // namespace

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

}  // namespace backplane::device_ops
