// Resampling along one axis at a time.
// https://onnx.ai/onnx/operators/onnx__Resize.html
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/resample.hpp"

namespace backplane::cpu {

/// An axis with the sources of its output elements: in tables, or, where these would be long, as what they are made
/// from again, a block at a time. A plan per length of a recording must not keep several times the recording.
struct ResampledAxis {
  common::ResampleRule rule;
  common::AxisRequest request;
  common::AxisTaps table;

  ResampledAxis() { table.same = true; }
  /// Weights are of float or double.
  ResampledAxis(const common::ResampleRule& rule, const common::AxisRequest& request,
                bool in_double);

  std::int64_t input() const { return request.input; }
  std::int64_t count() const { return request.output; }
  std::int64_t taps() const { return table.taps; }
  bool same() const { return table.same; }
  bool has_table() const { return !table.places.empty(); }
  /// Output elements of a block where there is no table.
  std::int64_t block() const { return std::max<std::int64_t>(1, kBlockTaps / table.taps); }
  /// Of one thread that makes blocks.
  std::uint64_t scratch_bytes() const;

  /// For nearest: where an output element comes from.
  std::int64_t place(std::int64_t index) const {
    if (table.same) return index;
    return has_table() ? table.places[static_cast<std::size_t>(index)]
                       : common::nearest_place(rule, request, index);
  }

  static constexpr std::int64_t kBlockTaps = 1024;
};

/// target[o][y][i] = the weighted sum of source[o][places of y][i]; T is float or double. `scratch` holds
/// axis.scratch_bytes() for each thread.
template <class T>
void resample_pass(const ResampledAxis& axis, const T* source, T* target, std::int64_t outer,
                   std::int64_t inner, char* scratch, const sdk::Threads& threads);

}  // namespace backplane::cpu
