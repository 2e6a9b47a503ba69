// com.microsoft::LinearAttention: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// Each head of values has a state, which goes from token to token; states are independent of each other.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backplane/plugin.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/linear_state.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

struct LinearSizes {
  std::int64_t batch = 0, tokens = 0;
  std::int64_t query_heads = 0, key_heads = 0, heads = 0;  // the last: of values and states
  std::int64_t keys = 0, values = 0;                       // of a state
  std::int64_t decays = 0;  // of a head at a token: 0 none, 1, or `keys`
  std::int64_t rates = 0;   // of a token: 0 none, 1, or `heads`
  bool is_delta = false;
  float scale = 1;
};

class LinearAttention {
 public:
  enum Input : std::uint32_t { kQuery, kKey, kValue, kPast, kDecay, kBeta };

  struct Prepared {
    LinearSizes sizes;
    LinearState loops;

    void compute(const sdk::ComputeContext& ctx) const {
      auto* state = ctx.output(1).mutable_data<float>();
      const std::int64_t count = sizes.batch * sizes.heads * sizes.keys * sizes.values;
      if (!ctx.has_input(kPast)) {
        std::fill_n(state, count, 0.0F);
      } else if (ctx.input(kPast).data<float>() != state) {
        std::copy_n(ctx.input(kPast).data<float>(), count, state);
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
      const std::int64_t answers = std::max(sizes.query_heads, sizes.heads);
      const std::int64_t group = answers / sizes.heads;  // queries of this state
      const std::int64_t shared = answers / sizes.query_heads;
      for (std::int64_t t = 0; t < sizes.tokens; ++t) {
        const std::int64_t token = b * sizes.tokens + t;
        StateStep step{};
        step.key =
            ctx.input(kKey).data<float>() + (token * sizes.key_heads + key_head) * sizes.keys;
        step.value = ctx.input(kValue).data<float>() + (token * sizes.heads + head) * sizes.values;
        step.is_delta = sizes.is_delta;
        if (sizes.decays > 0) {
          const float* decay =
              ctx.input(kDecay).data<float>() + (token * sizes.heads + head) * sizes.decays;
          for (std::int64_t i = 0; i < sizes.decays; ++i) kept[i] = std::exp(decay[i]);
          step.kept = kept;
          step.kept_step = sizes.decays > 1 ? 1 : 0;
        }
        if (sizes.rates > 0)
          step.rate =
              ctx.input(kBeta).data<float>()[token * sizes.rates + (sizes.rates > 1 ? head : 0)];
        loops.take(step, sizes.keys, sizes.values, state, row);
        for (std::int64_t answer = head * group; answer < (head + 1) * group; ++answer) {
          loops.ask(
              ctx.input(kQuery).data<float>() +
                  (token * sizes.query_heads + answer / shared) * sizes.keys,
              sizes.scale, sizes.keys, sizes.values, state,
              ctx.output(0).mutable_data<float>() + (token * answers + answer) * sizes.values);
        }
      }
    }
  };

  LinearAttention(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        query_heads_(node.get_int("q_num_heads", 0)),
        heads_(node.get_int("kv_num_heads", 0)),
        scale_(node.get_float("scale", 0.0F)) {
    const std::string rule = node.get_string("update_rule", "gated_delta");
    is_gated_ = rule == "gated" || rule == "gated_delta";
    is_delta_ = rule == "delta" || rule == "gated_delta";
    if (!is_gated_ && !is_delta_ && rule != "linear")
      sdk::invalid("update_rule is ", rule, "; it is linear, gated, delta or gated_delta");
    if (node.get_int("state_window", 0) != 0) sdk::unsupported("attribute state_window is not 0");
    if (query_heads_ < 1 || heads_ < 1 ||
        (query_heads_ % heads_ != 0 && heads_ % query_heads_ != 0))
      sdk::invalid("q_num_heads is ", query_heads_, " and kv_num_heads ", heads_,
                   "; one must be a multiple of the other");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    LinearSizes sizes;
    plan_heads(ctx, sizes);
    if (is_gated_) {
      const std::int64_t last = last_of(ctx, kDecay, "decay", sizes);
      if (last != heads_ && last != heads_ * sizes.keys)
        sdk::invalid("decay has ", last, " columns; it needs ", heads_, " or ",
                     heads_ * sizes.keys);
      sizes.decays = last / heads_;
    }
    if (is_delta_) {
      sizes.rates = last_of(ctx, kBeta, "beta", sizes);
      if (sizes.rates != heads_ && sizes.rates != 1)
        sdk::invalid("beta has ", sizes.rates, " columns; it needs ", heads_, " or 1");
    }
    const sdk::Dims state{sizes.batch, heads_, sizes.keys, sizes.values};
    const sdk::Tensor past = ctx.input(kPast);
    if (past.present() && sdk::Dims(past.dims().begin(), past.dims().end()) != state)
      sdk::invalid("past_state has dims ", sdk::to_string(past.dims()), ", expected ",
                   sdk::to_string(state));
    ctx.set_output(
        0, sdk::DataType::Float,
        sdk::Dims{sizes.batch, sizes.tokens, std::max(query_heads_, heads_) * sizes.values});
    ctx.set_output(1, sdk::DataType::Float, state);
    if (past.present()) ctx.allow_in_place(1, kPast);
    ctx.set_workspace(
        static_cast<std::uint64_t>(sizes.batch * heads_ * (sizes.keys + sizes.values)) *
        sizeof(float));
    return {sizes, linear_state(isa_)};
  }

 private:
  void plan_heads(const sdk::PrepareContext& ctx, LinearSizes& sizes) const {
    const sdk::Tensor query = ctx.input(kQuery);
    if (query.rank() != 3 || query.dim(2) % query_heads_ != 0)
      sdk::invalid("query has dims ", sdk::to_string(query.dims()), " for ", query_heads_,
                   " heads");
    sizes.batch = query.dim(0);
    sizes.tokens = query.dim(1);
    sizes.query_heads = query_heads_;
    sizes.heads = heads_;
    sizes.keys = query.dim(2) / query_heads_;
    const std::int64_t key = last_of(ctx, kKey, "key", sizes);
    const std::int64_t value = last_of(ctx, kValue, "value", sizes);
    sizes.key_heads = sizes.keys > 0 ? key / sizes.keys : heads_;
    if (sizes.key_heads * sizes.keys != key || sizes.key_heads < 1 || heads_ % sizes.key_heads != 0)
      sdk::invalid("key has ", key, " columns for heads of ", sizes.keys, "; ", heads_,
                   " heads, or a divisor of that, are needed");
    if (value % heads_ != 0) sdk::invalid("value has ", value, " columns for ", heads_, " heads");
    sizes.values = value / heads_;
    sizes.is_delta = is_delta_;
    sizes.scale = scale_ != 0.0F ? scale_ : 1.0F / std::sqrt(static_cast<float>(sizes.keys));
  }

  /// The columns of [batch, tokens, columns].
  static std::int64_t last_of(const sdk::PrepareContext& ctx, std::uint32_t input, const char* name,
                              const LinearSizes& sizes) {
    const sdk::Tensor tensor = ctx.input(input);
    if (!tensor.present()) sdk::invalid("input ", name, " is left out, but update_rule needs it");
    if (tensor.rank() != 3 || tensor.dim(0) != sizes.batch || tensor.dim(1) != sizes.tokens)
      sdk::invalid(name, " has dims ", sdk::to_string(tensor.dims()), ", expected [", sizes.batch,
                   ", ", sizes.tokens, ", ...]");
    return tensor.dim(2);
  }

  Isa isa_;
  std::int64_t query_heads_, heads_;
  float scale_;
  bool is_gated_ = false, is_delta_ = false;
};

}  // namespace

sdk::KernelList linear_attention_kernels() {
  return {sdk::op("LinearAttention", "com.microsoft")
              .name("cpu:linear_attention")
              .types("T", {sdk::DataType::Float})
              .types("S", {sdk::DataType::Float})
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<LinearAttention>()};
}

}  // namespace backplane::cpu
