// The state of linear attention: a matrix that takes in a key and a value with each token, and is asked by queries.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// One token for one state, floats [keys, values].
struct StateStep {
  const float* key;    // [keys]
  const float* value;  // [values]
  /// By how much each row of the state is kept: `kept_step` 0: one number for all. null: all of it.
  const float* kept = nullptr;
  std::int64_t kept_step = 0;
  bool is_delta =
      false;  // only what the state does not yet have for the key is taken in, `rate` of it
  float rate = 1;
};

struct LinearState {
  /// Changes `state`; `row` is [values] of scratch memory.
  void (*take)(const StateStep& step, std::int64_t keys, std::int64_t values, float* state,
               float* row);
  /// answer = scale * query' state.
  void (*ask)(const float* query, float scale, std::int64_t keys, std::int64_t values,
              const float* state, float* answer);
};

LinearState linear_state(Isa isa);

}  // namespace backplane::cpu
