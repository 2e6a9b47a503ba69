// Transpose, Expand, Tile, DepthToSpace, SpaceToDepth, Trilu, ReverseSequence:
// https://onnx.ai/onnx/operators/
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/symbolic.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "TransposeReversesTheAxesByDefault",
     .node = {.op_type = "Transpose", .opset = 13},
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6})},
     .outputs = {f32({3, 2}, {1, 4, 2, 5, 3, 6})}},
    {.name = "TransposeOfAScalar",
     .node = {.op_type = "Transpose", .opset = 13},
     .inputs = {f32({}, {1})},
     .outputs = {f32({}, {1})}},
    {.name = "TransposeOfStrings",
     .node = {.op_type = "Transpose", .opset = 13, .attributes = {{"perm", ints({1, 0})}}},
     .inputs = {text({1, 2}, {"a", "b"})},
     .outputs = {text({2, 1}, {"a", "b"})}},
    {.name = "TransposeOfFourBits",
     .node = {.op_type = "Transpose", .opset = 21},
     .inputs = {tensor(ElementType::UInt4, {2, 3}, {1, 2, 3, 4, 5, 6})},
     .outputs = {tensor(ElementType::UInt4, {3, 2}, {1, 4, 2, 5, 3, 6})}},
    {.name = "ExpandMayMakeTheShapeLarger",
     .node = {.op_type = "Expand", .opset = 13},
     .inputs = {f32({3, 1}, {1, 2, 3}), constant(i64({2, 1, 2}))},
     .outputs = {f32({2, 3, 2}, {1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3})}},
    {.name = "ExpandKeepsLargerDims",
     .node = {.op_type = "Expand", .opset = 13},
     .inputs = {f32({2}, {1, 2}), constant(i64({1}))},
     .outputs = {f32({2}, {1, 2})}},
    {.name = "TileZeroTimes",
     .node = {.op_type = "Tile", .opset = 13},
     .inputs = {f32({2, 1}, {1, 2}), constant(i64({0, 2}))},
     .outputs = {f32({0, 2}, {})}},
    {.name = "TileOfRowsAndColumns",
     .node = {.op_type = "Tile", .opset = 13},
     .inputs = {f32({1, 2}, {1, 2}), constant(i64({2, 2}))},
     .outputs = {f32({2, 4}, {1, 2, 1, 2, 1, 2, 1, 2})}},
    {.name = "TriluKeepsTheLowerTriangle",
     .node = {.op_type = "Trilu", .opset = 14, .attributes = {{"upper", 0}}},
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6})},
     .outputs = {f32({2, 3}, {1, 0, 0, 4, 5, 0})}},
    {.name = "TriluFarFromTheDiagonal",
     .node = {.op_type = "Trilu", .opset = 14},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), constant(i64({}, {kGreatest}))},
     .outputs = {f32({2, 2}, {0, 0, 0, 0})}},
    {.name = "ReverseSequenceByTime",
     .node = {.op_type = "ReverseSequence", .opset = 10},
     .inputs = {f32({3, 2}, {1, 2, 3, 4, 5, 6}), i64({2, 3})},
     .outputs = {f32({3, 2}, {3, 6, 1, 4, 5, 2})}},
};
const Rows kMovementRows("Movement", kRows);

const OpCase kRefusals[] = {
    {.name = "TileOfMoreThanCanBeCounted",  // 3 times it is 2 in 64 bits
     .node = {.op_type = "Tile", .opset = 13},
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6}), constant(i64({1, 6148914691236517206}))},
     .outputs = {f32({0, 0}, {})},
     .refusal = "too large"},
    {.name = "TileOfFewerThanNone",
     .node = {.op_type = "Tile", .opset = 13},
     .inputs = {f32({2}, {1, 2}), constant(i64({-1}))},
     .outputs = {f32({0}, {})},
     .refusal = "Tile"},
    {.name = "ReverseSequencePastTheEnd",
     .node = {.op_type = "ReverseSequence", .opset = 10},
     .inputs = {f32({3, 2}, {1, 2, 3, 4, 5, 6}), i64({2, 4})},
     .outputs = {f32({3, 2}, {0, 0, 0, 0, 0, 0})},
     .refusal = "length"},
};
const Rows kMovementRefusals("Movement", kRefusals);

OpCase transpose(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(0, 6);
  row.node = {.op_type = "Transpose", .opset = 13};
  if (!random.one_in(6)) row.node.attributes = {{"perm", random.permutation(rank)}};
  row.inputs = {random.tensor(random.pick(all_types()), random.dims(rank))};
  return row;
}
const Sweep kTranspose("Movement", "Transpose", 120, transpose);

OpCase large_transpose(Random& random) {
  OpCase row;
  const Dims dims = random.pick({Dims{300, 257}, Dims{3, 65, 130}, Dims{2, 33, 31, 40}});
  row.node = {.op_type = "Transpose", .opset = 13};
  row.node.attributes = {{"perm", random.permutation(static_cast<std::int64_t>(dims.size()))}};
  row.inputs = {random.tensor(
      random.pick({ElementType::Float, ElementType::UInt8, ElementType::Float16}), dims)};
  return row;
}
const Sweep kLargeTranspose("Movement", "LargeTranspose", 8, large_transpose);

OpCase four_bits(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 3);
  row.node = {
      .op_type = "Transpose", .opset = 21, .attributes = {{"perm", random.permutation(rank)}}};
  row.inputs = {random.tensor(random.pick({ElementType::Int4, ElementType::UInt4}),
                              random.dims(rank, 200), 0, 7)};
  return row;
}
const Sweep kFourBits("Movement", "PackedTranspose", 12, four_bits);

OpCase expand(Random& random) {
  OpCase row;
  row.node = {.op_type = "Expand", .opset = 13};
  const Dims full = random.dims(random.integer(0, 5));
  row.inputs = {random.tensor(random.pick(all_types()), random.broadcastable(full)), i64(full)};
  row.inputs[1].is_constant = random.one_in(2);
  return row;
}
const Sweep kExpand("Movement", "Expand", 60, expand);

OpCase tile(Random& random) {
  OpCase row;
  row.node = {.op_type = "Tile", .opset = 13};
  const std::int64_t rank = random.integer(1, 4);
  row.inputs = {random.tensor(random.pick(all_types()), random.dims(rank, 300)),
                random.indices({rank}, 1, 3)};
  row.inputs[1].is_constant = random.one_in(2);
  return row;
}
const Sweep kTile("Movement", "Tile", 40, tile);

OpCase blocks(Random& random) {
  OpCase row;
  const std::int64_t b = random.integer(1, 3);
  Dims dims = {random.integer(1, 2), random.integer(1, 4), random.integer(1, 7),
               random.integer(1, 7)};
  const bool to_space = random.one_in(2);
  row.node = {.op_type = to_space ? "DepthToSpace" : "SpaceToDepth",
              .opset = 13,
              .attributes = {{"blocksize", b}}};
  if (to_space) {
    dims[1] *= b * b;
    if (random.one_in(2)) row.node.attributes.push_back({"mode", random.pick({"DCR", "CRD"})});
  } else {
    dims[2] *= b;
    dims[3] *= b;
  }
  row.inputs = {random.tensor(
      random.pick({ElementType::Float, ElementType::UInt8, ElementType::Double}), dims)};
  return row;
}
const Sweep kBlocks("Movement", "DepthAndSpace", 40, blocks);

OpCase trilu(Random& random) {
  OpCase row;
  row.node = {.op_type = "Trilu", .opset = 14};
  if (random.one_in(2)) row.node.attributes = {{"upper", random.integer(0, 1)}};
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Double, ElementType::Int64, ElementType::Bool});
  row.inputs = {random.tensor(type, random.dims(random.integer(2, 4)))};
  if (random.one_in(2)) row.inputs.push_back(random.indices({}, -6, 6));
  return row;
}
const Sweep kTrilu("Movement", "Trilu", 30, trilu);

OpCase reverse_sequence(Random& random) {
  OpCase row;
  const std::int64_t batch = random.integer(0, 1);
  row.node = {.op_type = "ReverseSequence",
              .opset = 10,
              .attributes = {{"batch_axis", batch}, {"time_axis", 1 - batch}}};
  const Dims dims = random.dims(random.integer(2, 4), 2000, false);
  row.inputs = {random.tensor(random.pick({ElementType::Float, ElementType::Int64}), dims),
                random.indices({dims[batch]}, 1, dims[1 - batch])};
  return row;
}
const Sweep kReverseSequence("Movement", "ReverseSequence", 20, reverse_sequence);

/// Writes nodes that move x; gives what they make.
using Move = std::function<std::vector<std::string>(GraphWriter&, const std::string& x)>;

Move one(const char* op_type, const std::vector<Tensor>& more,
         const std::vector<reference::Attribute>& attributes = {}) {
  return [=](GraphWriter& g, const std::string& x) -> std::vector<std::string> {
    std::vector<std::string> inputs{x};
    for (const Tensor& tensor : more) inputs.push_back(g.constant(tensor));
    return {g.node(op_type, inputs, attributes)};
  };
}

struct MoveOf {
  Dims dims;
  Move move;
};

/// What moves nothing, or takes a part that lies in one piece where a tensor may begin.
std::vector<MoveOf> moves_of_nothing() {
  return {
      {{2, 1, 3, 4}, one("Transpose", {}, {{"perm", ints({0, 2, 1, 3})}})},
      {{1, 3, 1, 4}, one("Transpose", {}, {{"perm", ints({1, 2, 3, 0})}})},
      {{1, 1}, one("Transpose", {})},
      {{2, 3}, one("Expand", {i64({2, 3})})},
      {{2, 3}, one("Expand", {i64({1, 1, 2, 1})})},
      {{2, 3}, one("Slice", {i64({0, -5}), i64({9, 3})})},
      {{64, 32}, one("Slice", {i64({32}), i64({48}), i64({0})})},
      {{1, 96, 5}, one("Slice", {i64({64}), i64({95}), i64({1})})},
      {{2, 3}, one("Tile", {i64({1, 1})})},
      {{2, 3}, one("Concat", {f32({2, 0}, {})}, {{"axis", 1}})},
      {{2, 3}, one("Concat", {}, {{"axis", 0}})},
      {{2, 8, 3, 3}, one("DepthToSpace", {}, {{"blocksize", 1}})},
      {{64, 6},
       [](GraphWriter& g, const std::string& x) {
         return g.nodes("Split", {x, g.constant(i64({32, 32}))}, 2, {{"axis", 0}});
       }},
  };
}

/// What moves something, or takes a part that begins where no tensor may.
std::vector<MoveOf> moves_of_something() {
  return {
      {{2, 2, 3, 4}, one("Transpose", {}, {{"perm", ints({0, 2, 1, 3})}})},
      {{2, 3}, one("Expand", {i64({1, 2, 2, 3})})},
      {{2, 3}, one("Slice", {i64({0}), i64({2}), i64({1})})},
      {{5, 3}, one("Slice", {i64({1}), i64({4}), i64({0})})},
      {{5, 3}, one("Slice", {i64({4}), i64({-9}), i64({0}), i64({-1})})},
      {{1, 3}, one("Tile", {i64({2, 1})})},
      {{2, 3}, one("Concat", {f32({2, 1}, {5, 6})}, {{"axis", 1}})},
      {{2, 4},
       [](GraphWriter& g, const std::string& x) {
         return g.nodes("Split", {x, g.constant(i64({2, 2}))}, 2, {{"axis", 1}});
       }},
      {{65}, one("Slice", {i64({-1}), i64({-99}), i64({0}), i64({-1})})},
      {{1}, one("Expand", {i64({6})})},
      // One part of three begins where no tensor may: all are copied.
      {{64, 6},
       [](GraphWriter& g, const std::string& x) {
         return g.nodes("Split", {x, g.constant(i64({32, 31, 1}))}, 3, {{"axis", 0}});
       }},
  };
}

Options options_of(const Target& target) {
  Options options = target.options;
  options.insert(
      options.end(),
      {{"providers", target.provider}, {"fallback", "forbid"}, {"optimization", "none"}});
  return options;
}

/// The graph is right, twice, on every device; gives how many of its nodes had nothing to compute.
std::vector<int> run_views(const GraphCase& graph) {
  std::vector<int> counts;
  for (const Target& target : compiling_targets()) {
    Session session(model_of(graph, Form::Fixed), options_of(target));
    for (int run = 0; run < 2; ++run) {
      const std::vector<Tensor> got = session.run(graph.feeds, graph.outputs);
      const std::vector<reference::Array> want = expected_of(graph);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(difference(got[i], want[i], graph.tolerance), "")
            << target.name << describe(graph);
    }
    int views = 0;
    const nlohmann::json explained = nlohmann::json::parse(session.explain());
    for (const auto& node : explained["nodes"]) {
      const std::string kernel = node["kernel"].is_string() ? node["kernel"] : "";
      views += kernel.find("(a view: nothing to compute)") != std::string::npos ? 1 : 0;
    }
    counts.push_back(views);
  }
  return counts;
}

/// Between two nodes that compute.
GraphCase between(const MoveOf& each) {
  Random random(1);
  GraphWriter g(17, random);
  std::vector<std::string> outputs;
  for (const std::string& moved : each.move(g, g.node("Abs", {g.feed(each.dims)})))
    outputs.push_back(g.node("Neg", {moved}));
  return g.done(outputs);
}

TEST(Movement, WhatMovesNothingIsAViewOnDevices) {
  for (const MoveOf& each : moves_of_nothing()) {
    const GraphCase graph = between(each);
    for (const int views : run_views(graph)) EXPECT_EQ(views, 1) << describe(graph);
  }
}

TEST(Movement, WhatMovesSomethingIsNone) {
  for (const MoveOf& each : moves_of_something()) {
    const GraphCase graph = between(each);
    for (const int views : run_views(graph)) EXPECT_EQ(views, 0) << describe(graph);
  }
}

/// What is fed goes out again, and so does what others read, which is not written over.
TEST(Movement, WhatMovesNothingIsRightBetweenFeedsFetchesAndOtherReaders) {
  for (const MoveOf& each : moves_of_nothing()) {
    Random random(1);
    GraphWriter g(17, random);
    const std::string fed = g.feed(each.dims);
    std::vector<std::string> outputs = each.move(g, fed);
    const std::string made = g.node("Abs", {fed});
    for (const std::string& moved : each.move(g, made)) {
      outputs.push_back(moved);
      outputs.push_back(g.node("Neg", {moved}));
    }
    outputs.push_back(g.node("Neg", {made}));
    run_views(g.done(outputs));
  }
}

/// Of one session: at one position nothing moves.
TEST(Movement, OfSymbolsIsAViewInSomeRunsAndRightInAll) {
  Random random(1);
  GraphWriter g(17, random);
  const std::string x = g.node("Abs", {g.feed({1, 1, 1, 4})});
  const std::string turned = g.node("Transpose", {x}, {{"perm", ints({0, 2, 1, 3})}});
  const std::string whole = g.node("Concat", {g.feed({1, 1, 1, 4}), turned}, {{"axis", 2}});
  const std::string part =
      g.node("Slice", {whole, g.constant(i64({-2})), g.constant(i64({9})), g.constant(i64({2}))});
  const std::vector<Sizes> sizes{
      {{"n", 1}, {"s", 3}, {"h", 2}, {"p", 2}}, {{"n", 2}, {"s", 1}, {"h", 3}, {"p", 0}},
      {{"n", 2}, {"s", 2}, {"h", 1}, {"p", 0}}, {{"n", 1}, {"s", 1}, {"h", 1}, {"p", 8}},
      {{"n", 0}, {"s", 1}, {"h", 2}, {"p", 1}}, {{"n", 2}, {"s", 0}, {"h", 2}, {"p", 3}}};
  const SymbolicCase symbolic =
      symbolic_case(g.done({g.node("Neg", {part}), whole}),
                    {{"n", "s", "h", "4"}, {"n", "h", "p", "4"}}, sizes, random);
  for (const Target& target : find_targets()) {
    const Outcome outcome =
        run_symbolic(symbolic, {{"providers", target.provider}, {"fallback", "forbid"}});
    if (outcome.kind == Outcome::Kind::Refused && target.provider == "fakegpu") continue;
    EXPECT_EQ(outcome.kind, Outcome::Kind::Passed) << target.name << ": " << outcome.text;
  }
}

}  // namespace
}  // namespace backplane::ops_test
