// com.microsoft::MoE, one token and one of its experts at a time:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

using TokenRow = std::vector<double>;

/// An expert's matrix, input `index`, times a row, and its bias.
TokenRow expert_product(const Call& call, std::size_t index, std::int64_t expert,
                        const TokenRow& row) {
  const Array& weights = call.input(index);
  const Array* bias = call.optional(index + 1);
  TokenRow y;
  for (std::int64_t j = 0; j < weights.dims[1]; ++j) {
    double sum = bias != nullptr ? bias->values[offset_of(bias->dims, {expert, j})] : 0;
    for (std::int64_t k = 0; k < weights.dims[2]; ++k)
      sum += row[static_cast<std::size_t>(k)] *
             weights.values[offset_of(weights.dims, {expert, j, k})];
    y.push_back(sum);
  }
  return y;
}

double gate_share(double x) { return 1 / (1 + std::exp(-x)); }

/// What an expert's first projection becomes; `apart`: the third one's row, or none.
TokenRow activated_row(const Call& call, const TokenRow& x, const TokenRow& apart) {
  const std::string kind = call.text("activation_type", "relu");
  const std::int64_t fusion = kind == "swiglu" ? call.integer("swiglu_fusion", 0) : 0;
  const std::size_t inner = fusion == 0 ? x.size() : x.size() / 2;
  const double limit = kind == "swiglu" ? call.number("swiglu_limit", HUGE_VAL) : HUGE_VAL;
  const double alpha = kind == "swiglu" ? call.number("activation_alpha", 1) : 1;
  const double beta = kind == "swiglu" ? call.number("activation_beta", 0) : 0;
  TokenRow y;
  for (std::size_t i = 0; i < inner; ++i) {
    double v = std::min(x[fusion == 1 ? 2 * i : i], limit);
    if (kind == "relu") v = std::max(v, 0.0);
    if (kind == "silu" || kind == "swiglu") v *= gate_share(alpha * v);
    if (kind == "gelu")
      v *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
    double linear = 1;
    if (!apart.empty()) linear = apart[i];
    if (fusion != 0) linear = x[fusion == 1 ? 2 * i + 1 : inner + i];
    y.push_back(v * (std::clamp(linear, -limit, limit) + beta));
  }
  return y;
}

Arrays mixture_of_experts(const Call& call) {
  const Array &x = call.input(0), &router = call.input(1);
  const std::int64_t experts = call.input(2).dims[0], hidden = x.dims.back();
  const auto k = static_cast<std::size_t>(call.integer("k", 1));
  Array y = filled(x.type, x.dims);
  const auto tokens = static_cast<std::int64_t>(x.values.size()) / hidden;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const TokenRow row(x.values.begin() + token * hidden, x.values.begin() + (token + 1) * hidden);
    TokenRow shares(router.values.begin() + token * experts,
                    router.values.begin() + (token + 1) * experts);
    for (double& share : shares) share = std::exp(share);
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<std::size_t> order(shares.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return shares[a] > shares[b]; });
    order.resize(k);
    double sum = 0;
    for (const std::size_t expert : order) sum += shares[expert];
    for (const std::size_t expert : order) {
      const auto number = static_cast<std::int64_t>(expert);
      const TokenRow apart =
          call.optional(6) != nullptr ? expert_product(call, 6, number, row) : TokenRow();
      const TokenRow made = expert_product(
          call, 4, number, activated_row(call, expert_product(call, 2, number, row), apart));
      const double share =
          shares[expert] / (call.integer("normalize_routing_weights", 0) != 0 ? sum : all);
      for (std::int64_t i = 0; i < hidden; ++i)
        y.values[static_cast<std::size_t>(token * hidden + i)] +=
            share * made[static_cast<std::size_t>(i)];
    }
  }
  return {y};
}

const Registration kMixtureOfExperts({"MoE"}, mixture_of_experts);

}  // namespace
}  // namespace backplane::reference
