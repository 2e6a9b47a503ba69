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

/// All axes but the last.
sdk::DimsView rows_of(sdk::DimsView dims) { return {dims.data(), dims.size() - 1}; }

class Rotate {
 public:
  struct Prepared {
    const AttentionRows* loops;
    std::int64_t rows, width;
    common::BroadcastLoops angles;  // of cosines' and sines' rows

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* values = ctx.input(0).data<float>();
      const auto *cosines = ctx.input(1).data<float>(), *sines = ctx.input(2).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      const double ns = 0.2 * static_cast<double>(width) + 10;
      split_loop(ctx.threads(), rows, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          loops->turn(values + row * width, cosines + angles.offset(0, row) * width,
                      sines + angles.offset(1, row) * width, y + row * width, width / 2);
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
    return {loops_, common::product(dims, 0, ctx.input(0).rank() - 1), dims.back(),
            common::plan_broadcast(rows_of(dims),
                                   {rows_of(ctx.input(1).dims()), rows_of(ctx.input(2).dims())})};
  }

 private:
  const AttentionRows* loops_;
};

}  // namespace

sdk::KernelList rotate_kernels() {
  return {sdk::op("Rotate", "backplane.cpu").name("cpu:rotate").kernel<Rotate>()};
}

}  // namespace backplane::cpu
