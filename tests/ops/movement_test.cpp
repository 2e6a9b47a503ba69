// Transpose, Expand, Tile, DepthToSpace, SpaceToDepth, Trilu, ReverseSequence:
// https://onnx.ai/onnx/operators/
#include <algorithm>
#include <vector>

#include "tests/ops/cases.hpp"

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
    {.name = "ReverseSequenceByTime",
     .node = {.op_type = "ReverseSequence", .opset = 10},
     .inputs = {f32({3, 2}, {1, 2, 3, 4, 5, 6}), i64({2, 3})},
     .outputs = {f32({3, 2}, {3, 6, 1, 4, 5, 2})}},
};
const Rows kMovementRows("Movement", kRows);

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

}  // namespace
}  // namespace backplane::ops_test
