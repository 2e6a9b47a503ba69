#include "plugins/common/device_ops/matrix_batch.hpp"

#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/pointwise.hpp"

namespace backplane::device_ops {

MatrixBatch::MatrixBatch(DimsView a, DimsView b) {
  if (a.empty() || b.empty()) sdk::invalid("MatMul of ", to_string(a), " and ", to_string(b));
  Dims a_dims(a.begin(), a.end()), b_dims(b.begin(), b.end());
  if (a.size() == 1) a_dims.insert(a_dims.begin(), 1);
  if (b.size() == 1) b_dims.push_back(1);
  a_batch.assign(a_dims.begin(), a_dims.end() - 2);
  b_batch.assign(b_dims.begin(), b_dims.end() - 2);
  rows = a_dims[a_dims.size() - 2];
  depth = a_dims.back();
  columns = b_dims.back();
  if (b_dims[b_dims.size() - 2] != depth)
    sdk::invalid("MatMul of ", to_string(a), " and ", to_string(b));
  batch = common::broadcast_dims({a_batch, b_batch});
  y_dims = batch;
  if (a.size() > 1) y_dims.push_back(rows);
  if (b.size() > 1) y_dims.push_back(columns);
}

common::StridedLoops MatrixBatch::merge() {
  const auto steps = [&](const Dims& dims, std::int64_t matrix) {
    Dims strides = broadcast_view({}, DataType::Float, dims, batch).strides;
    for (std::int64_t& stride : strides) stride *= matrix;
    return strides;
  };
  common::StridedLoops loops;
  loops.dims = batch;
  loops.strides = {steps(a_batch, rows * depth), steps(b_batch, depth * columns),
                   steps(batch, rows * columns)};
  loops = common::merge_axes(loops);
  if (loops.dims.size() == 1 && loops.strides[1][0] == 0 && loops.strides[0][0] == rows * depth) {
    rows *= loops.dims[0];
    loops = {{1}, {{0}, {0}, {0}}};
  }
  return loops;
}

}  // namespace backplane::device_ops
