// What MatMul multiplies: matrices [rows, depth] and [depth, columns], and the axes in front of them.
#pragma once

#include <cstdint>

#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/kernels/pointwise.hpp"

namespace backplane::device_ops {

/// From the dims of a and b as numpy.matmul reads them: https://onnx.ai/onnx/operators/onnx__MatMul.html
struct MatrixBatch {
  /// Errors: BP_INVALID_ARGUMENT where a scalar is multiplied, or the depths or the batches do not fit.
  MatrixBatch(DimsView a, DimsView b);
  /// The batch's axes, merged, with the steps of a, b and y in elements; y is not empty. Where b is the same for all and a
  /// follows y, the batch becomes more rows, and what is left is one axis of one element.
  common::StridedLoops merge();

  std::int64_t rows = 0, depth = 0, columns = 0;
  Dims a_batch, b_batch, batch;
  Dims y_dims;
};

}  // namespace backplane::device_ops
