#include "plugins/cpu/kernels/plain_row.hpp"

#include <algorithm>

#include "plugins/cpu/dense/plain_product.hpp"
#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/plain_row.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

PlainRow find_plain_row(sdk::DataType type);

namespace {

// Sums that stay in the first-level cache, and steps of the depth for which each is loaded and stored once.
constexpr std::int64_t kSums = 256;
constexpr std::int64_t kSteps = 4;

// Plain loops: the compiler makes vectors of this target of them.
template <class T>
void multiply_row(const void* left, const void* right, std::int64_t b_step, std::int64_t depth,
                  std::int64_t columns, void* result) {
  using Sum = SumOf<T>;
  const T* a = static_cast<const T*>(left);
  T* y = static_cast<T*>(result);
  for (std::int64_t column = 0; column < columns; column += kSums) {
    const std::int64_t count = std::min(kSums, columns - column);
    const T* HWY_RESTRICT b = static_cast<const T*>(right) + column;
    Sum sums[kSums];
    std::fill_n(sums, count, Sum(0));
    std::int64_t k = 0;
    for (; k + kSteps <= depth; k += kSteps, b += kSteps * b_step) {
      const Sum a0 = to_sum(a[k]), a1 = to_sum(a[k + 1]), a2 = to_sum(a[k + 2]),
                a3 = to_sum(a[k + 3]);
      const T *b1 = b + b_step, *b2 = b + 2 * b_step, *b3 = b + 3 * b_step;
      for (std::int64_t j = 0; j < count; ++j) {
        Sum sum = multiply_add<Sum>(sums[j], a0, to_sum(b[j]));
        sum = multiply_add<Sum>(sum, a1, to_sum(b1[j]));
        sum = multiply_add<Sum>(sum, a2, to_sum(b2[j]));
        sums[j] = multiply_add<Sum>(sum, a3, to_sum(b3[j]));
      }
    }
    for (; k < depth; ++k, b += b_step) {
      const Sum factor = to_sum(a[k]);
      for (std::int64_t j = 0; j < count; ++j)
        sums[j] = multiply_add<Sum>(sums[j], factor, to_sum(b[j]));
    }
    for (std::int64_t j = 0; j < count; ++j) y[column + j] = from_sum<T>(sums[j]);
  }
}

}  // namespace

PlainRow find_plain_row(sdk::DataType type) {
  switch (type) {
    case sdk::DataType::Double:
      return multiply_row<double>;
    case sdk::DataType::Float16:
      return multiply_row<sdk::Half>;
    case sdk::DataType::BFloat16:
      return multiply_row<sdk::BFloat16>;
    case sdk::DataType::Int32:
      return multiply_row<std::int32_t>;
    case sdk::DataType::UInt32:
      return multiply_row<std::uint32_t>;
    case sdk::DataType::Int64:
      return multiply_row<std::int64_t>;
    case sdk::DataType::UInt64:
      return multiply_row<std::uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

PlainRow plain_row(Isa isa, sdk::DataType type) { BP_SELECT_TARGET(isa, find_plain_row(type)); }

}  // namespace backplane::cpu
#endif
