#include "plugins/cpu/dense/matmul_dims.hpp"

#include <algorithm>

#include "plugins/common/broadcast.hpp"

namespace backplane::cpu {
namespace {

/// For each index into the broadcast batch axes, the matrix of an operand with batch axes `own`.
std::vector<int64_t> matrix_indices(const sdk::Dims& batch, sdk::DimsView own) {
  const int64_t count = sdk::element_count(batch);
  std::vector<int64_t> indices(static_cast<std::size_t>(count), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    int64_t index = 0;
    int64_t step = 1;
    for (std::size_t back = 1; back <= batch.size(); ++back) {
      const int64_t extent = batch[batch.size() - back];
      const int64_t at = rest % extent;
      rest /= extent;
      if (back > own.size()) continue;
      const int64_t own_extent = own[own.size() - back];
      index += (own_extent == 1 ? 0 : at) * step;
      step *= own_extent;
    }
    indices[static_cast<std::size_t>(i)] = index;
  }
  return indices;
}

}  // namespace

MatMulDims::MatMulDims(sdk::DimsView a, sdk::DimsView b, bool b_transposed) {
  if (a.empty() || b.empty())
    sdk::invalid("MatMul: scalars cannot be multiplied as matrices; use Mul");
  const bool a_vector = a.size() == 1;
  const bool b_vector = b.size() == 1;
  rows = a_vector ? 1 : a[a.size() - 2];
  depth = a.back();
  const std::size_t b_last = b.size() - 1;
  const int64_t b_depth = b_vector || b_transposed ? b[b_last] : b[b_last - 1];
  columns = b_vector ? 1 : b_transposed ? b[b_last - 1] : b[b_last];
  if (b_depth != depth) {
    sdk::invalid("MatMul: A has dims ", sdk::to_string(a), " and B ", sdk::to_string(b),
                 b_transposed ? " (transposed)" : "", ": the inner dimensions ", depth, " and ",
                 b_depth, " differ");
  }
  const sdk::DimsView a_batch(a.data(), a_vector ? 0 : a.size() - 2);
  const sdk::DimsView b_batch(b.data(), b_vector ? 0 : b.size() - 2);
  batch = common::broadcast_dims({a_batch, b_batch});
  a_indices = matrix_indices(batch, a_batch);
  b_indices = matrix_indices(batch, b_batch);
  out = batch;
  if (!a_vector) out.push_back(rows);
  if (!b_vector) out.push_back(columns);
}

bool MatMulDims::shared_b() const {
  return std::all_of(b_indices.begin(), b_indices.end(), [](int64_t index) { return index == 0; });
}

bool MatMulDims::a_in_order() const {
  for (std::size_t i = 0; i < a_indices.size(); ++i) {
    if (a_indices[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

void check_addends(const sdk::Tensor& bias, const sdk::Tensor& residual, int64_t columns,
                   sdk::DimsView out) {
  if (bias.present() &&
      (bias.rank() < 1 || bias.size() != columns || bias.dim(bias.rank() - 1) != columns)) {
    sdk::invalid("the bias has dims ", sdk::to_string(bias.dims()), ", expected [", columns, "]");
  }
  if (residual.present() && sdk::to_string(residual.dims()) != sdk::to_string(out)) {
    sdk::invalid("the residual has dims ", sdk::to_string(residual.dims()), ", the result ",
                 sdk::to_string(out));
  }
}

}  // namespace backplane::cpu
