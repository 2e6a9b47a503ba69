// Keys and values of 16 bits, as decoders in float16 and bfloat16 keep them: attention computes in float and reads them as they are.
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

const std::vector<ElementType> kHalves = {ElementType::Float16, ElementType::BFloat16};

struct Sizes {
  std::int64_t batch, kv_heads, group, queries, past, width;
};

Sizes sizes_of(Random& random) {
  Sizes s{random.integer(1, 2),
          random.integer(1, 3),
          random.pick<std::int64_t>({1, 2, 3, 9}),
          random.pick<std::int64_t>({1, 1, 2, 5, 20}),
          random.pick<std::int64_t>({0, 1, 3, 40, 255, 300}),
          random.pick<std::int64_t>({4, 8, 17, 64, 128})};
  if (s.past > 100) s.batch = 1;
  return s;
}

/// Keys or values, each for `group` heads of queries.
std::string repeated(GraphWriter& g, const std::string& x, const Sizes& s) {
  if (s.group == 1) return x;
  const std::int64_t keys = s.past + s.queries;
  const std::string apart = g.node("Unsqueeze", {x, g.constant(i64({2}))});
  const std::string wide =
      g.node("Expand", {apart, g.constant(i64({s.batch, s.kv_heads, s.group, keys, s.width}))});
  return g.node("Reshape", {wide, g.constant(i64({s.batch, s.kv_heads * s.group, keys, s.width}))});
}

/// One step of a decoder as exporters write it, all in one type: new keys and values join those of before.
GraphCase decoder_step(Random& random) {
  GraphWriter g(17, random);
  const Sizes s = sizes_of(random);
  const ElementType type = random.pick(kHalves);
  const auto some = [&](std::int64_t heads, std::int64_t positions) {
    return g.feed(random.tensor(type, {s.batch, heads, positions, s.width}, -1, 1));
  };
  const std::string q = some(s.kv_heads * s.group, s.queries);
  const auto joined = [&] {
    const std::string past = some(s.kv_heads, s.past);
    return g.node("Concat", {past, g.node("Tanh", {some(s.kv_heads, s.queries)})}, {{"axis", 2}});
  };
  const std::string keys = joined(), values = joined();
  const std::string turned =
      g.node("Transpose", {repeated(g, keys, s)}, {{"perm", ints({0, 1, 3, 2})}});
  std::string scores =
      g.node("Mul", {g.node("MatMul", {q, turned}), g.constant(random.tensor(type, {}, 0.2, 0.3))});
  if (random.one_in(2))
    scores = g.node("Add",
                    {scores, g.feed(random.tensor(type, {s.queries, s.past + s.queries}, -3, 3))});
  const std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  const std::string y = g.node("MatMul", {weights, repeated(g, values, s)});
  return g.done({y, keys, values}, {200000, 400000});
}
const Sweep kDecoderStep("HalfCaches", "DecoderStep", 60, decoder_step);

/// Attention of queries in float with keys and values that are cast to it, or are floats.
GraphCase attention(const Tensor& q, const Tensor& k, const Tensor& v, bool casts) {
  Random random(1);
  GraphWriter g(17, random);
  const auto floats = [&](const Tensor& x) {
    const std::string fed = g.feed(x);
    return casts ? g.node("Cast", {fed}, {{"to", 1}}) : fed;
  };
  const std::string query = g.feed(q);
  const std::string keys = g.node("Transpose", {floats(k)}, {{"perm", ints({0, 1, 3, 2})}});
  const std::string scores =
      g.node("Mul", {g.node("MatMul", {query, keys}), g.constant(f32({}, {0.3}))});
  const std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  return g.done({g.node("MatMul", {weights, floats(v)})});
}

TEST(HalfCaches, AreReadAsTheyAreWithTheResultsOfFloatsBitByBit) {
  Random random(1);
  for (const ElementType type : kHalves) {
    for (const std::int64_t queries : {1, 3, 8, 9, 40}) {
      for (const std::int64_t width : {8, 17, 64}) {
        const Tensor q = random.tensor(ElementType::Float, {1, 2, queries, width}, -1, 1);
        const Tensor k = random.tensor(type, {1, 2, 300, width}, -1, 1);
        const Tensor v = random.tensor(type, {1, 2, 300, width}, -1, 1);
        const auto widened = [](const Tensor& x) { return f32(x.dims, to_array(x).values); };
        const GraphCase halves = attention(q, k, v, true);
        const GraphCase floats = attention(q, widened(k), widened(v), false);
        Session ours(model_of(halves, Form::Fixed), {{"providers", "cpu"}});
        Session theirs(model_of(floats, Form::Fixed), {{"providers", "cpu"}});
        EXPECT_EQ(ours.run(halves.feeds, halves.outputs)[0].bytes,
                  theirs.run(floats.feeds, floats.outputs)[0].bytes)
            << queries << " " << width;
        EXPECT_EQ(nlohmann::json::parse(ours.explain())["order"].size(), 1U);
      }
    }
  }
}

/// The operator with keys and values of before, given, handed on, or both.
GraphCase cached_attention(Random& random) {
  GraphWriter g(23, random);
  const Sizes s = sizes_of(random);
  const ElementType type = random.pick(kHalves);
  const bool is_flat = random.one_in(2), has_past = !random.one_in(4);
  const auto fresh = [&](std::int64_t heads) {
    return g.feed(random.tensor(type,
                                is_flat ? Dims{s.batch, s.queries, heads * s.width}
                                        : Dims{s.batch, heads, s.queries, s.width},
                                -1, 1));
  };
  std::vector<std::string> inputs = {fresh(s.kv_heads * s.group), fresh(s.kv_heads),
                                     fresh(s.kv_heads), ""};
  for (int i = 0; i < 2 && has_past; ++i)
    inputs.push_back(g.feed(random.tensor(type, {s.batch, s.kv_heads, s.past, s.width}, -1, 1)));
  std::vector<reference::Attribute> attributes = {{"is_causal", random.one_in(2) ? 1 : 0}};
  if (is_flat) {
    attributes.emplace_back("q_num_heads", s.kv_heads * s.group);
    attributes.emplace_back("kv_num_heads", s.kv_heads);
  }
  const bool hands_on = !has_past || random.one_in(2);
  const std::vector<std::string> made = g.nodes("Attention", inputs, hands_on ? 3 : 1, attributes);
  return g.done(made, {200000, 400000});
}
const Sweep kCachedAttention("HalfCaches", "CachedAttention", 40, cached_attention);

/// How many nodes have this kernel, and steps the plan.
std::pair<int, std::size_t> found_in(const GraphCase& graph, const char* kernel) {
  const Session session(model_of(graph, Form::Fixed), {{"providers", "cpu"}});
  const auto explained = nlohmann::json::parse(session.explain());
  int found = 0;
  for (const auto& node : explained["nodes"]) found += node["kernel"] == kernel;
  return {found, explained["order"].size()};
}

TEST(HalfCaches, OfOperatorsStayInTheTypeOfTheModel) {
  Random random(1);
  const auto half = [&](const Dims& dims) {
    return random.tensor(ElementType::Float16, dims, -1, 1);
  };
  GraphWriter onnx(23, random);
  const std::vector<std::string> inputs = {
      onnx.feed(half({1, 1, 16})),   onnx.feed(half({1, 1, 16})),  onnx.feed(half({1, 1, 16})), "",
      onnx.feed(half({1, 2, 5, 8})), onnx.feed(half({1, 2, 5, 8}))};
  const GraphCase attention =
      onnx.done(onnx.nodes("Attention", inputs, 3, {{"q_num_heads", 2}, {"kv_num_heads", 2}}));
  // Casts of Q, K, V and the result are steps of their own; none of the caches is.
  EXPECT_EQ(found_in(attention, "cpu:attention_halves"), std::pair(1, std::size_t{5}));

  GraphWriter contributed(17, random);
  const std::vector<std::string> rows = {
      contributed.feed(half({1, 1, 32})),   contributed.feed(half({1, 1, 16})),
      contributed.feed(half({1, 1, 16})),   contributed.feed(half({1, 2, 5, 8})),
      contributed.feed(half({1, 2, 5, 8})), contributed.constant(i32({1}, {5})),
      contributed.constant(i32({1}, {6})),
  };
  const std::vector<std::string> made =
      contributed.nodes("GroupQueryAttention", rows, 3, {{"num_heads", 4}, {"kv_num_heads", 2}});
  contributed.last().domain = "com.microsoft";
  EXPECT_EQ(found_in(contributed.done(made), "cpu:group_query_attention_halves"),
            std::pair(1, std::size_t{5}));
}

TEST(HalfCaches, OfADecoderStayOneStep) {
  Random random(2);
  EXPECT_GT(found_in(decoder_step(random), "cpu:attention_fused").first, 2);
}

TEST(HalfCaches, OfKeysAloneAreCast) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string k =
      g.node("Cast", {g.feed(random.tensor(ElementType::Float16, {1, 2, 5, 8}))}, {{"to", 1}});
  const std::string keys = g.node("Transpose", {k}, {{"perm", ints({0, 1, 3, 2})}});
  const std::string weights =
      g.node("Softmax", {g.node("MatMul", {g.feed({1, 2, 3, 8}), keys})}, {{"axis", -1}});
  const GraphCase graph = g.done({g.node("MatMul", {weights, g.feed({1, 2, 5, 8})})});
  Session session(model_of(graph, Form::Fixed), {{"providers", "cpu"}});
  session.run(graph.feeds, graph.outputs);
  EXPECT_EQ(nlohmann::json::parse(session.explain())["order"].size(), 2U);
}

}  // namespace
}  // namespace backplane::ops_test
