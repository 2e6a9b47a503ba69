// Softmax, LogSoftmax, Hardmax: https://onnx.ai/onnx/operators/onnx__Softmax.html and the pages beside it.
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/arg_scan.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/softmax_f32.hpp"
#include "plugins/cpu/kernels/softmax_f64.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

enum class Kind { kSoftmax, kLogSoftmax, kHardmax };

/// x viewed as [outer, n, inner]; the operator works along n.
struct View {
  std::int64_t outer = 1;
  std::int64_t n = 1;
  std::int64_t inner = 1;
};

/// One row of elements `stride` apart, in T.
template <class T>
void scalar_row(Kind kind, const T* x, T* y, std::int64_t n, std::int64_t stride) {
  std::int64_t best = 0;
  for (std::int64_t k = 1; k < n; ++k) {
    if (x[k * stride] > x[best * stride]) best = k;
  }
  if (kind == Kind::kHardmax) {
    for (std::int64_t k = 0; k < n; ++k) y[k * stride] = k == best ? T(1) : T(0);
    return;
  }
  const T max = x[best * stride];
  T sum = 0;
  for (std::int64_t k = 0; k < n; ++k) sum += std::exp(x[k * stride] - max);
  const T log_sum = std::log(sum);
  for (std::int64_t k = 0; k < n; ++k) {
    const T shifted = x[k * stride] - max;
    y[k * stride] = kind == Kind::kSoftmax ? std::exp(shifted) / sum : shifted - log_sum;
  }
}

/// Hardmax of rows one behind the other.
template <class T>
void run_hardmax(const ArgScan& scan, const View& view, const T* x, T* y,
                 const sdk::Threads& threads) {
  const auto ns = static_cast<double>(view.n);
  split_loop(threads, view.outer, ns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t best = scan.row(x + i * view.n, view.n);
      std::fill_n(y + i * view.n, view.n, T(0));
      y[i * view.n + best] = T(1);
    }
  });
}

template <class T>
void run_scalar(Kind kind, const View& view, const T* x, T* y, const sdk::Threads& threads) {
  const double ns = 20.0 * static_cast<double>(view.n);
  split_loop(threads, view.outer * view.inner, ns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t offset = i / view.inner * view.n * view.inner + i % view.inner;
      scalar_row(kind, x + offset, y + offset, view.n, view.inner);
    }
  });
}

void run_f32(const SoftmaxF32& loops, Kind kind, const View& view, const float* x, float* y,
             const sdk::Threads& threads) {
  const bool log = kind == Kind::kLogSoftmax;
  if (view.inner == 1) {
    const auto rows = log ? loops.log_rows : loops.rows;
    const double ns = 0.5 * static_cast<double>(view.n);
    split_loop(threads, view.outer, ns, 1, [&](std::int64_t begin, std::int64_t end) {
      rows(x + begin * view.n, y + begin * view.n, view.n, end - begin);
    });
    return;
  }
  const auto columns = log ? loops.log_columns : loops.columns;
  const std::int64_t tile = std::min(kSoftmaxTile, view.inner);
  const std::int64_t tiles = (view.inner + tile - 1) / tile;
  const double ns = 0.6 * static_cast<double>(view.n * tile);
  split_loop(threads, view.outer * tiles, ns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t from = i % tiles * tile;
      const std::int64_t offset = i / tiles * view.n * view.inner + from;
      const std::int64_t width = std::min(tile, view.inner - from);
      columns(x + offset, y + offset, view.n, view.inner, width);
    }
  });
}

/// Rows one behind the other; false where there is no vector form.
bool run_f64(const SoftmaxF64& loops, Kind kind, const View& view, const double* x, double* y,
             const sdk::Threads& threads) {
  const auto rows = kind == Kind::kLogSoftmax ? loops.log_rows : loops.rows;
  if (rows == nullptr || view.inner != 1) return false;
  const double ns = 2 * static_cast<double>(view.n);
  split_loop(threads, view.outer, ns, 1, [&](std::int64_t begin, std::int64_t end) {
    rows(x + begin * view.n, y + begin * view.n, view.n, end - begin);
  });
  return true;
}

/// Along one axis since opset 13; before, over all axes from `axis` on taken together.
class Softmax {
 public:
  struct Prepared {
    Kind kind = Kind::kSoftmax;
    View view;
    const SoftmaxF32* f32 = nullptr;
    SoftmaxF64 f64{};
    ArgScan greatest{};
    const HalfConversion* half = nullptr;  // through float in the workspace
    bool is_double = false;

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t count = view.outer * view.n * view.inner;
      if (count == 0) return;
      const sdk::Tensor x = ctx.input(0);
      const sdk::Tensor y = ctx.output(0);
      if (is_double) {
        run(x.data<double>(), y.mutable_data<double>(), ctx.threads());
      } else if (half != nullptr) {
        auto* wide = ctx.workspace().mutable_data<float>();
        half->to_float(x.bytes_data(), wide, count);
        run(wide, wide, ctx.threads());
        half->from_float(wide, y.mutable_data<char>(), count);
      } else {
        run(x.data<float>(), y.mutable_data<float>(), ctx.threads());
      }
    }

   private:
    template <class T>
    void run(const T* x, T* y, const sdk::Threads& threads) const {
      if (kind == Kind::kHardmax && view.inner == 1) {
        run_hardmax(greatest, view, x, y, threads);
      } else if constexpr (std::is_same_v<T, float>) {
        if (kind == Kind::kHardmax) return run_scalar(kind, view, x, y, threads);
        run_f32(*f32, kind, view, x, y, threads);
      } else if (kind == Kind::kHardmax || !run_f64(f64, kind, view, x, y, threads)) {
        run_scalar(kind, view, x, y, threads);
      }
    }
  };

  Softmax(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        flattens_(node.since_version() < 13),
        axis_(node.get_int("axis", flattens_ ? 1 : -1)) {
    if (node.is("LogSoftmax")) kind_ = Kind::kLogSoftmax;
    if (node.is("Hardmax")) kind_ = Kind::kHardmax;
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    Prepared prepared;
    prepared.kind = kind_;
    prepared.view = view_of(x);
    prepared.f32 = &softmax_f32(isa_);
    prepared.f64 = softmax_f64(isa_);
    prepared.is_double = x.type() == DataType::Double;
    const DataType inner = prepared.is_double ? DataType::Double : DataType::Float;
    prepared.greatest = arg_scan(isa_, inner, {false, false});
    if (x.type() == DataType::Float16 || x.type() == DataType::BFloat16) {
      prepared.half = &half_conversion(isa_, x.type());
      ctx.set_workspace(static_cast<std::uint64_t>(x.size()) * sizeof(float));
    }
    return prepared;
  }

 private:
  View view_of(const sdk::Tensor& x) const {
    const int rank = x.rank();
    if (rank == 0) return {};
    if (flattens_) {
      // `axis` may be the rank: then nothing is left to normalise over.
      const int axis = axis_ == rank ? rank : common::normalize_axis(axis_, rank);
      return {common::product(x.dims(), 0, axis), common::product(x.dims(), axis, rank), 1};
    }
    const int axis = common::normalize_axis(axis_, rank);
    return {common::product(x.dims(), 0, axis), x.dim(axis),
            common::product(x.dims(), axis + 1, rank)};
  }

  Isa isa_;
  bool flattens_;
  std::int64_t axis_;
  Kind kind_ = Kind::kSoftmax;
};

}  // namespace

sdk::KernelList softmax_kernels() {
  sdk::KernelList list;
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", common::float_types())
                       .flags(BP_KERNEL_WIDENS_HALF)
                       .kernel<Softmax>());
  }
  return list;
}

}  // namespace backplane::cpu
