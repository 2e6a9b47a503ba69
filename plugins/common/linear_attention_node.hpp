// What a LinearAttention node asks for: https://onnx.ai/onnx/operators/onnx__LinearAttention.html, and the operator of com.microsoft:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "backplane/plugin.hpp"

namespace backplane::common {

struct LinearAttentionSizes {
  std::int64_t batch = 0, tokens = 0;
  std::int64_t query_heads = 0, key_heads = 0, heads = 0;  ///< the last: of values and states
  std::int64_t keys = 0, values = 0;                       ///< of a state
  std::int64_t decays = 0;  ///< of a head at a token: 0 none, 1, or `keys`
  std::int64_t rates = 0;   ///< of a token: 0 none, 1, or `heads`
  float scale = 1;

  /// Heads of the result: each query's, and each state's where several share a query.
  std::int64_t answers() const { return std::max(query_heads, heads); }
};

/// Each head of values has a state [keys, values], which goes on from token to token.
struct LinearAttentionRule {
  enum Input : std::uint32_t { kQuery, kKey, kValue, kPast, kDecay, kBeta };

  explicit LinearAttentionRule(const sdk::Node& node)
      : query_heads(node.get_int("q_num_heads", 0)),
        heads(node.get_int("kv_num_heads", 0)),
        scale(node.get_float("scale", 0.0F)) {
    const std::string rule = node.get_string("update_rule", "gated_delta");
    is_gated = rule == "gated" || rule == "gated_delta";
    is_delta = rule == "delta" || rule == "gated_delta";
    if (!is_gated && !is_delta && rule != "linear")
      sdk::invalid("update_rule is ", rule, "; it is linear, gated, delta or gated_delta");
    if (node.get_int("state_window", 0) != 0) sdk::unsupported("attribute state_window is not 0");
    if (query_heads < 1 || heads < 1 || (query_heads % heads != 0 && heads % query_heads != 0))
      sdk::invalid("q_num_heads is ", query_heads, " and kv_num_heads ", heads,
                   "; one must be a multiple of the other");
  }

  /// Checks the inputs and sets the outputs.
  LinearAttentionSizes set_dims(sdk::PrepareContext& ctx) const {
    LinearAttentionSizes sizes = sizes_of(ctx);
    if (is_gated) {
      const std::int64_t last = last_of(ctx, kDecay, "decay", sizes);
      if (last != heads && last != heads * sizes.keys)
        sdk::invalid("decay has ", last, " columns; it needs ", heads, " or ", heads * sizes.keys);
      sizes.decays = last / heads;
    }
    if (is_delta) {
      sizes.rates = last_of(ctx, kBeta, "beta", sizes);
      if (sizes.rates != heads && sizes.rates != 1)
        sdk::invalid("beta has ", sizes.rates, " columns; it needs ", heads, " or 1");
    }
    const sdk::Dims state{sizes.batch, heads, sizes.keys, sizes.values};
    const sdk::Tensor query = ctx.input(kQuery), past = ctx.input(kPast);
    if (past.present() && sdk::Dims(past.dims().begin(), past.dims().end()) != state)
      sdk::invalid("past_state has dims ", sdk::to_string(past.dims()), ", expected ",
                   sdk::to_string(state));
    ctx.set_output(0, query.type(),
                   sdk::Dims{sizes.batch, sizes.tokens, sizes.answers() * sizes.values});
    ctx.set_output(1, past.present() ? past.type() : query.type(), state);
    return sizes;
  }

  std::int64_t query_heads, heads;
  float scale;
  bool is_gated = false;
  bool is_delta = false;  ///< only what the state does not yet have for the key is taken in

 private:
  LinearAttentionSizes sizes_of(const sdk::PrepareContext& ctx) const {
    const sdk::Tensor query = ctx.input(kQuery);
    if (query.rank() != 3 || query.dim(2) % query_heads != 0)
      sdk::invalid("query has dims ", sdk::to_string(query.dims()), " for ", query_heads, " heads");
    LinearAttentionSizes sizes;
    sizes.batch = query.dim(0);
    sizes.tokens = query.dim(1);
    sizes.query_heads = query_heads;
    sizes.heads = heads;
    sizes.keys = query.dim(2) / query_heads;
    const std::int64_t key = last_of(ctx, kKey, "key", sizes);
    const std::int64_t value = last_of(ctx, kValue, "value", sizes);
    sizes.key_heads = sizes.keys > 0 ? key / sizes.keys : heads;
    if (sizes.key_heads * sizes.keys != key || sizes.key_heads < 1 || heads % sizes.key_heads != 0)
      sdk::invalid("key has ", key, " columns for heads of ", sizes.keys, "; ", heads,
                   " heads, or a divisor of that, are needed");
    if (value % heads != 0) sdk::invalid("value has ", value, " columns for ", heads, " heads");
    sizes.values = value / heads;
    sizes.scale = scale != 0.0F ? scale : 1.0F / std::sqrt(static_cast<float>(sizes.keys));
    return sizes;
  }

  /// The columns of [batch, tokens, columns].
  static std::int64_t last_of(const sdk::PrepareContext& ctx, Input input, const char* name,
                              const LinearAttentionSizes& sizes) {
    const sdk::Tensor tensor = ctx.input(input);
    if (!tensor.present()) sdk::invalid("input ", name, " is left out, but update_rule needs it");
    if (tensor.rank() != 3 || tensor.dim(0) != sizes.batch || tensor.dim(1) != sizes.tokens)
      sdk::invalid(name, " has dims ", sdk::to_string(tensor.dims()), ", expected [", sizes.batch,
                   ", ", sizes.tokens, ", ...]");
    return tensor.dim(2);
  }
};

}  // namespace backplane::common
