#include "plugins/cpu/kernels/select_row.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/select_row.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

SelectLoop find_select(int element_bytes);

namespace {

/// 16 bytes: complex128.
struct Pair {
  std::uint64_t low;
  std::uint64_t high;
};

// Plain loops: the compiler makes vectors of this target of them. Both operands are read before one is
// chosen, so that there is nothing to branch about.
template <class T, bool kXSteps, bool kYSteps>
void select_by_each(const SelectRow& row) {
  const auto* x = reinterpret_cast<const T*>(row.x);
  const auto* y = reinterpret_cast<const T*>(row.y);
  const std::uint8_t* HWY_RESTRICT condition = row.condition;
  auto* out = reinterpret_cast<T*>(row.out);
  const T only_x = *x;
  const T only_y = *y;
  const std::int64_t n = row.n;  // the compiler must see that `out` does not change it
  for (std::int64_t i = 0; i < n; ++i) {
    const T yes = kXSteps ? x[i] : only_x;
    const T no = kYSteps ? y[i] : only_y;
    out[i] = condition[i] != 0 ? yes : no;
  }
}

template <class T>
void select(const SelectRow& row) {
  if (row.condition_step == 1) {
    if (row.x_step == 1 && row.y_step == 1) return select_by_each<T, true, true>(row);
    if (row.x_step == 1) return select_by_each<T, true, false>(row);
    if (row.y_step == 1) return select_by_each<T, false, true>(row);
    return select_by_each<T, false, false>(row);
  }
  const bool takes_x = *row.condition != 0;
  const auto* from = reinterpret_cast<const T*>(takes_x ? row.x : row.y);
  const std::int64_t step = takes_x ? row.x_step : row.y_step;
  auto* out = reinterpret_cast<T*>(row.out);
  for (std::int64_t i = 0; i < row.n; ++i) out[i] = from[i * step];
}

}  // namespace

SelectLoop find_select(int element_bytes) {
  switch (element_bytes) {
    case 1:
      return select<std::uint8_t>;
    case 2:
      return select<std::uint16_t>;
    case 4:
      return select<std::uint32_t>;
    case 8:
      return select<std::uint64_t>;
    case 16:
      return select<Pair>;
    default:
      return nullptr;
  }
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

SelectLoop select_loop(Isa isa, int element_bytes) {
  BP_SELECT_TARGET(isa, find_select(element_bytes));
}

}  // namespace backplane::cpu
#endif
