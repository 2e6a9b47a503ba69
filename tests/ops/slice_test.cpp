// Slice, Split, Concat, Pad: https://onnx.ai/onnx/operators/onnx__Slice.html
#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "SliceByAttributes",
     .node = {.op_type = "Slice",
              .opset = 9,
              .attributes = {{"starts", ints({1})},
                             {"ends", ints({INT64_MAX})},
                             {"axes", ints({1})}}},
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6})},
     .outputs = {f32({2, 2}, {2, 3, 5, 6})}},
    {.name = "SliceBackwards",
     .node = {.op_type = "Slice", .opset = 13},
     .inputs = {f32({4}, {1, 2, 3, 4}), constant(i64({-1})), constant(i64({INT64_MIN})),
                constant(i64({0})), constant(i64({-2}))},
     .outputs = {f32({2}, {4, 2})}},
    {.name = "SliceBackwardsFromBeforeTheFirst",
     .node = {.op_type = "Slice", .opset = 13},
     .inputs = {f32({1}, {7}), i64({1}, {-2}), i64({1}, {-2}), i64({1}, {0}), i64({1}, {-1})},
     .outputs = {f32({1}, {7})}},
    {.name = "SliceOfNothing",
     .node = {.op_type = "Slice", .opset = 13},
     .inputs = {f32({4}, {1, 2, 3, 4}), constant(i64({3})), constant(i64({1}))},
     .outputs = {f32({0}, {})}},
    {.name = "SliceWithInt32Bounds",
     .node = {.op_type = "Slice", .opset = 13},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), constant(i32({1}, {0})), constant(i32({1}, {1})),
                constant(i32({1}, {-1}))},
     .outputs = {f32({2, 1}, {1, 3})}},
    {.name = "SliceOfStrings",
     .node = {.op_type = "Slice", .opset = 13},
     .inputs = {text({3}, {"a", "b", "c"}), constant(i64({1})), constant(i64({3}))},
     .outputs = {text({2}, {"b", "c"})}},
    {.name = "SplitIntoEqualParts",
     .node = {.op_type = "Split", .opset = 13, .attributes = {{"axis", 1}}},
     .inputs = {f32({1, 4}, {1, 2, 3, 4})},
     .outputs = {f32({1, 2}, {1, 2}), f32({1, 2}, {3, 4})}},
    {.name = "SplitIntoPartsOfWhichTheLastIsSmaller",
     .node = {.op_type = "Split", .opset = 18, .attributes = {{"num_outputs", 2}}},
     .inputs = {f32({3}, {1, 2, 3})},
     .outputs = {f32({2}, {1, 2}), f32({1}, {3})}},
    {.name = "SplitWithAnEmptyPart",
     .node = {.op_type = "Split", .opset = 13},
     .inputs = {f32({2}, {1, 2}), constant(i64({0, 2}))},
     .outputs = {f32({0}, {}), f32({2}, {1, 2})}},
    {.name = "ConcatOfOne",
     .node = {.op_type = "Concat", .opset = 13, .attributes = {{"axis", 0}}},
     .inputs = {f32({2}, {1, 2})},
     .outputs = {f32({2}, {1, 2})}},
    {.name = "ConcatWithAnEmptyPart",
     .node = {.op_type = "Concat", .opset = 13, .attributes = {{"axis", -1}}},
     .inputs = {f32({2, 1}, {1, 2}), f32({2, 0}, {}), f32({2, 2}, {3, 4, 5, 6})},
     .outputs = {f32({2, 3}, {1, 3, 4, 2, 5, 6})}},
    {.name = "ConcatOfStrings",
     .node = {.op_type = "Concat", .opset = 13, .attributes = {{"axis", 0}}},
     .inputs = {text({1}, {"a"}), text({2}, {"b", "c"})},
     .outputs = {text({3}, {"a", "b", "c"})}},
    {.name = "PadByAttributes",
     .node = {.op_type = "Pad",
              .opset = 2,
              .attributes = {{"pads", ints({0, 1, 0, 1})}, {"value", 9.0f}}},
     .inputs = {f32({1, 2}, {1, 2})},
     .outputs = {f32({1, 4}, {9, 1, 2, 9})}},
    {.name = "NegativePadsCrop",
     .node = {.op_type = "Pad", .opset = 13},
     .inputs = {f32({4}, {1, 2, 3, 4}), constant(i64({-1, 2}))},
     .outputs = {f32({5}, {2, 3, 4, 0, 0})}},
    {.name = "ReflectLeavesTheEdgeOut",
     .node = {.op_type = "Pad", .opset = 13, .attributes = {{"mode", "reflect"}}},
     .inputs = {f32({3}, {1, 2, 3}), constant(i64({2, 1}))},
     .outputs = {f32({6}, {3, 2, 1, 2, 3, 2})}},
    {.name = "EdgeRepeats",
     .node = {.op_type = "Pad", .opset = 13, .attributes = {{"mode", "edge"}}},
     .inputs = {f32({2}, {1, 2}), constant(i64({2, 1}))},
     .outputs = {f32({5}, {1, 1, 1, 2, 2})}},
    {.name = "WrapGoesAround",
     .node = {.op_type = "Pad", .opset = 19, .attributes = {{"mode", "wrap"}}},
     .inputs = {f32({3}, {1, 2, 3}), constant(i64({2, 1}))},
     .outputs = {f32({6}, {2, 3, 1, 2, 3, 1})}},
    {.name = "PadsOfSomeAxes",
     .node = {.op_type = "Pad", .opset = 18},
     .inputs = {f32({2, 1}, {1, 2}), constant(i64({1, 0})), constant(f32({}, {7})),
                constant(i64({-1}))},
     .outputs = {f32({2, 2}, {7, 1, 7, 2})}},
};
const Rows kSliceRows("Slice", kRows);

OpCase pad_refusal(const char* name, const Dims& dims, std::vector<std::int64_t> pads,
                   const char* mode = "constant") {
  std::int64_t size = 1;
  for (const std::int64_t dim : dims) size *= dim;
  return {.name = name,
          .node = {.op_type = "Pad", .opset = 13, .attributes = {{"mode", mode}}},
          .inputs = {f32(dims, std::vector<double>(static_cast<std::size_t>(size), 1)),
                     constant(i64(std::move(pads)))},
          .outputs = {f32(Dims(dims.size(), 0), {})},
          .refusal = "too large"};
}
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHuge = std::int64_t{1} << 62;

const OpCase kRefusals[] = {
    pad_refusal("PadsThatMakeEightElements", {10}, {kGreatest, kGreatest}),
    pad_refusal("PadsThatMakeEightElementsOfTheEdge", {10}, {kGreatest, kGreatest}, "edge"),
    pad_refusal("PadsThatRemoveEverythingTwice", {10}, {kLeast, kLeast}),
    pad_refusal("PadsOfOneOfTwoAxes", {2, 2}, {kHuge, 0, kHuge, 0}),
    {.name = "PadToMoreThanMemoryHoldsNamesTheShape",
     .node = {.op_type = "Pad", .opset = 13},
     .inputs = {i8({2}, {1, 2}), constant(i64({std::int64_t{1} << 50, 0}))},
     .outputs = {i8(Dims{0}, {})},
     .refusal = "1125899906842626"},
    {.name = "CenterCropPadToMoreThanCanBeCounted",
     .node = {.op_type = "CenterCropPad", .opset = 18},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), constant(i64({kHuge, kHuge}))},
     .outputs = {f32({0, 0}, {})},
     .refusal = "more elements than 63 bits can count"},
    {.name = "SplitWhosePartsOnlySeemToFit",
     .node = {.op_type = "Split", .opset = 13},
     .inputs = {i8({3}, {1, 2, 3}), constant(i64({kGreatest, kGreatest, 5}))},
     .outputs = {i8({0}, {}), i8({0}, {}), i8({0}, {})},
     .refusal = "too large"},
};
const Rows kSliceRefusals("Slice", kRefusals);

OpCase slice(Random& random) {
  OpCase row;
  row.node = {.op_type = "Slice", .opset = 13};
  const std::int64_t rank = random.integer(1, 5);
  const Dims dims = random.dims(rank);
  Dims axes = random.permutation(rank);
  axes.resize(static_cast<std::size_t>(random.integer(1, rank)));
  Dims starts;
  Dims ends;
  Dims steps;
  for (const std::int64_t axis : axes) {
    const std::int64_t size = dims[axis];
    steps.push_back(random.pick<std::int64_t>({1, 1, 2, 3, -1, -2}));
    starts.push_back(random.integer(-size - 2, size + 2));
    ends.push_back(random.integer(-size - 2, size + 2));
    // As exporters write "to the end".
    if (random.one_in(4)) ends.back() = steps.back() > 0 ? INT64_MAX : INT64_MIN + 1;
  }
  for (std::int64_t& axis : axes) axis -= random.one_in(2) ? rank : 0;
  row.inputs = {random.tensor(random.pick(all_types()), dims), i64(starts), i64(ends), i64(axes)};
  if (steps != Dims(steps.size(), 1)) row.inputs.push_back(i64(steps));
  const bool is_constant = !random.one_in(4);
  for (std::size_t i = 1; i < row.inputs.size(); ++i) row.inputs[i].is_constant = is_constant;
  return row;
}
const Sweep kSlice("Slice", "Slice", 120, slice);

OpCase split(Random& random) {
  OpCase row;
  const std::int64_t opset = random.pick<std::int64_t>({11, 13, 18});
  const std::int64_t rank = random.integer(1, 4);
  const std::int64_t axis = random.axis(rank);
  const std::int64_t parts = random.integer(1, 4);
  Dims dims = random.dims(rank, 1000);
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  Dims sizes;
  for (std::int64_t i = 0; i < parts; ++i) sizes.push_back(random.integer(0, 9));
  const bool equal = random.one_in(3);
  if (equal) sizes.assign(sizes.size(), sizes[0] + 1);
  dims[at] = 0;
  for (const std::int64_t size : sizes) dims[at] += size;
  row.node = {.op_type = "Split", .opset = opset, .attributes = {{"axis", axis}}};
  row.output_count = static_cast<std::size_t>(parts);
  const ElementType type = random.pick({ElementType::Float, ElementType::Int64, ElementType::UInt8,
                                        ElementType::Float16, ElementType::String});
  row.inputs = {random.tensor(type, dims)};
  if (equal && opset == 18) row.node.attributes.push_back({"num_outputs", parts});
  if (!equal && opset < 13) row.node.attributes.push_back({"split", sizes});
  if (!equal && opset >= 13) row.inputs.push_back(constant(i64(sizes)));
  return row;
}
const Sweep kSplit("Slice", "Split", 60, split);

OpCase concat(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 5);
  const std::int64_t axis = random.axis(rank);
  const Dims dims = random.dims(rank, 600);
  row.node = {.op_type = "Concat", .opset = 13, .attributes = {{"axis", axis}}};
  const ElementType type = random.pick(all_types());
  const std::int64_t count = random.integer(1, 5);
  for (std::int64_t i = 0; i < count; ++i) {
    Dims part = dims;
    part[axis < 0 ? axis + rank : axis] = random.integer(0, 9);
    row.inputs.push_back(random.tensor(type, part));
    row.inputs.back().is_constant = random.one_in(4);
  }
  return row;
}
const Sweep kConcat("Slice", "Concat", 60, concat);

OpCase pad(Random& random) {
  OpCase row;
  const std::int64_t opset = random.pick<std::int64_t>({13, 18, 19});
  const std::int64_t rank = random.integer(1, 5);
  const std::string mode =
      random.pick({"constant", "constant", "reflect", "edge", opset == 19 ? "wrap" : "edge"});
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Double, ElementType::Int64, ElementType::UInt8,
                   ElementType::Float16, ElementType::Bool});
  const Dims dims = random.dims(rank, 800, mode == "constant");
  Dims axes = random.permutation(rank);
  const bool some = opset >= 18 && random.one_in(2);
  if (some) axes.resize(static_cast<std::size_t>(random.integer(1, rank)));
  if (!some) std::sort(axes.begin(), axes.end());
  Dims pads(axes.size() * 2);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t size = dims[axes[i]];
    // No more than one reflection or round, and something must be left after cropping.
    const std::int64_t most = mode == "reflect" ? std::min<std::int64_t>(size - 1, 4)
                              : mode == "wrap"  ? size
                                                : 4;
    pads[i] = random.integer(mode == "constant" ? -(size / 3) : 0, most);
    pads[i + axes.size()] = random.integer(mode == "constant" ? -(size / 3) : 0, most);
  }
  row.node = {.op_type = "Pad", .opset = opset, .attributes = {{"mode", mode}}};
  row.inputs = {random.tensor(type, dims), constant(i64(pads))};
  const bool value = mode == "constant" && random.one_in(2);
  if (value) row.inputs.push_back(constant(random.tensor(type, {}, 0, 5)));
  if (some) {
    if (!value) row.inputs.push_back(absent());
    row.inputs.push_back(constant(i64(axes)));
  }
  return row;
}
const Sweep kPad("Slice", "Pad", 80, pad);

/// Pads that are longer than the axis, in all modes, of one axis before others and of the last one.
OpCase wide_pad(Random& random) {
  const std::string mode = random.pick({"constant", "edge"});
  const Dims dims = {random.integer(1, 3), random.integer(1, 3), random.integer(1, 4)};
  Dims pads(6);
  for (std::int64_t& pad : pads) pad = random.integer(0, 9);
  return {.node = {.op_type = "Pad", .opset = 13, .attributes = {{"mode", mode}}},
          .inputs = {random.tensor(ElementType::Float, dims), constant(i64(pads))}};
}
const Sweep kWidePad("Slice", "WidePad", 20, wide_pad);

}  // namespace
}  // namespace backplane::ops_test
