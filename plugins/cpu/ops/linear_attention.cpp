// LinearAttention of ONNX and of com.microsoft. States are independent of each other.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backplane/plugin.hpp"
#include "plugins/common/linear_attention_node.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/linear_state.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

class LinearAttention {
  using Rule = common::LinearAttentionRule;

 public:
  struct Prepared {
    common::LinearAttentionSizes sizes;
    bool is_delta;
    LinearState loops;

    void compute(const sdk::ComputeContext& ctx) const {
      auto* state = ctx.output(1).mutable_data<float>();
      const std::int64_t count = sizes.batch * sizes.heads * sizes.keys * sizes.values;
      if (!ctx.has_input(Rule::kPast)) {
        std::fill_n(state, count, 0.0F);
      } else if (ctx.input(Rule::kPast).data<float>() != state) {
        std::copy_n(ctx.input(Rule::kPast).data<float>(), count, state);
      }
      const double ns = 0.2 * static_cast<double>(sizes.tokens * sizes.keys * sizes.values);
      auto* scratch = ctx.workspace().mutable_data<float>();
      split_loop(ctx.threads(), sizes.batch * sizes.heads, ns, 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     compute_head(ctx, i / sizes.heads, i % sizes.heads,
                                  scratch + i * (sizes.keys + sizes.values));
                 });
    }

   private:
    void compute_head(const sdk::ComputeContext& ctx, std::int64_t b, std::int64_t head,
                      float* scratch) const {
      float* row = scratch;
      float* kept = scratch + sizes.values;
      float* state = ctx.output(1).mutable_data<float>() +
                     (b * sizes.heads + head) * sizes.keys * sizes.values;
      const std::int64_t key_head = head / (sizes.heads / sizes.key_heads);
      const std::int64_t answers = sizes.answers();
      const std::int64_t group = answers / sizes.heads;  // queries of this state
      const std::int64_t shared = answers / sizes.query_heads;
      for (std::int64_t t = 0; t < sizes.tokens; ++t) {
        const std::int64_t token = b * sizes.tokens + t;
        StateStep step{};
        step.key =
            ctx.input(Rule::kKey).data<float>() + (token * sizes.key_heads + key_head) * sizes.keys;
        step.value =
            ctx.input(Rule::kValue).data<float>() + (token * sizes.heads + head) * sizes.values;
        step.is_delta = is_delta;
        if (sizes.decays > 0) {
          const float* decay =
              ctx.input(Rule::kDecay).data<float>() + (token * sizes.heads + head) * sizes.decays;
          for (std::int64_t i = 0; i < sizes.decays; ++i) kept[i] = std::exp(decay[i]);
          step.kept = kept;
          step.kept_step = sizes.decays > 1 ? 1 : 0;
        }
        if (sizes.rates > 0)
          step.rate = ctx.input(Rule::kBeta)
                          .data<float>()[token * sizes.rates + (sizes.rates > 1 ? head : 0)];
        loops.take(step, sizes.keys, sizes.values, state, row);
        for (std::int64_t answer = head * group; answer < (head + 1) * group; ++answer) {
          loops.ask(
              ctx.input(Rule::kQuery).data<float>() +
                  (token * sizes.query_heads + answer / shared) * sizes.keys,
              sizes.scale, sizes.keys, sizes.values, state,
              ctx.output(0).mutable_data<float>() + (token * answers + answer) * sizes.values);
        }
      }
    }
  };

  LinearAttention(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)), rule_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const common::LinearAttentionSizes sizes = rule_.set_dims(ctx);
    if (ctx.input(Rule::kPast).present()) ctx.allow_in_place(1, Rule::kPast);
    ctx.set_workspace(
        static_cast<std::uint64_t>(sizes.batch * sizes.heads * (sizes.keys + sizes.values)) *
        sizeof(float));
    return {sizes, rule_.is_delta, linear_state(isa_)};
  }

 private:
  Isa isa_;
  Rule rule_;
};

sdk::KernelEntry entry(const char* domain) {
  return sdk::op("LinearAttention", domain)
      .name("cpu:linear_attention")
      .types("T", {sdk::DataType::Float})
      .types("S", {sdk::DataType::Float})
      .flags(BP_KERNEL_WIDENS_HALF)
      .kernel<LinearAttention>();
}

}  // namespace

sdk::KernelList linear_attention_kernels() { return {entry(""), entry("com.microsoft")}; }

}  // namespace backplane::cpu
