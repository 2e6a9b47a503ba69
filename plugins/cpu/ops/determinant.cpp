// Det: https://onnx.ai/onnx/operators/onnx__Det.html
#include <cmath>
#include <utility>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"

namespace backplane::cpu {
namespace {

/// The determinant of a [n, n] matrix, which is used up: elimination with row exchanges.
double determinant(double* a, std::int64_t n) {
  double result = 1;
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < n; ++i) {
      if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
    }
    if (a[pivot * n + k] == 0) return 0;
    if (pivot != k) {
      for (std::int64_t j = k; j < n; ++j) std::swap(a[pivot * n + j], a[k * n + j]);
      result = -result;
    }
    result *= a[k * n + k];
    for (std::int64_t i = k + 1; i < n; ++i) {
      const double factor = a[i * n + k] / a[k * n + k];
      for (std::int64_t j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  return result;
}

class Det {
 public:
  struct Prepared {
    std::int64_t count, n;

    void compute(const sdk::ComputeContext& ctx) const {
      auto* matrix = ctx.workspace().mutable_data<double>();
      common::with_float(ctx.input(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* x = ctx.input(0).data<T>();
        T* y = ctx.output(0).mutable_data<T>();
        for (std::int64_t i = 0; i < count; ++i) {
          for (std::int64_t j = 0; j < n * n; ++j)
            matrix[j] = static_cast<double>(common::widen(x[i * n * n + j]));
          y[i] = common::narrow<T>(determinant(matrix, n));
        }
      });
    }
  };

  Det(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const int rank = x.rank();
    if (rank < 2 || x.dim(rank - 1) != x.dim(rank - 2)) {
      sdk::invalid("Det: the input has dims ", sdk::to_string(x.dims()),
                   "; the last two must be those of square matrices");
    }
    const sdk::Dims dims(x.dims().begin(), x.dims().end() - 2);
    ctx.set_output(0, x.type(), dims);
    const std::int64_t n = x.dim(rank - 1);
    ctx.set_workspace(static_cast<std::uint64_t>(n * n) * sizeof(double));
    return {sdk::element_count(dims), n};
  }
};

}  // namespace

sdk::KernelList determinant_kernels() {
  return {sdk::op("Det").name("cpu:Det").types("T", common::float_types()).kernel<Det>()};
}

}  // namespace backplane::cpu
