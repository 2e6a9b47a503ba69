// Halves of rows that are turned by angles, x * cos + concat(-x2, x1) * sin, as decoders have them: what comes out, whatever the
// nodes' order, types and dims, and that devices do it in one step wherever that is right.
#include <gtest/gtest.h>
#include <limits>
#include <utility>
#include <vector>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/symbolic.hpp"

namespace backplane::ops_test {
namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

/// How the nodes are written.
struct Writing {
  ElementType type = ElementType::Float;
  Dims dims{2, 3, 5, 16};  ///< of what is turned: [batch, heads, positions, width]
  Dims cos{2, 1, 5, 16}, sin{2, 1, 5, 16};
  bool is_transposed = false;  ///< it is fed as [batch, positions, heads, width]
  bool is_split = false;
  bool is_swapped = false;      ///< the halves are no rotation's
  bool is_plain_first = true;   ///< x * cos + ..., or after the other product
  bool is_angle_first = false;  ///< cos * x
  std::int64_t axis = -1;
  std::int64_t middle = 8;  ///< where the second half begins, as its Slice says it
  std::int64_t end = kEnd;
  std::vector<std::string> more{};  ///< values inside that are outputs, too: "x", "turned"
};

/// The Tolerance of sums of two products whose parts may have been rounded each.
Tolerance tolerance_of(ElementType type) {
  return {256, type == ElementType::Float16    ? 16384.0
               : type == ElementType::BFloat16 ? 131072.0
                                               : 2048.0};
}

std::pair<std::string, std::string> halves(GraphWriter& g, const std::string& x, const Writing& w) {
  const std::int64_t half = w.dims.back() / 2;
  if (w.is_split) {
    const auto parts = g.nodes("Split", {x, g.constant(i64({half, half}))}, 2, {{"axis", w.axis}});
    return {parts[0], parts[1]};
  }
  const std::string axis = g.constant(i64({w.axis}));
  return {g.node("Slice",
                 {x, g.constant(i64({0})), g.constant(i64({half})), axis, g.constant(i64({1}))}),
          g.node("Slice", {x, g.constant(i64({w.middle})), g.constant(i64({w.end})), axis})};
}

GraphCase written(Random& random, const Writing& w) {
  GraphWriter g(18, random);
  const auto feed = [&](const Dims& dims) { return g.feed(random.tensor(w.type, dims, -1, 1)); };
  std::string x;
  if (w.is_transposed) {
    x = g.node("Transpose", {feed({w.dims[0], w.dims[2], w.dims[1], w.dims[3]})},
               {{"perm", ints({0, 2, 1, 3})}});
  } else {
    x = feed(w.dims);
  }
  auto [first, second] = halves(g, x, w);
  if (w.is_swapped) std::swap(first, second);
  const std::string turned = g.node("Concat", {g.node("Neg", {second}), first}, {{"axis", w.axis}});
  const auto product = [&](const std::string& value, const Dims& dims) {
    const std::string angles = feed(dims);
    return w.is_angle_first ? g.node("Mul", {angles, value}) : g.node("Mul", {value, angles});
  };
  const std::string plain = product(x, w.cos), across = product(turned, w.sin);
  std::vector<std::string> outputs{w.is_plain_first ? g.node("Add", {plain, across})
                                                    : g.node("Add", {across, plain})};
  for (const std::string& name : w.more) outputs.push_back(name == "x" ? x : turned);
  return g.done(outputs, tolerance_of(w.type));
}

/// Dims of angles: fewer axes, or of one element each, by chance.
Dims any_angles(Random& random, const Dims& dims) {
  Dims angles(dims.begin() + random.integer(0, 3), dims.end());
  for (std::size_t axis = 0; axis + 1 < angles.size(); ++axis)
    angles[axis] = random.one_in(3) ? 1 : angles[axis];
  return angles;
}

GraphCase any_rotation(Random& random) {
  const std::int64_t half = random.pick<std::int64_t>({1, 3, 4, 8, 20, 32});
  Writing w;
  w.type = random.pick({ElementType::Float, ElementType::Float16, ElementType::BFloat16});
  w.dims = {random.integer(1, 2), random.integer(1, 3), random.integer(0, 5), 2 * half};
  Dims all = w.dims;
  if (random.one_in(6)) w.dims[static_cast<std::size_t>(random.integer(0, 2))] = 1;
  w.cos = any_angles(random, all);
  w.sin = random.one_in(2) ? w.cos : any_angles(random, all);
  w.is_transposed = random.one_in(2);
  w.is_split = random.one_in(3);
  w.is_swapped = random.one_in(8);
  w.is_plain_first = random.one_in(2);
  w.is_angle_first = random.one_in(2);
  w.axis = random.one_in(2) ? 3 : -1;
  w.middle = random.one_in(2) ? half : -half;
  w.end = random.one_in(2) ? 2 * half : kEnd;
  if (random.one_in(6)) w.more.emplace_back("turned");
  if (random.one_in(6)) w.more.emplace_back("x");
  return written(random, w);
}
const Sweep kAnyForm("Rotation", "RotatedHalvesInAnyForm", 80, any_rotation);

/// ONNX's RotaryEmbedding, whose angles are those of positions or of each sequence by itself.
OpCase rotary_embedding(Random& random) {
  const std::int64_t batch = random.integer(1, 2), heads = random.integer(1, 3);
  const std::int64_t positions = random.integer(0, 4),
                     half = random.pick<std::int64_t>({1, 4, 9, 20});
  const bool is_partial = random.one_in(2), is_interleaved = random.one_in(2);
  const bool is_by_head = random.one_in(2), has_ids = random.one_in(2);
  const std::int64_t width = 2 * half + (is_partial ? random.integer(1, 5) : 0), rows = 6;
  OpCase row;
  row.node = {.op_type = "RotaryEmbedding", .opset = 23};
  if (is_interleaved) row.node.attributes.push_back({"interleaved", 1});
  if (is_partial) row.node.attributes.push_back({"rotary_embedding_dim", 2 * half});
  if (!is_by_head) row.node.attributes.push_back({"num_heads", heads});
  const Dims dims =
      is_by_head ? Dims{batch, heads, positions, width} : Dims{batch, positions, heads * width};
  const Dims angles = has_ids ? Dims{rows, half} : Dims{batch, positions, half};
  const Tensor x = random.tensor(ElementType::Float, dims),
               cos = random.tensor(ElementType::Float, angles, -1, 1),
               sin = random.tensor(ElementType::Float, angles, -1, 1),
               ids = random.indices({batch, positions}, 0, rows - 1);
  const std::vector<double> from = to_array(x).values, c = to_array(cos).values,
                            s = to_array(sin).values, at = to_array(ids).values;
  std::vector<double> to = from;
  for (std::int64_t i = 0; i < batch * heads * positions; ++i) {
    const std::int64_t b = i / (heads * positions);
    const std::int64_t p = is_by_head ? i % positions : i / heads % positions;
    const std::int64_t place = b * positions + p;
    const std::int64_t angle =
        has_ids ? static_cast<std::int64_t>(at[static_cast<std::size_t>(place)]) : place;
    for (std::int64_t k = 0; k < half; ++k) {
      const auto first = static_cast<std::size_t>(i * width + (is_interleaved ? 2 * k : k));
      const auto second = first + static_cast<std::size_t>(is_interleaved ? 1 : half);
      const auto turn = static_cast<std::size_t>(angle * half + k);
      to[first] = from[first] * c[turn] - from[second] * s[turn];
      to[second] = from[first] * s[turn] + from[second] * c[turn];
    }
  }
  row.inputs = {x, cos, sin};
  if (has_ids) row.inputs.emplace_back(ids);
  row.outputs = {tensor(ElementType::Float, dims, to)};
  row.tolerance = {8, 16};
  return row;
}
const Sweep kRotaryEmbedding("Rotation", "RotaryEmbedding", 40, rotary_embedding);

/// The case is right on all devices; with its steps, of which 0 is any number over 1.
void expect_steps(const Writing& writing, std::size_t count) {
  Random random(1);
  const GraphCase graph = written(random, writing);
  for (const auto& [target, steps] : steps_where_right(graph))
    EXPECT_TRUE(count == 0 ? steps > 1 : steps == count)
        << target << ": " << steps << " steps of " << describe(graph);
}

TEST(Rotation, IsOneStepHoweverItIsWritten) {
  expect_steps({}, 1);
  expect_steps({.is_split = true}, 1);
  expect_steps({.is_plain_first = false}, 1);
  expect_steps({.is_angle_first = true}, 1);
  expect_steps({.is_plain_first = false, .is_angle_first = true}, 1);
  expect_steps({.axis = 3, .middle = -8, .end = 16}, 1);
}

TEST(Rotation, IsOneStepOfAnyTypeAndOfAnglesThatBroadcast) {
  for (const ElementType type : {ElementType::Float16, ElementType::BFloat16}) {
    expect_steps({.type = type}, 1);
    expect_steps({.type = type, .cos = {16}, .sin = {3, 1, 16}, .is_transposed = true}, 1);
  }
  expect_steps({.cos = {5, 16}, .sin = {1, 3, 5, 16}}, 1);
  // Angles of more batches and heads than what is turned: that is repeated.
  expect_steps({.dims = {1, 1, 5, 16}, .cos = {2, 3, 1, 16}, .sin = {5, 16}}, 1);
  expect_steps({.dims = {5, 16}, .cos = {2, 1, 5, 16}, .sin = {5, 16}, .axis = 1}, 1);
  expect_steps({.dims = {2, 3, 5, 2}, .cos = {5, 2}, .sin = {5, 2}, .middle = 1}, 1);
  expect_steps({.dims = {2, 3, 5, 10}, .cos = {5, 10}, .sin = {5, 10}, .middle = 5}, 1);
}

TEST(Rotation, TakesTheTransposeThatNobodyElseReads) {
  expect_steps({.is_transposed = true}, 1);
  expect_steps({.is_transposed = true, .is_split = true}, 1);
  expect_steps({.is_transposed = true, .more = {"x"}}, 2);
}

TEST(Rotation, StaysAsItIsWhereItIsNone) {
  expect_steps({.is_swapped = true}, 0);
  expect_steps({.more = {"turned"}}, 0);
  expect_steps({.middle = 7, .end = 15}, 0);
  // Angles of one element a row, and halves of another axis.
  expect_steps({.cos = {2, 1, 5, 1}}, 0);
  expect_steps({.dims = {2, 3, 16, 16}, .cos = {16}, .sin = {16}, .axis = 2}, 0);
}

TEST(Rotation, OfSymbolsIsOneStepAndRightForAllSizes) {
  for (const bool is_transposed : {false, true}) {
    Random random(1);
    const GraphCase graph = written(random, {.is_transposed = is_transposed});
    const std::vector<Sizes> sizes{{{"n", 2}, {"h", 3}, {"s", 5}, {"m", 1}, {"t", 5}},
                                   {{"n", 1}, {"h", 2}, {"s", 1}, {"m", 3}, {"t", 4}},
                                   {{"n", 2}, {"h", 1}, {"s", 3}, {"m", 2}, {"t", 1}},
                                   {{"n", 0}, {"h", 2}, {"s", 3}, {"m", 1}, {"t", 3}},
                                   {{"n", 2}, {"h", 2}, {"s", 0}, {"m", 1}, {"t", 1}},
                                   {{"n", 1}, {"h", 1}, {"s", 1}, {"m", 1}, {"t", 1}}};
    const Axes x = is_transposed ? Axes{"n", "s", "h", "16"} : Axes{"n", "h", "s", "16"};
    const SymbolicCase symbolic =
        symbolic_case(graph, {x, {"m", "1", "t", "16"}, {"m", "1", "t", "16"}}, sizes, random);
    for (const Target& target : find_targets()) {
      std::string explanation;
      const Outcome outcome = run_symbolic(symbolic, options_for(target), &explanation);
      if (outcome.kind == Outcome::Kind::Refused && target.provider == "fakegpu") continue;
      EXPECT_EQ(outcome.kind, Outcome::Kind::Passed) << target.name << ": " << outcome.text;
      if (target.provider == "opencl" || target.provider == "cuda_stand_in") {
        EXPECT_EQ(step_count(explanation), 1u) << explanation;
      }
    }
  }
}

}  // namespace
}  // namespace backplane::ops_test
