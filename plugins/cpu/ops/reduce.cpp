// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2, ReduceLogSum,
// ReduceLogSumExp, ReduceSumSquare: https://onnx.ai/onnx/operators/onnx__ReduceSum.html and the pages
// beside it.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/fold_loops.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/kernels/reduction.hpp"
#include "plugins/cpu/kernels/softmax_f32.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

enum class Finish { kNothing, kMean, kSqrt, kLog };

/// An operator is a fold and what is done to its result. `log_sum_exp` is one of its own.
struct Row {
  const char* op_type;
  Fold fold;
  Finish finish;
  bool log_sum_exp;
};

constexpr Row kRows[] = {
    {"ReduceSum", Fold::kSum, Finish::kNothing, false},
    {"ReduceMean", Fold::kSum, Finish::kMean, false},
    {"ReduceMax", Fold::kMax, Finish::kNothing, false},
    {"ReduceMin", Fold::kMin, Finish::kNothing, false},
    {"ReduceProd", Fold::kProd, Finish::kNothing, false},
    {"ReduceL1", Fold::kSumAbs, Finish::kNothing, false},
    {"ReduceL2", Fold::kSumSquare, Finish::kSqrt, false},
    {"ReduceLogSum", Fold::kSum, Finish::kLog, false},
    {"ReduceLogSumExp", Fold::kMax, Finish::kNothing, true},
    {"ReduceSumSquare", Fold::kSumSquare, Finish::kNothing, false},
};

const Row& find_row(std::string_view op_type) {
  for (const Row& row : kRows) {
    if (op_type == row.op_type) return row;
  }
  sdk::unsupported("the reduction kernel does not know operator '", op_type, "'");
}

/// The elements of T that accumulators become.
template <class T, class Acc>
void finish_all(Finish finish, std::int64_t depth, const Acc* acc, T* y, std::int64_t n) {
  const auto each = [=](auto one) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(one(acc[i]));
  };
  // Integers are accumulated without a sign, and of roots and logarithms the whole part is taken.
  using Signed =
      std::conditional_t<std::is_floating_point_v<T>, T,
                         std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
  using Real = std::conditional_t<std::is_floating_point_v<T>, T, double>;
  const auto count = static_cast<Signed>(depth);
  switch (finish) {
    case Finish::kMean:
      if (std::is_integral_v<T> && depth == 0) return each([](Acc) { return T(0); });
      return each([count](Acc a) { return static_cast<Signed>(a) / count; });
    case Finish::kSqrt:
      return each([](Acc a) { return std::sqrt(static_cast<Real>(static_cast<Signed>(a))); });
    case Finish::kLog:
      return each([](Acc a) { return std::log(static_cast<Real>(static_cast<Signed>(a))); });
    case Finish::kNothing:
      return each([](Acc a) { return a; });
  }
}

/// log(sum(exp(x))) = m + log(sum(exp(x - m))) with m the greatest x, so that nothing overflows.
template <class T, class Real>
void log_sum_exp(const ReductionShape& shape, const T* x, T* y, const sdk::Threads& threads) {
  const std::int64_t inner = shape.last_folded ? 1 : shape.last;
  const std::int64_t row = shape.last_folded ? shape.last : 1;
  const double ns = 20.0 * static_cast<double>(shape.depth());
  split_loop(threads, shape.kept_count * inner, ns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      // A number, since there is nothing to point at where nothing is folded.
      const std::int64_t base = axes_offset(shape.kept, i / inner) + i % inner;
      Real greatest = -std::numeric_limits<Real>::infinity();
      for (std::int64_t f = 0; f < shape.folded_count; ++f) {
        const T* from = x + base + axes_offset(shape.folded, f);
        for (std::int64_t k = 0; k < row; ++k) {
          greatest = fold_one<Fold::kMax>(greatest, static_cast<Real>(from[k]));
        }
      }
      const Real shift = std::isfinite(greatest) ? greatest : Real(0);
      double sum = 0;
      for (std::int64_t f = 0; f < shape.folded_count; ++f) {
        const T* from = x + base + axes_offset(shape.folded, f);
        for (std::int64_t k = 0; k < row; ++k) {
          sum += static_cast<double>(std::exp(static_cast<Real>(from[k]) - shift));
        }
      }
      y[i] = static_cast<T>(static_cast<double>(shift) + std::log(sum));
    }
  });
}

/// The same for rows of floats, one behind the other.
void log_sum_exp_rows(const ReductionShape& shape, Isa isa, const float* x, float* y,
                      const sdk::Threads& threads) {
  const FoldF32 greatest = fold_f32(isa, Fold::kMax);
  const SoftmaxF32& loops = softmax_f32(isa);
  const std::int64_t n = shape.last;
  const double ns = 2.0 * static_cast<double>(n) + 2.0;
  split_loop(threads, shape.kept_count, ns, 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, kSoftmaxTile> max;
    for (std::int64_t i = begin; i < end; i += kSoftmaxTile) {
      const std::int64_t rows = std::min(kSoftmaxTile, end - i);
      greatest.rows(x + i * n, rows, n, max.data());
      loops.log_sums(x + i * n, max.data(), y + i, n, rows);
    }
  });
}

/// A planned reduction.
struct Job {
  ReductionShape shape;
  Row row{};
  Isa isa = Isa::kBaseline;
};

template <class T, Fold fold>
void run_fold(const Job& job, const T* x, T* y, const sdk::Threads& threads) {
  const double ns = std::is_same_v<T, float> ? 0.08 : 0.6;
  const std::int64_t depth = job.shape.depth();
  run_reduction(job.shape, fold_loops<fold, T>(job.isa), x, y, threads, ns,
                [&](const auto* acc, T* to, std::int64_t n) {
                  finish_all(job.row.finish, depth, acc, to, n);
                });
}

template <class T>
void run_typed(const Job& job, const void* from, void* to, const sdk::Threads& threads) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  if (job.row.log_sum_exp) {
    if constexpr (std::is_same_v<T, float>) {
      if (job.shape.last_folded && job.shape.folded.empty() && job.shape.last > 0)
        return log_sum_exp_rows(job.shape, job.isa, x, y, threads);
    }
    log_sum_exp<T, std::conditional_t<std::is_same_v<T, float>, float, double>>(job.shape, x, y,
                                                                                threads);
    return;
  }
  switch (job.row.fold) {
    case Fold::kSum:
      return run_fold<T, Fold::kSum>(job, x, y, threads);
    case Fold::kSumAbs:
      return run_fold<T, Fold::kSumAbs>(job, x, y, threads);
    case Fold::kSumSquare:
      return run_fold<T, Fold::kSumSquare>(job, x, y, threads);
    case Fold::kProd:
      return run_fold<T, Fold::kProd>(job, x, y, threads);
    case Fold::kMax:
      return run_fold<T, Fold::kMax>(job, x, y, threads);
    case Fold::kMin:
      return run_fold<T, Fold::kMin>(job, x, y, threads);
  }
}

using Run = void (*)(const Job& job, const void* x, void* y, const sdk::Threads& threads);

/// Attribute or input `axes`, `keepdims`, `noop_with_empty_axes`.
class Reduce {
 public:
  struct Prepared {
    Job job;
    Run run = nullptr;
    const HalfConversion* half = nullptr;  // the 16-bit types, through float in the workspace
    std::int64_t in_count = 0;
    std::int64_t out_count = 0;

    void compute(const sdk::ComputeContext& ctx) const {
      const void* x = ctx.input(0).bytes_data();
      void* y = ctx.output(0).mutable_data<char>();
      if (half == nullptr) {
        run(job, x, y, ctx.threads());
        return;
      }
      auto* wide = ctx.workspace().mutable_data<float>();
      if (in_count > 0) half->to_float(x, wide, in_count);
      run(job, wide, wide + in_count, ctx.threads());
      half->from_float(wide + in_count, y, out_count);
    }
  };

  Reduce(const sdk::CreateContext& ctx, const sdk::Node& node)
      : row_(find_row(node.op_type())),
        isa_(isa_of(ctx)),
        keepdims_(node.get_int("keepdims", 1) != 0),
        noop_(node.get_int("noop_with_empty_axes", 0) != 0),
        axes_(node.get_ints("axes")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const std::vector<int> axes = chosen_axes(ctx, x.rank());
    sdk::Dims out;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const bool folded = std::binary_search(axes.begin(), axes.end(), axis);
      if (!folded) out.push_back(x.dim(axis));
      if (folded && keepdims_) out.push_back(1);
    }
    ctx.set_output(0, x.type(), out);
    Prepared prepared;
    prepared.job = {plan_reduction(x.dims(), axes), row_, isa_};
    prepared.in_count = x.size();
    prepared.out_count = sdk::element_count(out);
    const bool is_half = x.type() == DataType::Float16 || x.type() == DataType::BFloat16;
    if (is_half) {
      prepared.half = &half_conversion(isa_, x.type());
      prepared.run = run_typed<float>;
      ctx.set_workspace(static_cast<std::uint64_t>(prepared.in_count + prepared.out_count) * 4);
    } else if (x.type() == DataType::Bool) {
      prepared.run = run_typed<std::uint8_t>;
    } else {
      prepared.run = common::with_number(x.type(), [](auto tag) -> Run {
        using T = typename decltype(tag)::type;
        if constexpr (common::kIsHalfType<T>)
          return nullptr;
        else
          return run_typed<T>;
      });
    }
    return prepared;
  }

 private:
  std::vector<int> chosen_axes(sdk::PrepareContext& ctx, int rank) const {
    std::vector<std::int64_t> axes = axes_;
    if (ctx.input(1).present()) axes = ctx.input(1).to_ints();
    if (axes.empty() && !noop_) {
      for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
    }
    return common::normalize_axes(axes, rank);
  }

  const Row& row_;
  Isa isa_;
  bool keepdims_;
  bool noop_;
  std::vector<std::int64_t> axes_;
};

}  // namespace

sdk::KernelList reduce_kernels() {
  sdk::KernelList list;
  for (const Row& row : kRows) {
    common::TypeList types = common::number_types();
    if (row.fold == Fold::kMax || row.fold == Fold::kMin) types.push_back(DataType::Bool);
    list.push_back(sdk::op(row.op_type)
                       .name(std::string("cpu:") + row.op_type)
                       .types("T", types)
                       .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})
                       .flags(BP_KERNEL_WIDENS_HALF)
                       .kernel<Reduce>());
  }
  return list;
}

}  // namespace backplane::cpu
