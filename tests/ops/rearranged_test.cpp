// MaxUnpool, Col2Im, DeformConv: https://onnx.ai/onnx/operators/onnx__Col2Im.html; and smaller operators
// whose rows say all: BitCast, Det, TfIdfVectorizer.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "UnpoolIntoALargerImage",
     .node = {.op_type = "MaxUnpool",
              .opset = 11,
              .attributes = {{"kernel_shape", ints({2})}, {"strides", ints({2})}}},
     .inputs = {f32({1, 1, 2}, {5, 6}), i64({1, 1, 2}, {1, 2}), constant(i64({1, 1, 5}))},
     .outputs = {f32({1, 1, 5}, {0, 5, 6, 0, 0})}},
    {.name = "OverlappingBlocksAddUp",
     .node = {.op_type = "Col2Im", .opset = 18},
     .inputs = {f32({1, 2, 2}, {1, 2, 10, 20}), constant(i64({1, 3})), constant(i64({1, 2}))},
     .outputs = {f32({1, 1, 1, 3}, {1, 12, 20})}},
    {.name = "BitCastKeepsTheBits",
     .node = {.op_type = "BitCast", .opset = 26, .attributes = {{"to", 6}}},
     .inputs = {f32({2}, {1, -0.0})},
     .outputs = {i32({2}, {1065353216, -2147483648.0})}},
    {.name = "BitCastOfBytes",
     .node = {.op_type = "BitCast", .opset = 26, .attributes = {{"to", 2}}},
     .inputs = {i8({1, 3}, {-1, 0, -128})},
     .outputs = {u8({1, 3}, {255, 0, 128})}},
    {.name = "DeterminantsOfABatch",
     .node = {.op_type = "Det", .opset = 11},
     .inputs = {f32({3, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0, 1, 2, 2, 4})},
     .outputs = {f32({3}, {-2, -1, 0})}},
    {.name = "DeterminantIsAScalar",
     .node = {.op_type = "Det", .opset = 11},
     .inputs = {f64({3, 3}, {2, 0, 1, 0, 3, 0, 1, 0, 2})},
     .outputs = {f64({}, {9})}},
    {.name = "CountsOfSkippingBigrams",
     .node = {.op_type = "TfIdfVectorizer",
              .opset = 9,
              .attributes = {{"mode", "TF"},
                             {"min_gram_length", 1},
                             {"max_gram_length", 2},
                             {"max_skip_count", 1},
                             {"ngram_counts", ints({0, 2})},
                             {"ngram_indexes", ints({0, 1, 2})},
                             {"pool_int64s", ints({1, 2, 1, 3})}}},
     .inputs = {i64({2, 3}, {1, 2, 3, 1, 3, 1})},
     .outputs = {f32({2, 3}, {1, 1, 1, 2, 0, 1})}},
    {.name = "SkipsFarLongerThanTheRow",
     .node = {.op_type = "TfIdfVectorizer",
              .opset = 9,
              .attributes = {{"mode", "TF"},
                             {"min_gram_length", 1},
                             {"max_gram_length", kGreatest},
                             {"max_skip_count", kGreatest},
                             {"ngram_counts", ints({0, 2})},
                             {"ngram_indexes", ints({0, 1, 2})},
                             {"pool_int64s", ints({1, 2, 1, 3})}}},
     .inputs = {i64({2, 3}, {1, 2, 3, 1, 3, 1})},
     .outputs = {f32({2, 3}, {1, 1, 1, 2, 0, 1})}},
    {.name = "WeightsOfStringsThatOccur",
     .node = {.op_type = "TfIdfVectorizer",
              .opset = 9,
              .attributes = {{"mode", "IDF"},
                             {"min_gram_length", 1},
                             {"max_gram_length", 1},
                             {"max_skip_count", 0},
                             {"ngram_counts", ints({0})},
                             {"ngram_indexes", ints({1, 0})},
                             {"weights", floats({2, 3})},
                             {"pool_strings", strings({"a", "b"})}}},
     .inputs = {text({3}, {"a", "c", "a"})},
     .outputs = {f32({2}, {0, 3})}},
};
const Rows kRearrangedRows("Rearranged", kRows);

const OpCase kRefusals[] = {
    {.name = "UnpoolIntoAnImageThatCannotBeCounted",  // 3 strides are 2 in 64 bits
     .node = {.op_type = "MaxUnpool",
              .opset = 11,
              .attributes = {{"kernel_shape", ints({2})},
                             {"strides", ints({6148914691236517206})}}},
     .inputs = {f32({1, 1, 4}, {5, 6, 7, 8}), i64({1, 1, 4}, {0, 1, 2, 3})},
     .outputs = {f32({0, 0, 0}, {})},
     .refusal = "too large"},
    {.name = "UnpoolIntoLessThanNothing",  // along both axes, so that the product is positive
     .node = {.op_type = "MaxUnpool",
              .opset = 11,
              .attributes = {{"kernel_shape", ints({1, 1})}, {"pads", ints({2, 2, 2, 2})}}},
     .inputs = {f32({1, 1, 2, 2}, {5, 6, 7, 8}), i64({1, 1, 2, 2}, {0, 1, 2, 3}),
                constant(i64({1, 1, 1, 1}))},
     .outputs = {f32({0, 0, 0, 0}, {})},
     .refusal = "less than nothing"},
    {.name = "BlocksThatCannotBeCounted",
     .node = {.op_type = "Col2Im", .opset = 18},
     .inputs = {f32({1, 4, 1}, {1, 2, 3, 4}), constant(i64({kGreatest, kGreatest})),
                constant(i64({2, 2}))},
     .outputs = {f32({0, 0, 0, 0}, {})},
     .refusal = "too large"},
};
const Rows kRearrangedRefusals("Rearranged", kRefusals);

OpCase max_unpool(Random& random) {
  OpCase row;
  const std::int64_t axes = random.integer(1, 3);
  Dims kernel;
  Dims strides;
  Dims dims = {random.integer(1, 2), random.integer(1, 3)};
  Dims out = dims;
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    kernel.push_back(random.integer(1, 3));
    strides.push_back(random.integer(1, 3));
    dims.push_back(random.integer(1, 4));
    out.push_back((dims.back() - 1) * strides.back() + kernel.back());
  }
  row.node = {.op_type = "MaxUnpool",
              .opset = 11,
              .attributes = {{"kernel_shape", kernel}, {"strides", strides}}};
  // Different places, in any order.
  std::vector<std::int64_t> places(static_cast<std::size_t>(reference::element_count(out)));
  std::iota(places.begin(), places.end(), 0);
  const auto count = static_cast<std::size_t>(reference::element_count(dims));
  for (std::size_t i = places.size(); i > 1; --i) {
    std::swap(places[i - 1],
              places[static_cast<std::size_t>(random.integer(0, static_cast<int>(i) - 1))]);
  }
  places.resize(count);
  row.inputs = {random.tensor(random.pick({ElementType::Float, ElementType::Double}), dims),
                i64(dims, places)};
  if (random.one_in(2)) {
    for (std::size_t axis = 2; axis < out.size(); ++axis) out[axis] += random.integer(0, 2);
    row.inputs.push_back(constant(i64(out)));
  }
  return row;
}
const Sweep kMaxUnpool("Rearranged", "MaxUnpool", 24, max_unpool);

OpCase col2im(Random& random) {
  OpCase row;
  const std::int64_t axes = random.integer(2, 3);
  Dims image, block, strides, dilations;
  Dims pads(static_cast<std::size_t>(2 * axes), 0);
  std::int64_t blocks = 1;
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    block.push_back(random.integer(1, 3));
    strides.push_back(random.integer(1, 3));
    dilations.push_back(random.integer(1, 2));
    pads[axis] = random.integer(0, 1);
    pads[axis + axes] = random.integer(0, 1);
    const std::int64_t extent = (block.back() - 1) * dilations.back() + 1;
    image.push_back(extent + random.integer(0, 4));
    blocks *= (image.back() + pads[axis] + pads[axis + axes] - extent) / strides.back() + 1;
  }
  row.node = {.op_type = "Col2Im",
              .opset = 18,
              .attributes = {{"strides", strides}, {"dilations", dilations}, {"pads", pads}}};
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Double, ElementType::Int32});
  row.inputs = {
      random.tensor(type, {random.integer(1, 2),
                           random.integer(1, 3) * reference::element_count(block), blocks}),
      constant(i64(image)), constant(i64(block))};
  row.tolerance = {8, 16};
  return row;
}
const Sweep kCol2Im("Rearranged", "Col2Im", 24, col2im);

OpCase deform_conv(Random& random) {
  OpCase row;
  const std::int64_t groups = random.integer(1, 2);
  const std::int64_t offset_groups = random.integer(1, 2);
  const std::int64_t channels = 2 * random.integer(1, 3);
  const std::int64_t features = groups * random.integer(1, 3);
  const std::int64_t batch = random.integer(1, 2);
  Dims kernel, strides, dilations, image, out;
  Dims pads(4, 0);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    kernel.push_back(random.integer(1, 3));
    strides.push_back(random.integer(1, 2));
    dilations.push_back(random.integer(1, 2));
    pads[axis] = random.integer(0, 1);
    pads[axis + 2] = random.integer(0, 1);
    const std::int64_t extent = (kernel[axis] - 1) * dilations[axis] + 1;
    image.push_back(extent + random.integer(0, 4));
    out.push_back((image[axis] + pads[axis] + pads[axis + 2] - extent) / strides[axis] + 1);
  }
  row.node = {.op_type = "DeformConv",
              .opset = 22,
              .attributes = {{"group", groups},
                             {"offset_group", offset_groups},
                             {"strides", strides},
                             {"dilations", dilations},
                             {"pads", pads}}};
  const std::int64_t maps = offset_groups * kernel[0] * kernel[1];
  const ElementType type = random.pick({ElementType::Float, ElementType::Float, ElementType::Double,
                                        ElementType::Float16, ElementType::BFloat16});
  row.inputs = {random.tensor(type, {batch, channels, image[0], image[1]}, -1, 1),
                random.tensor(type, {features, channels / groups, kernel[0], kernel[1]}, -1, 1),
                random.tensor(type, {batch, 2 * maps, out[0], out[1]}, -2, 2)};
  const bool has_mask = random.one_in(2);
  if (random.one_in(2)) {
    row.inputs.push_back(random.tensor(type, {features}));
  } else if (has_mask) {
    row.inputs.push_back(absent());
  }
  if (has_mask) row.inputs.push_back(random.tensor(type, {batch, maps, out[0], out[1]}, 0, 1));
  row.tolerance = {64, 256};
  return row;
}
const Sweep kDeformConv("Rearranged", "DeformConv", 30, deform_conv);

}  // namespace
}  // namespace backplane::ops_test
