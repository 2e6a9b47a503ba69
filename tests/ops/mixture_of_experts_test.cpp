// com.microsoft::MoE: tokens that go to some of the experts, whose weights are floats.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/cases.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

OpCase mixture_of(Random& random, std::int64_t tokens) {
  const std::int64_t experts = random.integer(1, 7);
  const std::int64_t hidden = random.pick<std::int64_t>({1, 5, 16, 33, 64});
  const std::int64_t inner = random.pick<std::int64_t>({1, 7, 16, 40});
  const char* const kind = random.pick({"relu", "gelu", "silu", "identity", "swiglu", "swiglu"});
  const bool is_gated = std::string(kind) == "swiglu";
  const bool is_apart = random.one_in(3);
  const std::int64_t made = is_gated && !is_apart ? 2 * inner : inner;
  OpCase row{.node = {.op_type = "MoE", .domain = "com.microsoft", .opset = 1}};
  const auto weights = [&](const Dims& dims) {
    return constant(random.tensor(ElementType::Float, dims, -0.5, 0.5));
  };
  const Dims dims =
      tokens % 2 == 0 && random.one_in(2) ? Dims{2, tokens / 2, hidden} : Dims{tokens, hidden};
  row.inputs = {random.tensor(ElementType::Float, dims, -1, 1),
                random.tensor(ElementType::Float, {tokens, experts}, -2, 2),
                weights({experts, made, hidden}),
                random.one_in(2) ? weights({experts, made}) : absent(),
                weights({experts, hidden, inner}),
                random.one_in(2) ? weights({experts, hidden}) : absent()};
  if (is_apart) {
    row.inputs.push_back(weights({experts, inner, hidden}));
    if (random.one_in(2)) row.inputs.push_back(weights({experts, inner}));
  }
  auto& attributes = row.node.attributes;
  attributes = {{"k", random.integer(1, experts)}, {"activation_type", kind}};
  if (random.one_in(2)) attributes.emplace_back("normalize_routing_weights", 1);
  if (is_gated) {
    if (!is_apart) attributes.emplace_back("swiglu_fusion", random.integer(1, 2));
    if (random.one_in(2)) attributes.emplace_back("activation_alpha", 1.702f);
    if (random.one_in(2)) attributes.emplace_back("activation_beta", 1.0f);
    if (random.one_in(2)) attributes.emplace_back("swiglu_limit", 0.75f);
  }
  row.tolerance = {256, 256};
  return row;
}

OpCase any_mixture(Random& random) {
  return mixture_of(random, random.pick<std::int64_t>({0, 1, 1, 2, 3, 17, 40}));
}
const Sweep kAny("MoE", "AnyForm", 60, any_mixture);

/// More tokens for an expert than it takes at a time.
OpCase many_tokens(Random& random) { return mixture_of(random, random.integer(300, 600)); }
const Sweep kMany("MoE", "ManyTokens", 4, many_tokens);

std::string kernel_of(const OpCase& row) {
  const Session session(model_of(to_graph(row), Form::Fixed), {{"providers", "cpu"}});
  return nlohmann::json::parse(session.explain())["nodes"][0]["kernel"];
}

TEST(MoE, ConstantWeightsHaveAKernelAndOthersTheBody) {
  Random random(1);
  for (int i = 0; i < 10; ++i) {
    OpCase row = mixture_of(random, 3);
    EXPECT_EQ(kernel_of(row), "cpu:moe");
    row.inputs[4].is_constant = false;
    EXPECT_NE(kernel_of(row), "cpu:moe");
  }
}

}  // namespace
}  // namespace backplane::ops_test
