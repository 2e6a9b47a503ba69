// Resampling passes: sums along one axis at a time.
// https://onnx.ai/onnx/operators/onnx__Resize.html
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/resample.hpp"

namespace backplane::cpu {

using common::AxisTaps;

/// target[o][y][i] = the weighted sum of source[o][places of y][i]; T is float or double.
template <class T>
void resample_pass(const AxisTaps& axis, const T* source, T* target, std::int64_t outer,
                   std::int64_t inner, const sdk::Threads& threads);

}  // namespace backplane::cpu
