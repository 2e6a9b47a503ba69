// CumSum, CumProd: https://onnx.ai/onnx/operators/onnx__CumSum.html, onnx__CumProd.html
#include <algorithm>

#include "backplane/plugin.hpp"
#include "backplane/plugin_api/optional/widening.h"
#include "plugins/common/axes.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/binary_scalar.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

/// x viewed as [outer, n, inner]; partial results along n.
struct Lanes {
  std::int64_t outer;
  std::int64_t n;
  std::int64_t inner;
  bool reverse;  // from the end
};

constexpr std::int64_t kTogether = 256;  // columns side by side

/// Some columns, or one (kOne). 16-bit numbers are summed in float and rounded at each element.
template <class T, BinaryOp op, bool kOne, bool kExclusive>
void accumulate(const Lanes& view, const T* x, T* y, std::int64_t columns) {
  using W = common::Wide<T>;
  const ScalarBinary<op> combine;
  const std::int64_t count = kOne ? 1 : columns;
  W total[kOne ? 1 : kTogether];
  std::fill_n(total, count, op == BinaryOp::kMul ? W(1) : W(0));
  for (std::int64_t k = 0; k < view.n; ++k) {
    const std::int64_t at = (view.reverse ? view.n - 1 - k : k) * view.inner;
    for (std::int64_t i = 0; i < count; ++i) {
      const W value = common::widen(x[at + i]);  // before y, which may be the same memory
      const W next = combine(total[i], value);
      y[at + i] = common::narrow<T>(kExclusive ? total[i] : next);
      total[i] = next;
    }
  }
}

template <class T, BinaryOp op, bool kExclusive>
void accumulate_all(const Lanes& view, const void* from, void* to, const sdk::Threads& threads) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  if (view.outer == 0 || view.n == 0 || view.inner == 0)
    return;  // there may be any number of columns without elements
  const std::int64_t blocks = (view.inner + kTogether - 1) / kTogether;
  const std::int64_t most = std::min(view.inner, kTogether);
  const double ns =
      (view.inner == 1 ? 2.0 : 0.5 * static_cast<double>(most)) * static_cast<double>(view.n);
  split_loop(threads, view.outer * blocks, ns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t column = i % blocks * kTogether;
      const std::int64_t offset = i / blocks * view.n * view.inner + column;
      if (view.inner == 1) {
        accumulate<T, op, true, kExclusive>(view, x + offset, y + offset, 1);
      } else {
        accumulate<T, op, false, kExclusive>(view, x + offset, y + offset,
                                             std::min(kTogether, view.inner - column));
      }
    }
  });
}

using Run = void (*)(const Lanes& view, const void* from, void* to, const sdk::Threads& threads);

class Cumulative {
 public:
  struct Prepared {
    Lanes view;
    Run run;
    void compute(const sdk::ComputeContext& ctx) const {
      run(view, ctx.input(0).bytes_data(), ctx.output(0).mutable_data<char>(), ctx.threads());
    }
  };

  Cumulative(const sdk::CreateContext&, const sdk::Node& node)
      : exclusive_(node.get_int("exclusive", 0) != 0),
        reverse_(node.get_int("reverse", 0) != 0),
        product_(node.is("CumProd")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const std::vector<std::int64_t> axes = ctx.input(1).to_ints();
    if (axes.size() != 1) sdk::invalid("input 'axis' has ", axes.size(), " elements; it needs one");
    const int axis = common::normalize_axis(axes[0], x.rank());
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    const Lanes view{common::product(x.dims(), 0, axis), x.dim(axis),
                     common::product(x.dims(), axis + 1, x.rank()), reverse_};
    const Run run = common::with_number(x.type(), [this](auto tag) -> Run {
      using T = typename decltype(tag)::type;
      if (exclusive_)
        return product_ ? accumulate_all<T, BinaryOp::kMul, true>
                        : accumulate_all<T, BinaryOp::kAdd, true>;
      return product_ ? accumulate_all<T, BinaryOp::kMul, false>
                      : accumulate_all<T, BinaryOp::kAdd, false>;
    });
    return {view, run};
  }

 private:
  bool exclusive_;
  bool reverse_;
  bool product_;
};

}  // namespace

sdk::KernelList cumulative_kernels() {
  sdk::KernelList list;
  for (const char* op : {"CumSum", "CumProd"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", common::number_types())
                       .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})
                       .flags(BP_KERNEL_WIDENS_HALF)
                       .kernel<Cumulative>());
  }
  return list;
}

}  // namespace backplane::cpu
