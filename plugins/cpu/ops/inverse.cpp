// com.microsoft::Inverse: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <algorithm>
#include <cmath>
#include <utility>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"

namespace backplane::cpu {
namespace {

/// Gauss-Jordan elimination with row exchanges on rows [a | b] of 2 n numbers, of which b becomes the inverse. A matrix
/// that has none gives infinities and NaN.
void invert(double* rows, std::int64_t n) {
  const std::int64_t width = 2 * n;
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < n; ++i) {
      if (std::abs(rows[i * width + k]) > std::abs(rows[pivot * width + k])) pivot = i;
    }
    if (pivot != k)
      std::swap_ranges(rows + k * width, rows + (k + 1) * width, rows + pivot * width);
    const double factor = 1 / rows[k * width + k];
    for (std::int64_t j = k; j < width; ++j) rows[k * width + j] *= factor;
    for (std::int64_t i = 0; i < n; ++i) {
      const double other = rows[i * width + k];
      if (i == k || other == 0) continue;
      for (std::int64_t j = k; j < width; ++j) rows[i * width + j] -= other * rows[k * width + j];
    }
  }
}

class Inverse {
 public:
  struct Prepared {
    std::int64_t count, n;

    void compute(const sdk::ComputeContext& ctx) const {
      auto* rows = ctx.workspace().mutable_data<double>();
      common::with_float(ctx.input(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* x = ctx.input(0).data<T>();
        T* y = ctx.output(0).mutable_data<T>();
        for (std::int64_t i = 0; i < count * n; i += n) {
          for (std::int64_t row = 0; row < n; ++row) {
            double* both = rows + row * 2 * n;
            std::fill_n(both + n, n, 0.0);
            both[n + row] = 1;
            for (std::int64_t j = 0; j < n; ++j)
              both[j] = static_cast<double>(common::widen(x[(i + row) * n + j]));
          }
          invert(rows, n);
          for (std::int64_t row = 0; row < n; ++row) {
            for (std::int64_t j = 0; j < n; ++j)
              y[(i + row) * n + j] = common::narrow<T>(rows[row * 2 * n + n + j]);
          }
        }
      });
    }
  };

  Inverse(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const int rank = x.rank();
    if (rank < 2 || x.dim(rank - 1) != x.dim(rank - 2)) {
      sdk::invalid("Inverse: the input has dims ", sdk::to_string(x.dims()),
                   "; the last two must be those of square matrices");
    }
    ctx.set_output(0, x.type(), x.dims());
    const std::int64_t n = x.dim(rank - 1);
    ctx.set_workspace(static_cast<std::uint64_t>(2 * n * n) * sizeof(double));
    return {n > 0 ? x.size() / (n * n) : 0, n};
  }
};

}  // namespace

sdk::KernelList inverse_kernels() {
  return {sdk::op("Inverse", "com.microsoft")
              .name("cpu:inverse")
              .types("T", common::ieee_float_types())
              .kernel<Inverse>()};
}

}  // namespace backplane::cpu
