// LpNormalization, MeanVarianceNormalization:
// https://onnx.ai/onnx/operators/onnx__LpNormalization.html,
// onnx__MeanVarianceNormalization.html
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/as_real.hpp"
#include "plugins/cpu/kernels/binary_plan.hpp"
#include "plugins/cpu/kernels/fold_loops.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Divides by a statistic over some axes: the 1- or 2-norm; or, after taking the mean away, by the
/// standard deviation and 1e-9.
enum class Kind { kL1, kL2, kMeanVariance };

/// y[i] = finish(sum[i]).
template <class T, class Finish>
auto each(const Finish& finish) {
  return [finish](const T* sum, T* y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = finish(sum[i]);
  };
}

class AxesNormalization {
 public:
  struct Prepared {
    Kind kind = Kind::kL2;
    ReductionShape shape;
    std::int64_t count = 0;
    std::int64_t statistics = 0;  // how many
    BroadcastRows subtract;
    BroadcastRows divide;
    Isa isa = Isa::kBaseline;
    bool in_double = false;
    bool converts = false;

    void compute(const sdk::ComputeContext& ctx) const {
      if (count == 0) return;
      if (in_double) {
        run<double>(ctx);
      } else {
        run<float>(ctx);
      }
    }

   private:
    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      Pieces pieces(ctx.workspace());
      T* statistic = pieces.take<T>(statistics);
      T* scratch = converts ? pieces.take<T>(count) : nullptr;
      const T* x = read_as<T>(ctx.input(0), scratch, isa);
      T* y = write_as<T>(ctx.output(0), scratch);
      const auto depth = static_cast<T>(shape.depth());
      constexpr double kNs = 0.3;
      const sdk::Threads threads = ctx.threads();
      if (kind == Kind::kL1) {
        // A norm of 0 is that of zeros, which stay zeros.
        run_reduction(shape, fold_loops<Fold::kSumAbs, T>(isa), x, statistic, threads, kNs,
                      each<T>([](T sum) { return sum == 0 ? T(1) : sum; }));
      } else if (kind == Kind::kL2) {
        run_reduction(shape, fold_loops<Fold::kSumSquare, T>(isa), x, statistic, threads, kNs,
                      each<T>([](T sum) { return sum == 0 ? T(1) : std::sqrt(sum); }));
      } else {
        run_reduction(shape, fold_loops<Fold::kSum, T>(isa), x, statistic, threads, kNs,
                      each<T>([depth](T sum) { return sum / depth; }));
        subtract.run(x, statistic, y, threads);
        x = y;
        run_reduction(shape, fold_loops<Fold::kSumSquare, T>(isa), x, statistic, threads, kNs,
                      each<T>([depth](T sum) { return std::sqrt(sum / depth) + T(1e-9); }));
      }
      divide.run(x, statistic, y, threads);
      finish_write<T>(ctx.output(0), y, isa);
    }
  };

  AxesNormalization(const sdk::CreateContext& ctx, const sdk::Node& node) : isa_(isa_of(ctx)) {
    if (node.is("MeanVarianceNormalization")) {
      kind_ = Kind::kMeanVariance;
      axes_ = node.has("axes") ? node.get_ints("axes") : std::vector<std::int64_t>{0, 2, 3};
      return;
    }
    axes_ = {node.get_int("axis", -1)};
    const std::int64_t p = node.get_int("p", 2);
    if (p != 1 && p != 2) sdk::invalid("attribute 'p' of LpNormalization is ", p, "; use 1 or 2");
    kind_ = p == 1 ? Kind::kL1 : Kind::kL2;
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const std::vector<int> axes = common::normalize_axes(axes_, x.rank());
    sdk::Dims reduced(x.dims().begin(), x.dims().end());
    for (const int axis : axes) reduced[static_cast<std::size_t>(axis)] = 1;
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    Prepared prepared;
    prepared.kind = kind_;
    prepared.shape = plan_reduction(x.dims(), axes);
    prepared.count = x.size();
    prepared.statistics = sdk::element_count(reduced);
    prepared.isa = isa_;
    prepared.in_double = computes_in_double(x.type());
    prepared.converts = x.type() != DataType::Float && x.type() != DataType::Double;
    const DataType inner = prepared.in_double ? DataType::Double : DataType::Float;
    prepared.subtract = plan_binary(BinaryOp::kSub, inner, isa_, x.dims(), reduced, x.dims());
    prepared.divide = plan_binary(BinaryOp::kDiv, inner, isa_, x.dims(), reduced, x.dims());
    if (prepared.count > 0)
      ctx.set_workspace(Pieces::bytes(prepared.statistics, prepared.converts ? prepared.count : 0));
    return prepared;
  }

 private:
  Isa isa_;
  Kind kind_ = Kind::kL2;
  std::vector<std::int64_t> axes_;
};

}  // namespace

sdk::KernelList lp_normalization_kernels() {
  sdk::KernelList list;
  for (const char* op : {"LpNormalization", "MeanVarianceNormalization"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", common::float_types())
                       .flags(BP_KERNEL_WIDENS_HALF)
                       .kernel<AxesNormalization>());
  }
  return list;
}

}  // namespace backplane::cpu
