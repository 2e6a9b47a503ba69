// Attention, as ONNX's operator and as the nodes that exporters write for it: https://onnx.ai/onnx/operators/onnx__Attention.html
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <optional>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/symbolic.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "TheMeanOfTheValuesWhereScoresAreEqual",
     .node = {.op_type = "Attention", .opset = 23},
     .inputs = {f32({1, 1, 1, 2}, {0, 0}), f32({1, 1, 2, 2}, {1, 2, 3, 4}),
                f32({1, 1, 2, 3}, {1, 2, 3, 5, 6, 7})},
     .outputs = {f32({1, 1, 1, 3}, {3, 4, 5})}},
    {.name = "AQueryWithoutKeysIsZero",
     .node = {.op_type = "Attention", .opset = 23},
     .inputs = {f32({1, 1, 2, 1}, {1, 1}), f32({1, 1, 2, 1}, {1, 2}), f32({1, 1, 2, 1}, {4, 6}),
                boolean({2, 2}, {0, 0, 0, 1})},
     .outputs = {f32({1, 1, 2, 1}, {0, 6})}},
    {.name = "NoKeysAtAll",
     .node = {.op_type = "Attention", .opset = 23},
     .inputs = {f32({1, 1, 2, 1}, {1, 1}), f32({1, 1, 0, 1}, {}), f32({1, 1, 0, 2}, {})},
     .outputs = {f32({1, 1, 2, 2}, {0, 0, 0, 0})}},
    {.name = "NoQueriesButNewKeys",
     .node = {.op_type = "Attention", .opset = 23},
     .inputs = {f32({1, 1, 0, 1}, {}), f32({1, 1, 1, 1}, {3}), f32({1, 1, 1, 1}, {4}), absent(),
                f32({1, 1, 1, 1}, {1}), f32({1, 1, 1, 1}, {2})},
     .outputs = {f32({1, 1, 0, 1}, {}), f32({1, 1, 2, 1}, {1, 3}), f32({1, 1, 2, 1}, {2, 4})}},
};
const Rows kFixed("Attention", kRows);

/// A mask of either kind, of any rank, whose axes may be 1; some rows allow nothing.
Tensor mask_of(Random& random, const Dims& scores, bool may_be_short) {
  Dims dims = scores;
  for (std::size_t axis = 0; axis < 3; ++axis) dims[axis] = random.one_in(3) ? 1 : dims[axis];
  if (may_be_short && random.one_in(3)) dims[3] = random.integer(0, dims[3]);
  dims.erase(dims.begin(), dims.begin() + random.integer(0, dims[3] == 1 ? 0 : 3));
  if (random.one_in(2)) return random.tensor(ElementType::Bool, dims, 0, 1);
  return random.tensor(ElementType::Float, dims, -4, 4);
}

std::int64_t length_of(Random& random) {
  return random.pick<std::int64_t>({1, 2, 3, 7, 16, 17, 33, 64});
}

/// The operator with heads that share keys, caches, masks, windows, lengths, three axes or four.
OpCase any_attention(Random& random) {
  const std::int64_t batch = random.integer(1, 2), kv_heads = random.integer(1, 3),
                     group = random.pick<std::int64_t>({1, 1, 2, 3}),
                     width = random.pick<std::int64_t>({1, 4, 8, 17, 64}),
                     value_width = random.pick<std::int64_t>({1, 8, 16, 19, 64});
  std::int64_t queries = random.one_in(3) ? 1 : length_of(random);
  std::int64_t keys = random.one_in(3) ? queries : length_of(random);
  if (random.one_in(6)) (random.one_in(2) ? queries : keys) = random.integer(250, 300);
  if (random.one_in(20)) queries = random.integer(1000, 1100);
  OpCase row{.node = {.op_type = "Attention", .opset = random.one_in(2) ? 25 : 24}};
  const bool is_flat = random.one_in(2);
  const auto heads = [&](std::int64_t count, std::int64_t positions, std::int64_t size) {
    return random.tensor(
        ElementType::Float,
        is_flat ? Dims{batch, positions, count * size} : Dims{batch, count, positions, size}, -2,
        2);
  };
  row.inputs = {heads(kv_heads * group, queries, width), heads(kv_heads, keys, width),
                heads(kv_heads, keys, value_width)};
  auto& attributes = row.node.attributes;
  if (is_flat) {
    attributes.emplace_back("q_num_heads", kv_heads * group);
    attributes.emplace_back("kv_num_heads", kv_heads);
  }
  const bool has_past = random.one_in(3);
  const std::int64_t past = has_past ? random.integer(0, 40) : 0;
  const Dims scores{batch, kv_heads * group, queries, past + keys};
  row.inputs.push_back(random.one_in(2) ? Input(mask_of(random, scores, row.node.opset > 23))
                                        : absent());
  if (has_past) {
    row.inputs.push_back(random.tensor(ElementType::Float, {batch, kv_heads, past, width}));
    row.inputs.push_back(random.tensor(ElementType::Float, {batch, kv_heads, past, value_width}));
    row.output_count = 3;
  } else if (random.one_in(3)) {
    row.inputs.insert(row.inputs.end(), {absent(), absent()});
    row.inputs.push_back(random.indices({batch}, 0, keys));
  }
  if (random.one_in(2)) attributes.emplace_back("is_causal", 1);
  if (random.one_in(3)) attributes.emplace_back("softcap", 1.5f);
  if (random.one_in(3)) attributes.emplace_back("scale", 0.3f);
  if (row.node.opset == 25 && random.one_in(2)) {
    attributes.emplace_back("left_window_size", random.integer(-1, 40));
    attributes.emplace_back("right_window_size", random.integer(-1, 40));
  }
  row.tolerance = {64, 64};
  return row;
}
const Sweep kAny("Attention", "AnyForm", 40, any_attention);

/// What libraries of devices compute: elements of 16 bits, in heads as wide as they take. Masks hide a sequence's first columns, as
/// where prompts are padded on the left, and with infinities all of some rows.
Tensor padding_mask(Random& random, ElementType type, const Dims& scores) {
  Dims dims = scores;
  for (std::size_t axis = 0; axis < 3; ++axis) dims[axis] = random.one_in(3) ? 1 : dims[axis];
  const double lowest = type == ElementType::Float16 ? -65504 : -3.3e38;
  const double hidden = random.one_in(2) ? -kInf : lowest;
  const std::int64_t rows = dims[0] * dims[1] * dims[2], first = random.integer(0, dims[3] - 1);
  std::vector<double> values;
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool is_empty = hidden == -kInf && random.one_in(8);
    for (std::int64_t column = 0; column < dims[3]; ++column)
      values.push_back(is_empty || column < first ? hidden : random.real(-2, 2));
  }
  return tensor(type, dims, values);
}

OpCase attention_of_16_bits(Random& random) {
  const ElementType type = random.pick({ElementType::Float16, ElementType::BFloat16});
  const std::int64_t batch = random.integer(1, 3), kv_heads = random.integer(1, 3),
                     group = random.pick<std::int64_t>({1, 1, 2, 4}),
                     width = random.pick<std::int64_t>({8, 40, 64, 128}),
                     value_width = random.one_in(3) ? 8 : width;
  const std::int64_t queries = random.one_in(5) ? random.integer(120, 140) : length_of(random),
                     keys = random.one_in(5) ? random.integer(120, 270) : length_of(random);
  OpCase row{.node = {.op_type = "Attention", .opset = 23}};
  const bool is_flat = random.one_in(2);
  const auto heads = [&](std::int64_t count, std::int64_t positions, std::int64_t size) {
    return random.tensor(
        type, is_flat ? Dims{batch, positions, count * size} : Dims{batch, count, positions, size},
        -1, 1);
  };
  row.inputs = {heads(kv_heads * group, queries, width), heads(kv_heads, keys, width),
                heads(kv_heads, keys, value_width)};
  if (is_flat) {
    row.node.attributes.emplace_back("q_num_heads", kv_heads * group);
    row.node.attributes.emplace_back("kv_num_heads", kv_heads);
  }
  const bool is_causal = random.one_in(3);
  if (is_causal) row.node.attributes.emplace_back("is_causal", 1);
  if (!is_causal && random.one_in(2))
    row.inputs.push_back(padding_mask(random, type, {batch, kv_heads * group, queries, keys}));
  const double step = type == ElementType::Float16 ? 0x1p-8 : 0x1p-5;
  row.tolerance = {step / 0x1p-23, step / 0x1p-23};
  return row;
}
const Sweep k16Bits("Attention", "Of16Bits", 24, attention_of_16_bits);

/// Writes an attention node by node, in the ways of exporters.
class AttentionWriter {
 public:
  explicit AttentionWriter(Random& random) : random_(random), g_(18, random) {}

  GraphCase write() {
    const std::string q = scaled(rows(kv_heads_ * group_, queries_, width_));
    const std::string keys = turned(repeated(rows(kv_heads_, keys_, width_), width_));
    const std::string v = repeated(rows(kv_heads_, keys_, value_width_), value_width_);
    std::string scores = scaled(g_.node("MatMul", {q, keys}));
    if (random_.one_in(4)) scores = capped(scores);
    if (random_.one_in(2)) scores = masked(scores);
    std::string weights = g_.node("Softmax", {scores}, {{"axis", random_.one_in(2) ? -1 : 3}});
    if (random_.one_in(3))
      weights = g_.node("Where", {g_.node("IsNaN", {weights}), g_.constant(f32({}, {0})), weights});
    std::string y = g_.node("MatMul", {weights, v});
    if (random_.one_in(2)) y = g_.node("Transpose", {y}, {{"perm", ints({0, 2, 1, 3})}});
    std::vector<std::string> outputs{y};
    // Values in between that somebody else reads, too.
    if (random_.one_in(4)) outputs.push_back(random_.one_in(2) ? scores : keys);
    return g_.done(outputs, {64, 256});
  }

 private:
  std::string rows(std::int64_t heads, std::int64_t positions, std::int64_t width) {
    if (random_.one_in(2)) return g_.feed({batch_, heads, positions, width});
    return g_.node("Transpose", {g_.feed({batch_, positions, heads, width})},
                   {{"perm", ints({0, 2, 1, 3})}});
  }

  /// Heads for each of the group, by way of five axes.
  std::string repeated(const std::string& x, std::int64_t width) {
    if (group_ == 1) return x;
    const std::string apart = g_.node("Unsqueeze", {x, g_.constant(i64({1}, {2}))});
    const std::string many = g_.node(
        "Expand", {apart, g_.constant(i64({5}, {batch_, kv_heads_, group_, keys_, width}))});
    return g_.node("Reshape",
                   {many, g_.constant(i64({4}, {batch_, kv_heads_ * group_, keys_, width}))});
  }

  /// The last two axes changed over, by way of three axes or not.
  std::string turned(const std::string& x) {
    if (random_.one_in(2)) return g_.node("Transpose", {x}, {{"perm", ints({0, 1, 3, 2})}});
    const std::int64_t heads = kv_heads_ * group_;
    std::string y = g_.node("Reshape", {x, g_.constant(i64({3}, {-1, keys_, width_}))});
    y = g_.node("Transpose", {y}, {{"perm", ints({0, 2, 1})}});
    y = g_.node("Reshape", {y, g_.constant(i64({4}, {batch_, heads, width_, keys_}))});
    return scaled(y);
  }

  std::string scaled(const std::string& x) {
    if (random_.one_in(2)) return x;
    const std::string by = g_.constant(f32({}, {random_.one_in(2) ? 0.5 : 1.25}));
    if (random_.one_in(3)) return g_.node("Div", {x, by});
    return g_.node("Mul", {x, by});
  }

  std::string capped(const std::string& x) {
    const std::string cap = g_.constant(f32({}, {random_.one_in(2) ? 2.0 : 3.0}));
    return g_.node("Mul", {g_.node("Tanh", {g_.node("Div", {x, cap})}), cap});
  }

  std::string masked(const std::string& x) {
    Dims dims{batch_, kv_heads_ * group_, queries_, keys_};
    for (std::int64_t& dim : dims) dim = random_.one_in(3) ? 1 : dim;
    dims.erase(dims.begin(), dims.begin() + random_.integer(0, 3));
    if (random_.one_in(3)) {
      const std::string chosen = g_.feed(random_.tensor(ElementType::Bool, dims, 0, 1));
      // No infinity: a row that has nothing else is NaN.
      const std::string otherwise = g_.constant(f32({}, {random_.one_in(2) ? -1e4 : -3.0}));
      if (random_.one_in(2)) return g_.node("Where", {chosen, x, otherwise});
      return g_.node("Where", {chosen, otherwise, x});
    }
    const std::string mask = g_.feed(dims, -6, 2);
    return random_.one_in(2) ? g_.node("Add", {x, mask}) : g_.node("Add", {mask, x});
  }

  Random& random_;
  GraphWriter g_;
  std::int64_t batch_ = random_.integer(1, 2);
  std::int64_t kv_heads_ = random_.integer(1, 3);
  std::int64_t group_ = random_.pick<std::int64_t>({1, 1, 2, 4});
  std::int64_t queries_ = length_of(random_);
  std::int64_t keys_ = length_of(random_);
  std::int64_t width_ = random_.pick<std::int64_t>({1, 8, 16, 24});
  std::int64_t value_width_ = random_.pick<std::int64_t>({1, 8, 16, 20});
};

const Sweep kDecomposed("Attention", "AsExportersWriteItInAnyForm", 40,
                        [](Random& random) { return AttentionWriter(random).write(); });

/// How scores become weights in an attention of nodes.
struct Writing {
  ElementType type = ElementType::Float;
  std::int64_t batch = 2, kv_heads = 2, group = 1, queries = 3, keys = 5;
  bool is_flat = false;  ///< of three axes
  bool is_capped = false;
  std::optional<bool> chosen{};  ///< where a mask of bools is this; none: a mask is added
  bool is_guarded = false;       ///< weights that are NaN become 0
  bool is_read = false;          ///< the scores are an output, too
};

GraphCase written(Random& random, const Writing& w) {
  GraphWriter g(18, random);
  const std::int64_t width = 8, heads = w.kv_heads * w.group;
  const auto rows = [&](std::int64_t count, std::int64_t positions) {
    return g.feed(random.tensor(
        w.type,
        w.is_flat ? Dims{w.batch, positions, width} : Dims{w.batch, count, positions, width}, -1,
        1));
  };
  const auto number = [&](double value) { return g.constant(tensor(w.type, {}, {value})); };
  const auto repeated = [&](const std::string& x) {
    if (w.group == 1) return x;
    const std::string many =
        g.node("Expand", {g.node("Unsqueeze", {x, g.constant(i64({2}))}),
                          g.constant(i64({w.batch, w.kv_heads, w.group, w.keys, width}))});
    return g.node("Reshape", {many, g.constant(i64({w.batch, heads, w.keys, width}))});
  };
  const std::string k = g.node("Transpose", {repeated(rows(w.kv_heads, w.keys))},
                               {{"perm", w.is_flat ? ints({0, 2, 1}) : ints({0, 1, 3, 2})}});
  std::string scores = g.node("Mul", {g.node("MatMul", {rows(heads, w.queries), k}), number(0.5)});
  if (w.is_capped) {
    const std::string cap = number(1.5);
    scores = g.node("Mul", {g.node("Tanh", {g.node("Div", {scores, cap})}), cap});
  }
  Dims mask{w.batch, 1, w.queries, w.keys};
  if (w.is_flat) mask.erase(mask.begin() + 1);
  if (w.chosen) {
    const std::string choice = g.feed(random.tensor(ElementType::Bool, mask, 0, 1));
    const std::string other = number(-w.batch * 1e3);
    scores = *w.chosen ? g.node("Where", {choice, scores, other})
                       : g.node("Where", {choice, other, scores});
  } else {
    scores = g.node("Add", {scores, g.feed(random.tensor(w.type, mask, -4, 2))});
  }
  std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  if (w.is_guarded) weights = g.node("Where", {g.node("IsNaN", {weights}), number(0), weights});
  std::vector<std::string> outputs{g.node("MatMul", {weights, repeated(rows(w.kv_heads, w.keys))})};
  if (w.is_read) outputs.push_back(scores);
  const double step = w.type == ElementType::Float     ? 0x1p-21
                      : w.type == ElementType::Float16 ? 0x1p-8
                                                       : 0x1p-5;
  return g.done(outputs, {step / 0x1p-23, step / 0x1p-23});
}

/// The case is right on all devices that fuse; in one step, or, where it is none, in several.
void expect_steps(const Writing& writing, bool is_one) {
  Random random(1);
  const GraphCase graph = written(random, writing);
  for (const auto& [target, steps] : steps_where_right(graph))
    EXPECT_EQ(steps == 1, is_one) << target << ": " << steps << " of " << describe(graph);
}

TEST(Attention, OfNodesIsOneStepOfFewRowsAndOfMany) {
  for (const std::int64_t queries : {1, 3, 9}) {
    expect_steps({.queries = queries}, true);
    expect_steps({.group = 3, .queries = queries, .is_guarded = true}, true);
    expect_steps({.queries = queries, .is_capped = true, .chosen = true}, true);
    expect_steps({.group = 2, .queries = queries, .chosen = false}, true);
    expect_steps({.queries = queries, .is_flat = true, .is_capped = true}, true);
    expect_steps({.queries = queries, .keys = 1, .is_flat = true, .chosen = true}, true);
  }
  expect_steps({.type = ElementType::Float16, .group = 2, .is_capped = true, .chosen = true}, true);
  expect_steps({.type = ElementType::Float16, .queries = 9, .chosen = true}, true);
}

TEST(Attention, OfNodesStaysSoWhereItsScoresAreReadOrOfDoubles) {
  expect_steps({.is_read = true}, false);
  expect_steps({.type = ElementType::Double}, false);
}

TEST(Attention, OfNodesAndSymbolsIsOneStepAndRightForAllSizes) {
  Random random(1);
  const GraphCase graph = written(random, {.is_capped = true});
  const std::vector<Sizes> sizes{{{"n", 2}, {"s", 1}, {"t", 5}}, {{"n", 1}, {"s", 9}, {"t", 9}},
                                 {{"n", 2}, {"s", 9}, {"t", 1}}, {{"n", 0}, {"s", 3}, {"t", 3}},
                                 {{"n", 1}, {"s", 0}, {"t", 3}}, {{"n", 3}, {"s", 6}, {"t", 40}}};
  const SymbolicCase symbolic = symbolic_case(
      graph,
      {{"n", "2", "t", "8"}, {"n", "2", "s", "8"}, {"n", "1", "s", "t"}, {"n", "2", "t", "8"}},
      sizes, random);
  for (const Target& target : compiling_targets()) {
    std::string explanation;
    const Outcome outcome = run_symbolic(symbolic, options_for(target), &explanation);
    ASSERT_EQ(outcome.kind, Outcome::Kind::Passed) << target.name << ": " << outcome.text;
    EXPECT_EQ(step_count(explanation), 1u) << explanation;
  }
}

/// Three axes: heads and batches are one.
GraphCase three_axes(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t batch = random.integer(1, 4), queries = length_of(random),
                     keys = length_of(random), width = random.pick<std::int64_t>({4, 16, 20});
  const std::string k = g.feed({batch, keys, width});
  const std::string turned = g.node("Transpose", {k}, {{"perm", ints({0, 2, 1})}});
  std::string scores = g.node("MatMul", {g.feed({batch, queries, width}), turned});
  if (random.one_in(2))
    scores = g.node("Add", {scores, g.feed({random.one_in(2) ? 1 : batch, 1, keys}, -3, 0)});
  const std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  return g.done({g.node("MatMul", {weights, g.feed({batch, keys, 8})})}, {64, 256});
}
const Sweep kThreeAxes("Attention", "OfThreeAxes", 12, three_axes);

/// What is broadcast among queries, keys, values and the mask.
GraphCase broadcast_attention(Random& random) {
  GraphWriter g(13, random);
  const std::int64_t queries = length_of(random), keys = length_of(random);
  const auto dims = [&](std::int64_t positions, std::int64_t width) {
    return Dims{random.pick<std::int64_t>({1, 2}), random.pick<std::int64_t>({1, 3}), positions,
                width};
  };
  const std::string turned =
      g.node("Transpose", {g.feed(dims(keys, 8))}, {{"perm", ints({0, 1, 3, 2})}});
  std::string scores = g.node("MatMul", {g.feed(dims(queries, 8)), turned});
  if (random.one_in(2)) scores = g.node("Add", {scores, g.feed(dims(queries, keys))});
  const std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  return g.done({g.node("MatMul", {weights, g.feed(dims(keys, 5))})}, {64, 256});
}
const Sweep kBroadcast("Attention", "Broadcasts", 24, broadcast_attention);

}  // namespace
}  // namespace backplane::ops_test
