// Reshape, Flatten, Squeeze, Unsqueeze, Shape, Size, and what makes arrays from numbers:
// https://onnx.ai/onnx/operators/onnx__Reshape.html
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

constexpr auto number(ElementType type) { return static_cast<std::int64_t>(type); }

const OpCase kRows[] = {
    {.name = "MinusOneIsTheRest",
     .node = {.op_type = "Reshape", .opset = 14},
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6}), constant(i64({3, -1}))},
     .outputs = {f32({3, 2}, {1, 2, 3, 4, 5, 6})}},
    {.name = "ZeroCopiesADim",
     .node = {.op_type = "Reshape", .opset = 14},
     .inputs = {f32({2, 3, 1}, {1, 2, 3, 4, 5, 6}), constant(i64({0, -1}))},
     .outputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6})}},
    {.name = "ZeroMayMeanZero",
     .node = {.op_type = "Reshape", .opset = 14, .attributes = {{"allowzero", 1}}},
     .inputs = {f32({0, 3}, {}), constant(i64({3, 0}))},
     .outputs = {f32({3, 0}, {})}},
    {.name = "ToAScalar",
     .node = {.op_type = "Reshape", .opset = 14},
     .inputs = {f32({1, 1}, {5}), constant(i64(Dims{0}, {}))},
     .outputs = {f32({}, {5})}},
    {.name = "OfStrings",
     .node = {.op_type = "Reshape", .opset = 14},
     .inputs = {text({2, 1}, {"a", "b"}), constant(i64({2}))},
     .outputs = {text({2}, {"a", "b"})}},
    {.name = "FlattenAtTheFirstAxis",
     .node = {.op_type = "Flatten", .opset = 13, .attributes = {{"axis", 0}}},
     .inputs = {f32({2, 2}, {1, 2, 3, 4})},
     .outputs = {f32({1, 4}, {1, 2, 3, 4})}},
    {.name = "FlattenAtANegativeAxis",
     .node = {.op_type = "Flatten", .opset = 13, .attributes = {{"axis", -1}}},
     .inputs = {f32({1, 2, 2}, {1, 2, 3, 4})},
     .outputs = {f32({2, 2}, {1, 2, 3, 4})}},
    {.name = "SqueezeByAttribute",
     .node = {.op_type = "Squeeze", .opset = 11, .attributes = {{"axes", ints({-1})}}},
     .inputs = {f32({1, 2, 1}, {1, 2})},
     .outputs = {f32({1, 2}, {1, 2})}},
    {.name = "SqueezeOfAllOnes",
     .node = {.op_type = "Squeeze", .opset = 13},
     .inputs = {f32({1, 2, 1}, {1, 2})},
     .outputs = {f32({2}, {1, 2})}},
    {.name = "UnsqueezeByAttribute",
     .node = {.op_type = "Unsqueeze", .opset = 9, .attributes = {{"axes", ints({1, 2})}}},
     .inputs = {f32({2}, {1, 2})},
     .outputs = {f32({2, 1, 1}, {1, 2})}},
    {.name = "UnsqueezeOfAScalar",
     .node = {.op_type = "Unsqueeze", .opset = 13},
     .inputs = {f32({}, {7}), constant(i64({0, -1}))},
     .outputs = {f32({1, 1}, {7})}},
    {.name = "ShapeOfAScalar",
     .node = {.op_type = "Shape", .opset = 13},
     .inputs = {f32({}, {7})},
     .outputs = {i64(Dims{0}, {})}},
    {.name = "ShapeFromTheEnd",
     .node = {.op_type = "Shape", .opset = 15, .attributes = {{"start", -2}}},
     .inputs = {f32({2, 3, 0}, {})},
     .outputs = {i64({3, 0})}},
    {.name = "SizeIsTheProduct",
     .node = {.op_type = "Size", .opset = 13},
     .inputs = {u8({2, 3}, {0, 0, 0, 0, 0, 0})},
     .outputs = {i64({}, {6})}},
    {.name = "ConstantOfShapeIsFloatZeroByDefault",
     .node = {.op_type = "ConstantOfShape", .opset = 9},
     .inputs = {constant(i64({2, 2}))},
     .outputs = {f32({2, 2}, {0, 0, 0, 0})}},
    {.name = "RangeOfInt64",
     .node = {.op_type = "Range", .opset = 11},
     .inputs = {constant(i64({}, {10})), constant(i64({}, {3})), constant(i64({}, {-3}))},
     .outputs = {i64({10, 7, 4})}},
    {.name = "RangeOfNothing",
     .node = {.op_type = "Range", .opset = 11},
     .inputs = {constant(f32({}, {1})), constant(f32({}, {1})), constant(f32({}, {0.5}))},
     .outputs = {f32({0}, {})}},
    {.name = "EyeLikeOfAnotherType",
     .node = {.op_type = "EyeLike",
              .opset = 9,
              .attributes = {{"k", 1}, {"dtype", number(ElementType::Int64)}}},
     .inputs = {f32({2, 3}, {9, 9, 9, 9, 9, 9})},
     .outputs = {i64({2, 3}, {0, 1, 0, 0, 0, 1})}},
};
const Rows kReshapeRows("Reshape", kRows);

const OpCase kRefusals[] = {
    {.name = "RangeThatCannotBeCounted",
     .node = {.op_type = "Range", .opset = 11},
     .inputs = {i64({}, {-kGreatest}), i64({}, {kGreatest}), i64({}, {1})},
     .outputs = {i64(Dims{0}, {})},
     .refusal = "too large"},
    {.name = "ShapeThatOnlySeemsToFit",
     .node = {.op_type = "Reshape", .opset = 13},
     .inputs = {f32({2}, {1, 2}), i64({3, 6148914691236517206})},
     .outputs = {f32({0, 0}, {})},
     .refusal = "too large"},
};
const Rows kReshapeRefusals("Reshape", kRefusals);

Input maybe_constant(Random& random, Tensor tensor) {
  Input input(std::move(tensor));
  input.is_constant = random.one_in(2);
  return input;
}

OpCase reshape(Random& random) {
  OpCase row;
  row.node = {.op_type = "Reshape", .opset = random.pick<std::int64_t>({5, 13, 14, 21})};
  const Dims dims = random.dims(random.integer(0, 5));
  // The same elements under other dims: neighbours are joined, ones put between.
  Dims target;
  std::int64_t open = 1;
  for (const std::int64_t dim : dims) {
    open *= dim;
    if (random.one_in(2)) continue;
    target.push_back(open);
    open = 1;
    if (random.one_in(4)) target.push_back(1);
  }
  if (open != 1 || target.empty()) target.push_back(open);
  const bool has_zero = reference::element_count(dims) == 0;
  if (has_zero && row.node.opset < 14) row.node.opset = 14;
  if (has_zero) row.node.attributes = {{"allowzero", 1}};
  if (!has_zero && random.one_in(2))
    target[random.integer(0, static_cast<std::int64_t>(target.size()) - 1)] = -1;
  row.inputs = {
      random.tensor(random.pick({ElementType::Float, ElementType::Int64, ElementType::UInt8,
                                 ElementType::Bool, ElementType::Double, ElementType::String}),
                    dims),
      maybe_constant(random, i64(target))};
  return row;
}
const Sweep kReshape("Reshape", "SameElements", 60, reshape);

OpCase squeeze(Random& random) {
  OpCase row;
  const bool old = random.one_in(3);
  Dims dims = random.dims(random.integer(1, 5));
  Dims axes;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (random.one_in(2)) continue;
    dims[axis] = 1;
    const auto at = static_cast<std::int64_t>(axis);
    axes.push_back(random.one_in(2) ? at : at - static_cast<std::int64_t>(dims.size()));
  }
  row.node = {.op_type = "Squeeze", .opset = old ? 11 : 13};
  row.inputs = {random.tensor(random.pick(all_types()), dims)};
  if (old && row.inputs[0].tensor.type == ElementType::BFloat16)
    row.inputs = {random.tensor(ElementType::Float, dims)};
  if (!axes.empty() && old) row.node.attributes = {{"axes", axes}};
  if (!axes.empty() && !old) row.inputs.push_back(maybe_constant(random, i64(axes)));
  // Without axes the rank of the output depends on the dims, and those must be known.
  if (axes.empty()) row.node.op_type = "Identity";
  return row;
}
const Sweep kSqueeze("Reshape", "Squeeze", 40, squeeze);

OpCase unsqueeze(Random& random) {
  OpCase row;
  const bool old = random.one_in(3);
  const Dims dims = random.dims(random.integer(0, 3));
  const std::int64_t added = random.integer(1, 2);
  const std::int64_t rank = static_cast<std::int64_t>(dims.size()) + added;
  Dims axes = random.permutation(rank);
  axes.resize(static_cast<std::size_t>(added));
  for (std::int64_t& axis : axes) axis -= !old && random.one_in(2) ? rank : 0;
  row.node = {.op_type = "Unsqueeze", .opset = old ? 9 : 13};
  row.inputs = {random.tensor(old ? ElementType::Float : random.pick(all_types()), dims)};
  if (old) row.node.attributes = {{"axes", axes}};
  if (!old) row.inputs.push_back(constant(i64(axes)));
  return row;
}
const Sweep kUnsqueeze("Reshape", "Unsqueeze", 40, unsqueeze);

OpCase flatten(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 5);
  row.node = {
      .op_type = "Flatten", .opset = 13, .attributes = {{"axis", random.integer(-rank, rank)}}};
  row.inputs = {random.tensor(random.pick(all_types()), random.dims(rank))};
  return row;
}
const Sweep kFlatten("Reshape", "Flatten", 30, flatten);

OpCase shape(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"Shape", "Shape", "Size"}), .opset = 15};
  if (row.node.op_type == "Shape" && random.one_in(2)) {
    row.node.attributes = {{"start", random.integer(-6, 6)}, {"end", random.integer(-6, 6)}};
  }
  row.inputs = {random.tensor(random.pick(all_types()), random.dims(random.integer(0, 5)))};
  return row;
}
const Sweep kShape("Reshape", "Shape", 40, shape);

OpCase constant_of_shape(Random& random) {
  OpCase row;
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Double, ElementType::Float16, ElementType::Int8,
                   ElementType::Int32, ElementType::Int64, ElementType::UInt8, ElementType::UInt64,
                   ElementType::Bool});
  row.node = {.op_type = "ConstantOfShape", .opset = 9};
  row.node.attributes = {{"value", to_array(random.tensor(type, {1}, 0, 9))}};
  const Dims dims = random.dims(random.integer(0, 4));
  row.inputs = {maybe_constant(random, i64(dims))};
  return row;
}
const Sweep kConstantOfShape("Reshape", "ConstantOfShape", 30, constant_of_shape);

OpCase range(Random& random) {
  OpCase row;
  const ElementType type = random.pick({ElementType::Float, ElementType::Double, ElementType::Int16,
                                        ElementType::Int32, ElementType::Int64});
  row.node = {.op_type = "Range", .opset = 11};
  // Quarters, so that no rounding decides on the number of elements.
  const double step = reference::is_integer(type) ? 1 : 0.25;
  const double delta = step * static_cast<double>(random.pick<std::int64_t>({-3, -1, 1, 2, 5}));
  for (const double value : {step * static_cast<double>(random.integer(-50, 50)),
                             step * static_cast<double>(random.integer(-50, 50)), delta}) {
    row.inputs.push_back(maybe_constant(random, tensor(type, {}, {value})));
  }
  return row;
}
const Sweep kRange("Reshape", "Range", 30, range);

OpCase eye_like(Random& random) {
  OpCase row;
  row.node = {.op_type = "EyeLike", .opset = 9, .attributes = {{"k", random.integer(-4, 4)}}};
  if (random.one_in(2)) {
    row.node.attributes.push_back(
        {"dtype", number(random.pick({ElementType::Float, ElementType::Int32, ElementType::Int64,
                                      ElementType::Double}))});
  }
  row.inputs = {random.tensor(
      random.pick({ElementType::Float, ElementType::Int32, ElementType::UInt64}), random.dims(2))};
  return row;
}
const Sweep kEyeLike("Reshape", "EyeLike", 20, eye_like);

}  // namespace
}  // namespace backplane::ops_test
