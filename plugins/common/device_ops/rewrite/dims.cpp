// What is known of dims whose sizes are known only in a run.
#include <cstring>

#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::device_ops {
namespace {

bool same_symbol(const sdk::ValueInfo& a, const sdk::ValueInfo& b, int axis) {
  const char* const one = sdk::host().graph->value_symbol(a.raw(), axis);
  const char* const other = sdk::host().graph->value_symbol(b.raw(), axis);
  return one != nullptr && other != nullptr && *one != 0 && std::strcmp(one, other) == 0;
}

}  // namespace

DimsMatch match_dims(const sdk::ValueInfo& a, const sdk::ValueInfo& b) {
  if (a.rank() < 0 || a.rank() != b.rank()) return DimsMatch::kOther;
  DimsMatch match = DimsMatch::kSame;
  for (int axis = 0; axis < a.rank(); ++axis) {
    const std::int64_t left = a.dims()[static_cast<std::size_t>(axis)];
    const std::int64_t right = b.dims()[static_cast<std::size_t>(axis)];
    if (left >= 0 && right >= 0 && left != right) return DimsMatch::kOther;
    const bool is_known = left >= 0 && right >= 0;
    if (!is_known && !same_symbol(a, b, axis)) match = DimsMatch::kPerhaps;
  }
  return match;
}

}  // namespace backplane::device_ops
