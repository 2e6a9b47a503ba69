#include "plugins/cpu/kernels/linear_state.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/kernels/linear_state.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

LinearState find_linear_state();

namespace {

// Plain loops: the compiler makes vectors of this target of them.

/// y += factor * x.
HWY_INLINE void add_scaled(const float* HWY_RESTRICT x, float factor, std::int64_t n,
                           float* HWY_RESTRICT y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

void take(const StateStep& step, std::int64_t keys, std::int64_t values, float* state, float* row) {
  for (std::int64_t j = 0; j < values; ++j) row[j] = 0;
  for (std::int64_t i = 0; i < keys; ++i) {
    float* HWY_RESTRICT line = state + i * values;
    if (step.kept != nullptr) {
      const float kept = step.kept[i * step.kept_step];
      for (std::int64_t j = 0; j < values; ++j) line[j] *= kept;
    }
    if (step.is_delta) add_scaled(line, step.key[i], values, row);
  }
  for (std::int64_t j = 0; j < values; ++j) row[j] = step.rate * (step.value[j] - row[j]);
  for (std::int64_t i = 0; i < keys; ++i) add_scaled(row, step.key[i], values, state + i * values);
}

void ask(const float* query, float scale, std::int64_t keys, std::int64_t values,
         const float* state, float* answer) {
  for (std::int64_t j = 0; j < values; ++j) answer[j] = 0;
  for (std::int64_t i = 0; i < keys; ++i)
    add_scaled(state + i * values, scale * query[i], values, answer);
}

}  // namespace

LinearState find_linear_state() { return {take, ask}; }

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

LinearState linear_state(Isa isa) { BP_SELECT_TARGET(isa, find_linear_state()); }

}  // namespace backplane::cpu
#endif
