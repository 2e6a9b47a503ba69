// backplane.cpu::Rotate, which a rewrite makes of its parts: y = x * cos + turned(x) * sin, where turned(x) is the second half of
// x's last axis, negated, and then the first one. Inputs: x, cos, sin; the last two are broadcast to x, but for the last axis.
// Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).
#include "plugins/common/axes.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/cpu/dense/attention_rows.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Where the rows of a tensor begin that is broadcast to others' dims, the last axis left out; in elements.
class RowStarts {
 public:
  RowStarts() = default;
  RowStarts(sdk::DimsView from, sdk::DimsView to) : dims_(to.begin(), to.end()), steps_(to.size()) {
    std::int64_t step = 1;
    for (std::size_t back = 0; back < from.size(); ++back) {
      const std::int64_t size = from[from.size() - 1 - back];
      steps_[to.size() - 1 - back] = size == 1 ? 0 : step;
      step *= size;
    }
  }
  /// The same with strides of the tensor's own.
  void set_strides(const std::int64_t* strides) {
    if (strides != nullptr) steps_.assign(strides, strides + steps_.size());
  }
  std::int64_t at(std::int64_t row) const {
    std::int64_t start = 0;
    for (std::size_t axis = dims_.size() - 1; axis-- > 0;) {
      start += row % dims_[axis] * steps_[axis];
      row /= dims_[axis];
    }
    return start;
  }

 private:
  sdk::Dims dims_, steps_;
};

class Rotate {
 public:
  struct Prepared {
    const AttentionRows* loops;
    std::int64_t rows, width;
    RowStarts x, cos, sin;

    void compute(const sdk::ComputeContext& ctx) const {
      RowStarts from = x;
      from.set_strides(ctx.input(0).strides());
      const auto* values = ctx.input(0).data<float>();
      const auto *cosines = ctx.input(1).data<float>(), *sines = ctx.input(2).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      const double ns = 0.2 * static_cast<double>(width) + 10;
      split_loop(ctx.threads(), rows, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          loops->turn(values + from.at(row), cosines + cos.at(row), sines + sin.at(row),
                      y + row * width, width / 2);
        }
      });
    }
  };

  Rotate(const sdk::CreateContext& ctx, const sdk::Node&) : loops_(&attention_rows(isa_of(ctx))) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView dims = ctx.input(0).dims();
    for (const std::uint32_t i : {1u, 2u}) {
      const sdk::DimsView angles = ctx.input(i).dims();
      if (!common::broadcasts_to(angles, dims) || angles.empty() || angles.back() != dims.back())
        sdk::invalid("cosines and sines of ", to_string(angles), " do not fit values of ",
                     to_string(dims));
    }
    ctx.set_output(0, DataType::Float, dims);
    ctx.allow_in_place(0, 0);
    return {loops_,
            common::product(dims, 0, ctx.input(0).rank() - 1),
            dims.back(),
            {dims, dims},
            {ctx.input(1).dims(), dims},
            {ctx.input(2).dims(), dims}};
  }

 private:
  const AttentionRows* loops_;
};

}  // namespace

sdk::KernelList rotate_kernels() {
  return {sdk::op("Rotate", "backplane.cpu").name("cpu:rotate").kernel<Rotate>()};
}

}  // namespace backplane::cpu
