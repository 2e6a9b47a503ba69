// Scales and zero points of quantized products: one for a tensor, one per line (row or column), or one per
// line of every matrix.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/half.hpp"

namespace backplane::cpu {

/// Where the parameter of a line stands: index matrix * matrix_step + line * line_step.
struct LineParameter {
  std::int64_t matrix_step = 0;
  std::int64_t line_step = 0;

  std::int64_t at(std::int64_t matrix, std::int64_t line) const {
    return matrix * matrix_step + line * line_step;
  }
};

/// For a parameter tensor that belongs to `matrices` matrices of `lines` lines. `what` names it in the error.
inline LineParameter line_parameter(const char* what, const sdk::Tensor& tensor,
                                    std::int64_t matrices, std::int64_t lines) {
  if (!tensor.present() || tensor.size() == 1) return {};
  if (tensor.size() == lines) return {0, 1};
  if (tensor.size() == matrices * lines) return {lines, 1};
  sdk::invalid(what, " has dims ", sdk::to_string(tensor.dims()),
               "; it needs one element, or one for each of the ", lines, " lines");
}

/// An element of a scale: float, float16 or bfloat16.
inline double scale_at(const sdk::Tensor& scale, std::int64_t index) {
  switch (scale.type()) {
    case sdk::DataType::Float16:
      return common::to_float(scale.data<sdk::Half>()[index]);
    case sdk::DataType::BFloat16:
      return common::to_float(scale.data<sdk::BFloat16>()[index]);
    default:
      return scale.data<float>()[index];
  }
}

}  // namespace backplane::cpu
