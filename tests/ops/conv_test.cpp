// Conv and ConvTranspose: https://onnx.ai/onnx/operators/onnx__Conv.html
#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "SumsOfANeighbourhood",
     .node = {.op_type = "Conv",
              .opset = 11,
              .attributes = {{"kernel_shape", ints({3, 3})}, {"pads", ints({1, 1, 1, 1})}}},
     .inputs = {f32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}),
                constant(f32({1, 1, 3, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1}))},
     .outputs = {f32({1, 1, 3, 3}, {12, 21, 16, 27, 45, 33, 24, 39, 28})}},
    {.name = "KernelShapeIsReadFromTheWeight",
     .node = {.op_type = "Conv", .opset = 11},
     .inputs = {f32({1, 1, 1, 3}, {1, 2, 3}), constant(f32({1, 1, 1, 2}, {1, -1})),
                constant(f32({1}, {10}))},
     .outputs = {f32({1, 1, 1, 2}, {9, 9})}},
    {.name = "EachGroupSeesItsOwnChannels",
     .node = {.op_type = "Conv", .opset = 11, .attributes = {{"group", 2}}},
     .inputs = {f32({1, 2, 1, 1}, {3, 5}), constant(f32({2, 1, 1, 1}, {10, 100}))},
     .outputs = {f32({1, 2, 1, 1}, {30, 500})}},
    {.name = "SameUpperPutsTheOddPadAtTheEnd",
     .node = {.op_type = "Conv", .opset = 11, .attributes = {{"auto_pad", "SAME_UPPER"}}},
     .inputs = {f32({1, 1, 3}, {1, 2, 3}), constant(f32({1, 1, 2}, {1, 1}))},
     .outputs = {f32({1, 1, 3}, {3, 5, 3})}},
    {.name = "SameLowerPutsTheOddPadAtTheBeginning",
     .node = {.op_type = "Conv", .opset = 11, .attributes = {{"auto_pad", "SAME_LOWER"}}},
     .inputs = {f32({1, 1, 3}, {1, 2, 3}), constant(f32({1, 1, 2}, {1, 1}))},
     .outputs = {f32({1, 1, 3}, {1, 3, 5})}},
    {.name = "NoImages",
     .node = {.op_type = "Conv", .opset = 11},
     .inputs = {f32({0, 1, 2, 2}, {}), constant(f32({3, 1, 1, 1}, {1, 2, 3}))},
     .outputs = {f32({0, 3, 2, 2}, {})}},
    {.name = "NanStaysWhereTheWindowSeesIt",
     .node = {.op_type = "Conv", .opset = 11},
     .inputs = {f32({1, 1, 1, 4}, {kNan, 1, 1, 1}), constant(f32({1, 1, 1, 2}, {1, 1}))},
     .outputs = {f32({1, 1, 1, 3}, {kNan, 2, 2})}},
    {.name = "TransposeSpreadsEachElement",
     .node = {.op_type = "ConvTranspose", .opset = 11, .attributes = {{"strides", ints({2})}}},
     .inputs = {f32({1, 1, 2}, {1, 10}), constant(f32({1, 1, 3}, {1, 2, 3}))},
     .outputs = {f32({1, 1, 5}, {1, 2, 13, 20, 30})}},
};
const Rows kConvRows("Conv", kRows);

/// A kernel of 3 x 3 over an image of 4 x 4.
OpCase refusal(const char* name, const char* op, std::vector<reference::Attribute> attributes) {
  return {.name = name,
          .node = {.op_type = op, .opset = 11, .attributes = std::move(attributes)},
          .inputs = {f32({1, 1, 4, 4}, std::vector<double>(16, 1)),
                     f32({1, 1, 3, 3}, std::vector<double>(9, 1))},
          .outputs = {f32({0, 0, 0, 0}, {})},
          .refusal = "too large"};
}
constexpr std::int64_t kHuge = std::int64_t{1} << 40;

const OpCase kRefusals[] = {
    refusal("PadsThatCannotBeCounted", "Conv",
            {{"pads", ints({kGreatest, kGreatest, kGreatest, kGreatest})}}),
    refusal("DilationsThatCannotBeCounted", "Conv", {{"dilations", ints({kGreatest, 1})}}),
    // Three windows along each axis, and an image with its padding that wraps to nothing.
    refusal("ImageThatCannotBeCounted", "Conv",
            {{"pads", ints({kHuge, kHuge, kHuge, kHuge})}, {"strides", ints({kHuge, kHuge})}}),
    refusal("TransposeOfDilationsThatCannotBeCounted", "ConvTranspose",
            {{"dilations", ints({kGreatest, 1})}}),
    refusal("TransposeOfStridesThatCannotBeCounted", "ConvTranspose",
            {{"strides", ints({6148914691236517206, 1})}}),
};
const Rows kConvRefusals("Conv", kRefusals);

/// Attributes that fit `kernel` and an image that is large enough for them.
struct Geometry {
  Dims image;
  Dims kernel;
  std::vector<reference::Attribute> attributes;
};

Geometry geometry(Random& random, std::int64_t axes, std::int64_t most_image) {
  Geometry g;
  Dims strides;
  Dims dilations;
  Dims pads(static_cast<std::size_t>(2 * axes), 0);
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    g.kernel.push_back(random.pick<std::int64_t>({1, 1, 2, 3, 3, 3, 5, 7}));
    strides.push_back(random.pick<std::int64_t>({1, 1, 1, 2, 3}));
    dilations.push_back(random.pick<std::int64_t>({1, 1, 1, 2, 3}));
    const std::int64_t extent = (g.kernel.back() - 1) * dilations.back() + 1;
    pads[axis] = random.integer(0, extent / 2);
    pads[axis + axes] = random.integer(0, extent / 2);
    g.image.push_back(extent + random.integer(0, most_image));
  }
  if (random.one_in(2)) g.attributes.push_back({"kernel_shape", g.kernel});
  if (random.one_in(2)) g.attributes.push_back({"strides", strides});
  if (random.one_in(3)) g.attributes.push_back({"dilations", dilations});
  const std::int64_t way = random.integer(0, 5);
  if (way == 0) g.attributes.push_back({"auto_pad", random.pick({"SAME_UPPER", "SAME_LOWER"})});
  if (way == 1) g.attributes.push_back({"auto_pad", "VALID"});
  if (way > 2) g.attributes.push_back({"pads", pads});
  return g;
}

Dims with_image(Dims front, const Dims& image) {
  front.insert(front.end(), image.begin(), image.end());
  return front;
}

OpCase conv_of(Random& random, const Geometry& g, std::int64_t batch, std::int64_t groups,
               std::int64_t channels, std::int64_t features, ElementType type) {
  OpCase row;
  row.node = {.op_type = "Conv", .opset = 11, .attributes = g.attributes};
  if (groups > 1) row.node.attributes.push_back({"group", groups});
  row.inputs = {random.tensor(type, with_image({batch, groups * channels}, g.image), -1, 1),
                random.tensor(type, with_image({groups * features, channels}, g.kernel), -1, 1)};
  if (random.one_in(2)) row.inputs.push_back(random.tensor(type, {groups * features}, -1, 1));
  for (std::size_t i = 1; i < row.inputs.size(); ++i) row.inputs[i].is_constant = !random.one_in(5);
  // Sums of up to a few thousand products of numbers below 1.
  row.tolerance = {64, 1024};
  return row;
}

template <std::int64_t axes>
OpCase any_geometry(Random& random) {
  const Geometry g = geometry(random, axes, axes == 1 ? 30 : axes == 2 ? 12 : 4);
  const std::int64_t groups = random.pick<std::int64_t>({1, 1, 2, 3});
  const ElementType type = random.one_in(4)
                               ? random.pick({ElementType::Double, ElementType::Float16})
                               : ElementType::Float;
  const std::int64_t most = axes == 3 ? 5 : 17;
  return conv_of(random, g, random.integer(1, 3), groups, random.integer(1, most),
                 random.integer(1, most), type);
}
const Sweep kOneAxis("Conv", "OneAxis", 30, any_geometry<1>);
const Sweep kTwoAxes("Conv", "TwoAxes", 80, any_geometry<2>);
const Sweep kThreeAxes("Conv", "ThreeAxes", 16, any_geometry<3>);

OpCase depthwise(Random& random) {
  const Geometry g = geometry(random, 2, 14);
  const std::int64_t channels = random.pick<std::int64_t>({1, 3, 7, 16, 17, 33});
  return conv_of(random, g, random.integer(1, 2), channels, 1,
                 random.pick<std::int64_t>({1, 1, 2, 3, 4}), ElementType::Float);
}
const Sweep kDepthwise("Conv", "Depthwise", 40, depthwise);

/// Three positions wide, where pixels are read once for all windows that they are in: images of one pixel and of several blocks,
/// pads on one side alone, windows without any line of the image.
OpCase narrow_depthwise(Random& random) {
  Geometry g;
  g.kernel = {random.integer(1, 4), 3};
  const std::int64_t dilation = random.integer(1, 2);
  const std::int64_t extent = (g.kernel[0] - 1) * dilation + 1;
  const std::int64_t before = random.integer(0, 1), after = random.integer(0, 1);
  g.image = {extent + random.integer(0, 3), 3 - before - after + random.integer(0, 40)};
  g.attributes = {
      {"strides", ints({random.integer(1, 3), random.integer(1, 3)})},
      {"dilations", ints({dilation, 1})},
      {"pads", ints({random.integer(0, extent), before, random.integer(0, extent), after})}};
  const std::int64_t channels = random.pick<std::int64_t>({7, 8, 9, 15, 16, 23, 40});
  return conv_of(random, g, random.integer(1, 2), channels, 1, random.pick<std::int64_t>({1, 1, 2}),
                 ElementType::Float);
}
const Sweep kNarrowDepthwise("Conv", "NarrowDepthwise", 60, narrow_depthwise);

/// Kernels of 3, 5 and 7 positions along the width, some of whose windows have a few positions inside of the image, at its edges
/// or beyond them; planes of several bands of lines, of which blocks of channels change their order.
OpCase wide_depthwise(Random& random) {
  Geometry g;
  g.kernel = {random.integer(1, 8), random.pick<std::int64_t>({3, 5, 5, 7})};
  const bool is_large = random.one_in(6);
  g.image = {is_large ? random.integer(40, 70) : random.integer(1, 12),
             is_large ? random.integer(60, 90) : random.integer(1, 30)};
  Dims pads;
  for (int side = 0; side < 2; ++side) {
    for (std::size_t axis = 0; axis < 2; ++axis)
      pads.push_back(std::max(g.kernel[axis] - g.image[axis], random.integer(0, g.kernel[axis])));
  }
  g.attributes = {{"strides", ints({random.integer(1, 3), random.integer(1, 3)})},
                  {"pads", ints(pads)}};
  const std::int64_t channels = random.pick<std::int64_t>({8, 15, 16, 17, 24, 31, 32, 40});
  return conv_of(random, g, random.integer(1, 2), channels, 1, 1, ElementType::Float);
}
const Sweep kWideDepthwise("Conv", "WideDepthwise", 60, wide_depthwise);

/// A few channels by themselves, where vectors go over pixels and channels alike: lines of no vector up to many, and some
/// that are cut into parts; strides and dilations, which go another way.
OpCase few_channels(Random& random) {
  Geometry g;
  const bool is_signal = random.one_in(2);
  const std::int64_t width = random.pick<std::int64_t>({1, 2, 3, 3, 9, 21, 65});
  const std::int64_t dilation = random.pick<std::int64_t>({1, 1, 1, 2, 5});
  const std::int64_t extent = (width - 1) * dilation + 1;
  const std::int64_t before = random.integer(0, extent / 2), after = random.integer(0, extent / 2);
  const std::int64_t stride = random.pick<std::int64_t>({1, 1, 1, 1, 3});
  const std::int64_t length = random.one_in(8) ? 9000 : random.integer(0, 150);
  if (is_signal) {
    g.kernel = {width};
    g.image = {extent + length};
    g.attributes = {{"strides", ints({stride})},
                    {"dilations", ints({dilation})},
                    {"pads", ints({before, after})}};
  } else {
    g.kernel = {random.integer(1, 3), width};
    g.image = {g.kernel[0] + random.integer(0, 2), extent + length};
    g.attributes = {{"strides", ints({1, stride})},
                    {"dilations", ints({1, dilation})},
                    {"pads", ints({1, before, 0, after})}};
  }
  return conv_of(random, g, random.integer(1, 2), random.pick<std::int64_t>({1, 1, 2, 3, 4, 5, 6}),
                 1, 1, ElementType::Float);
}
const Sweep kFewChannels("Conv", "FewChannels", 60, few_channels);

/// Few channels of a group and lines of a vector up to several parts, whose vectors run along the lines: all blocks of filters,
/// strides and dilations that part pixels in every way, windows that see no line or no pixel of the image.
OpCase planes(Random& random) {
  Geometry g;
  const bool is_signal = random.one_in(2);
  Dims strides, dilations, before, after;
  for (std::int64_t axis = is_signal ? 1 : 0; axis < 2; ++axis) {
    const bool wide = axis == 1;
    g.kernel.push_back(wide ? random.pick<std::int64_t>({1, 2, 3, 5, 10, 21})
                            : random.integer(1, 5));
    strides.push_back(random.pick<std::int64_t>({1, 1, 1, 2, 3, 4, 7}));
    dilations.push_back(random.pick<std::int64_t>({1, 1, 1, 2, 3, 8}));
    const std::int64_t extent = (g.kernel.back() - 1) * dilations.back() + 1;
    const std::int64_t most = random.one_in(8) ? extent + 20 : extent / 2;
    before.push_back(random.one_in(3) ? 0 : random.integer(0, most));
    after.push_back(random.one_in(3) ? 0 : random.integer(0, most));
    const bool is_long = wide && random.one_in(is_signal ? 2 : 8);
    const std::int64_t windows = random.integer(0, is_long ? 3000 : wide ? 90 : 12);
    g.image.push_back(std::max<std::int64_t>(
        1, extent + windows * strides.back() - before.back() - after.back()));
  }
  before.insert(before.end(), after.begin(), after.end());
  g.attributes = {{"strides", strides}, {"dilations", dilations}, {"pads", before}};
  const std::int64_t groups = random.pick<std::int64_t>({1, 1, 1, 2, 5});
  return conv_of(random, g, random.integer(1, 2), groups, random.integer(1, groups > 1 ? 3 : 8),
                 random.integer(1, groups > 1 ? 6 : 14), ElementType::Float);
}
const Sweep kPlanes("Conv", "Planes", 80, planes);

/// Every number of outputs of a group up to some vectors: panels of all widths, whole and not.
OpCase groups_of_columns(Random& random) {
  Geometry g;
  g.kernel = {1, random.integer(1, 2)};
  g.image = {random.integer(1, 5), random.integer(2, 9)};
  return conv_of(random, g, 1, random.pick<std::int64_t>({1, 2, 3}), random.integer(1, 20),
                 random.integer(1, 60), ElementType::Float);
}
const Sweep kGroupsOfColumns("Conv", "GroupsOfColumns", 60, groups_of_columns);

OpCase pointwise(Random& random) {
  Geometry g;
  g.kernel = {1, 1};
  g.image = {random.size(), random.size()};
  if (random.one_in(3)) g.attributes.push_back({"strides", ints({2, 2})});
  const std::int64_t groups = random.pick<std::int64_t>({1, 1, 4});
  return conv_of(random, g, random.integer(1, 2), groups, random.size() + random.size(),
                 random.size() + random.size(), ElementType::Float);
}
const Sweep kPointwise("Conv", "Pointwise", 40, pointwise);

/// 3x3 with stride 1, where transforms (Winograd) pay: edges of tiles in all phases.
OpCase three_by_three(Random& random) {
  Geometry g;
  g.kernel = {3, 3};
  g.image = {random.integer(3, 30), random.integer(3, 30)};
  const std::int64_t pad = random.integer(0, 1);
  g.attributes = {{"kernel_shape", g.kernel}, {"pads", ints({pad, pad, pad, pad})}};
  OpCase row =
      conv_of(random, g, random.integer(1, 2), 1, random.pick<std::int64_t>({3, 16, 31, 64}),
              random.pick<std::int64_t>({8, 16, 33, 64}), ElementType::Float);
  row.tolerance = {64, 4096};  // the transforms cost some digits
  return row;
}
const Sweep kThreeByThree("Conv", "ThreeByThree", 16, three_by_three);

/// The first convolution of image networks.
OpCase first_layer(Random& random) {
  Geometry g;
  const std::int64_t size = random.pick<std::int64_t>({3, 5, 7, 11});
  const std::int64_t stride = size == 11 ? 4 : 2;
  g.kernel = {size, size};
  g.image = {random.integer(20, 60), random.integer(20, 60)};
  g.attributes = {{"kernel_shape", g.kernel},
                  {"strides", ints({stride, stride})},
                  {"pads", ints({size / 2, size / 2, size / 2, size / 2})}};
  return conv_of(random, g, 1, 1, random.pick<std::int64_t>({1, 3, 4}),
                 random.pick<std::int64_t>({16, 24}), ElementType::Float);
}
const Sweep kFirstLayer("Conv", "FirstLayer", 6, first_layer);

/// The pads of a ConvTranspose in one of the ways that ONNX has; the last is none.
void pad_transpose(Random& random, OpCase& row, const Dims& strides, const Dims& pads,
                   const Dims& extra, const Dims& shape) {
  const std::int64_t way = random.integer(0, 3);
  // A window smaller than its stride would need negative pads to be the SAME: implementations
  // differ.
  if (way == 0 && strides == Dims(strides.size(), 1)) {
    row.node.attributes.push_back({"auto_pad", random.pick({"SAME_UPPER", "SAME_LOWER"})});
  }
  if (way == 1) row.node.attributes.push_back({"pads", pads});
  if (way == 1 && random.one_in(2)) row.node.attributes.push_back({"output_padding", extra});
  if (way == 2) row.node.attributes.push_back({"output_shape", shape});
  if (way == 2 && random.one_in(2)) row.node.attributes.push_back({"auto_pad", "SAME_UPPER"});
}

OpCase transpose(Random& random) {
  OpCase row;
  const std::int64_t axes = random.pick<std::int64_t>({1, 2, 2, 2, 3});
  Dims image;
  Dims kernel;
  Dims strides;
  Dims dilations;
  Dims pads(static_cast<std::size_t>(2 * axes), 0);
  Dims extra;
  Dims shape;
  // Some are worked through in several parts.
  const bool is_large = axes < 3 && random.one_in(10);
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    image.push_back(is_large ? random.integer(axes == 1 ? 5000 : 80, axes == 1 ? 9000 : 100)
                             : random.integer(2, axes == 3 || axis == 0 ? 7 : 19));
    kernel.push_back(is_large ? random.integer(4, 9) : random.integer(1, 4));
    strides.push_back(random.integer(1, 3));
    dilations.push_back(is_large ? 1 : random.integer(1, 2));
    pads[axis] = random.integer(0, (kernel.back() - 1) / 2);
    pads[axis + axes] = random.integer(0, (kernel.back() - 1) / 2);
    extra.push_back(random.integer(0, strides.back() - 1));
    const std::int64_t full =
        (image.back() - 1) * strides.back() + (kernel.back() - 1) * dilations.back() + 1;
    // ONNX's shape inference gives up where the output is smaller than the input.
    shape.push_back(std::max(image.back(), full - random.integer(0, 2)));
  }
  const std::int64_t groups = random.pick<std::int64_t>({1, 1, 2});
  const std::int64_t channels =
      groups * (is_large ? random.integer(1, 2) : random.pick<std::int64_t>({1, 2, 3, 5, 8, 17}));
  const std::int64_t features =
      is_large ? random.integer(1, 3) : random.pick<std::int64_t>({1, 3, 5, 16, 33});
  row.node = {.op_type = "ConvTranspose", .opset = 11, .attributes = {{"strides", strides}}};
  row.node.attributes.push_back({"dilations", dilations});
  if (groups > 1) row.node.attributes.push_back({"group", groups});
  pad_transpose(random, row, strides, pads, extra, shape);
  if (random.one_in(2)) row.node.attributes.push_back({"kernel_shape", kernel});
  const ElementType type = random.pick({ElementType::Float, ElementType::Float, ElementType::Float,
                                        ElementType::Double, ElementType::Float16});
  row.inputs = {random.tensor(type, with_image({2, channels}, image), -1, 1),
                random.tensor(type, with_image({channels, features}, kernel), -1, 1)};
  row.inputs[1].is_constant = !random.one_in(3);
  if (random.one_in(2)) row.inputs.push_back(constant(random.tensor(type, {groups * features})));
  row.tolerance = {64, 256};
  return row;
}
const Sweep kTranspose("Conv", "Transpose", 80, transpose);

/// Every channel by itself: strides beyond the kernel, dilations, pads, no image at all.
template <std::size_t axes>
OpCase depthwise_transpose(Random& random) {
  OpCase row;
  Dims image, kernel, strides, dilations, pads(2 * axes), extra;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    image.push_back(random.integer(2, axes == 3 ? 4 : 15));
    kernel.push_back(random.integer(1, axes == 3 ? 3 : 5));
    strides.push_back(random.integer(1, 4));
    dilations.push_back(random.integer(1, 2));
    extra.push_back(random.integer(0, strides.back() - 1));
    const std::int64_t extent = (kernel.back() - 1) * dilations.back() + 1;
    const std::int64_t most = std::min<std::int64_t>(extent, 3) / 2;
    pads[axis] = random.integer(0, most);
    pads[axis + axes] = random.integer(0, most);
  }
  const std::int64_t batch = random.one_in(8) ? 0 : random.integer(1, 2);
  const std::int64_t channels = random.pick<std::int64_t>({2, 3, 7, 8, 9, 16, 17, 33});
  row.node = {.op_type = "ConvTranspose",
              .opset = 11,
              .attributes = {{"strides", strides},
                             {"dilations", dilations},
                             {"pads", pads},
                             {"output_padding", extra},
                             {"group", channels}}};
  row.inputs = {random.tensor(ElementType::Float, with_image({batch, channels}, image), -1, 1),
                random.tensor(ElementType::Float, with_image({channels, 1}, kernel), -1, 1)};
  row.inputs[1].is_constant = !random.one_in(3);
  if (random.one_in(2))
    row.inputs.push_back(constant(random.tensor(ElementType::Float, {channels})));
  row.tolerance = {64, 256};
  return row;
}
const Sweep kDepthwiseTranspose1("Conv", "DepthwiseTransposeOfOneAxis", 20, depthwise_transpose<1>);
const Sweep kDepthwiseTranspose2("Conv", "DepthwiseTranspose", 60, depthwise_transpose<2>);
const Sweep kDepthwiseTranspose3("Conv", "DepthwiseTransposeOfThreeAxes", 20,
                                 depthwise_transpose<3>);

}  // namespace
}  // namespace backplane::ops_test
