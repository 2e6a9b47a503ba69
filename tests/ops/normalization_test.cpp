// Batch, instance, group, layer, RMS and Lp normalisation, LRN: https://onnx.ai/onnx/operators/
#include <cmath>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "BatchNormalizationInInference",
     .node = {.op_type = "BatchNormalization", .opset = 15, .attributes = {{"epsilon", 0.0f}}},
     .inputs = {f32({1, 2, 1, 2}, {1, 3, 10, 20}), constant(f32({2}, {2, 1})),
                constant(f32({2}, {0, 5})), constant(f32({2}, {1, 10})),
                constant(f32({2}, {4, 25}))},
     .outputs = {f32({1, 2, 1, 2}, {0, 2, 5, 7})}},
    {.name = "BatchNormalizationOfAMatrix",
     .node = {.op_type = "BatchNormalization", .opset = 15, .attributes = {{"epsilon", 0.0f}}},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), f32({2}, {1, 1}), f32({2}, {0, 1}), f32({2}, {1, 2}),
                f32({2}, {1, 4})},
     .outputs = {f32({2, 2}, {0, 1, 2, 2})}},
    {.name = "LayerNormalizationOfEqualValuesIsTheBias",
     .node = {.op_type = "LayerNormalization", .opset = 17},
     .inputs = {f32({1, 4}, {3, 3, 3, 3}), constant(f32({4}, {1, 2, 3, 4})),
                constant(f32({4}, {5, 6, 7, 8}))},
     .outputs = {f32({1, 4}, {5, 6, 7, 8})}},
    {.name = "LayerNormalizationGivesItsMoments",
     .node = {.op_type = "LayerNormalization", .opset = 17, .attributes = {{"epsilon", 0.0f}}},
     .inputs = {f32({2, 2}, {1, 3, 10, 20}), f32({2}, {1, 1})},
     .outputs = {f32({2, 2}, {-1, 1, -1, 1}), f32({2, 1}, {2, 15}), f32({2, 1}, {1, 0.2})}},
    {.name = "LayerNormalizationFarFromZero",
     .node = {.op_type = "LayerNormalization", .opset = 17, .attributes = {{"epsilon", 1e-12f}}},
     .inputs = {f32({1, 4}, {4096, 4097, 4098, 4099}), f32({4}, {1, 1, 1, 1})},
     .outputs = {f32({1, 4}, {-1.3416407865, -0.4472135955, 0.4472135955, 1.3416407865})},
     .tolerance = {16, 16}},
    {.name = "LrnOverChannels",
     .node = {.op_type = "LRN",
              .opset = 13,
              .attributes = {{"size", 3}, {"alpha", 3.0f}, {"beta", 1.0f}, {"bias", 1.0f}}},
     .inputs = {f32({1, 3, 1, 1}, {1, 2, 3})},
     .outputs = {f32({1, 3, 1, 1}, {1.0 / 6, 2.0 / 15, 3.0 / 14})}},
    {.name = "LpNormalizationOfL1",
     .node = {.op_type = "LpNormalization", .opset = 22, .attributes = {{"p", 1}, {"axis", 0}}},
     .inputs = {f32({2, 1}, {1, -3})},
     .outputs = {f32({2, 1}, {0.25, -0.75})}},
};
const Rows kNormalizationRows("Normalization", kRows);

const OpCase kRefusals[] = {
    {.name = "BatchNormalizationOfTooFewScales",
     .node = {.op_type = "BatchNormalization", .opset = 15},
     .inputs = {f32({1, 2, 1}, {1, 2}), f32({1}, {1}), f32({2}, {0, 1}), f32({2}, {1, 2}),
                f32({2}, {1, 4})},
     .outputs = {f32({1, 2, 1}, {0, 0})},
     .refusal = "input 1"},
    {.name = "LrnOverNoChannels",
     .node = {.op_type = "LRN", .opset = 13, .attributes = {{"size", 0}}},
     .inputs = {f32({1, 2, 1}, {1, 2})},
     .outputs = {f32({1, 2, 1}, {0, 0})},
     .refusal = "'size'"},
};
const Rows kNormalizationRefusals("Normalization", kRefusals);

/// [N, C, image...] of 2 to 5 axes.
Dims image_dims(Random& random, std::int64_t least_rank) {
  return random.dims(random.integer(least_rank, 5), 3000, false);
}

OpCase batch(Random& random) {
  OpCase row;
  const bool old = random.one_in(3);
  const Dims dims = image_dims(random, 2);
  const ElementType type = random.pick(
      {ElementType::Float, ElementType::Float, ElementType::Double, ElementType::Float16});
  row.node = {.op_type = "BatchNormalization", .opset = old ? 9 : 15};
  if (random.one_in(2)) row.node.attributes.push_back({"epsilon", 0.001f});
  row.inputs = {random.tensor(type, dims)};
  for (int i = 0; i < 4; ++i) {
    row.inputs.push_back(constant(random.tensor(type, {dims[1]}, i == 3 ? 0.2 : -1, 2)));
  }
  row.tolerance = {16, 32};
  return row;
}
const Sweep kBatch("Normalization", "Batch", 40, batch);

OpCase instance(Random& random) {
  OpCase row;
  const Dims dims = image_dims(random, 3);
  row.node = {.op_type = "InstanceNormalization", .opset = 6};
  if (random.one_in(2)) row.node.attributes.push_back({"epsilon", 0.01f});
  row.inputs = {random.tensor(ElementType::Float, dims),
                constant(random.tensor(ElementType::Float, {dims[1]})),
                constant(random.tensor(ElementType::Float, {dims[1]}))};
  // Lines of one or two elements may be nearly constant, and their deviation then has few digits.
  row.tolerance = {256, 4096};
  return row;
}
const Sweep kInstance("Normalization", "Instance", 24, instance);

OpCase group(Random& random) {
  OpCase row;
  Dims dims = image_dims(random, 3);
  const std::int64_t groups = random.pick<std::int64_t>({1, 2, 3});
  dims[1] = groups * random.integer(1, 4);
  const std::int64_t opset = random.pick<std::int64_t>({18, 20, 21});  // before 21 per group
  row.node = {
      .op_type = "GroupNormalization", .opset = opset, .attributes = {{"num_groups", groups}}};
  if (random.one_in(2)) row.node.attributes.push_back({"epsilon", 0.01f});
  const Dims parameters{opset < 21 ? groups : dims[1]};
  row.inputs = {random.tensor(ElementType::Float, dims),
                constant(random.tensor(ElementType::Float, parameters)),
                constant(random.tensor(ElementType::Float, parameters))};
  row.tolerance = {256, 4096};
  return row;
}
const Sweep kGroup("Normalization", "Group", 24, group);

OpCase layer(Random& random) {
  OpCase row;
  const bool rms = random.one_in(3);
  const std::int64_t rank = random.integer(1, 4);
  const Dims dims = random.dims(rank, 4000, false);
  const std::int64_t axis = random.axis(rank);
  const ElementType type = random.pick({ElementType::Float, ElementType::Float, ElementType::Double,
                                        ElementType::Float16, ElementType::BFloat16});
  row.node = {.op_type = rms ? "RMSNormalization" : "LayerNormalization", .opset = rms ? 23 : 17};
  row.node.attributes = {{"axis", axis}};
  if (random.one_in(2)) row.node.attributes.push_back({"epsilon", 0.01f});
  const Dims scale_dims(dims.begin() + (axis < 0 ? axis + rank : axis), dims.end());
  row.inputs = {random.tensor(type, dims), constant(random.tensor(type, scale_dims))};
  if (!rms && random.one_in(2)) row.inputs.push_back(constant(random.tensor(type, scale_dims)));
  if (!rms && type == ElementType::Float && random.one_in(3)) row.output_count = 3;
  row.tolerance = {256, 2048};
  // The normalised values may be rounded to the type before they are scaled.
  if (type == ElementType::Float16) row.tolerance = {2.0 * 8192, 2.0 * 8192};
  if (type == ElementType::BFloat16) row.tolerance = {2.0 * 65536, 2.0 * 65536};
  return row;
}
const Sweep kLayer("Normalization", "LayerAndRms", 60, layer);

OpCase wide_layer(Random& random) {
  OpCase row;
  const std::int64_t width = random.pick<std::int64_t>({768, 1023, 1024, 2049});
  row.node = {.op_type = "LayerNormalization", .opset = 17};
  row.inputs = {random.tensor(ElementType::Float, {random.integer(1, 40), width}),
                constant(random.tensor(ElementType::Float, {width})),
                constant(random.tensor(ElementType::Float, {width}))};
  row.tolerance = {64, 64};
  return row;
}
const Sweep kWideLayer("Normalization", "WideLayer", 4, wide_layer);

OpCase local_response(Random& random) {
  OpCase row;
  row.node = {.op_type = "LRN", .opset = 13, .attributes = {{"size", random.integer(1, 7)}}};
  if (random.one_in(2)) row.node.attributes.push_back({"alpha", 0.5f});
  if (random.one_in(2))
    row.node.attributes.push_back({"beta", random.pick({0.5f, 0.75f, 1.0f, 1.3f})});
  if (random.one_in(2)) row.node.attributes.push_back({"bias", 2.0f});
  row.inputs = {random.tensor(ElementType::Float, random.dims(4))};
  row.tolerance = {16, 16};
  return row;
}
const Sweep kLocal("Normalization", "Lrn", 30, local_response);

OpCase lp(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 4);
  row.node = {
      .op_type = "LpNormalization", .opset = 22, .attributes = {{"axis", random.axis(rank)}}};
  if (random.one_in(2)) row.node.attributes.push_back({"p", random.integer(1, 2)});
  row.inputs = {random.tensor(ElementType::Float, random.dims(rank))};
  row.tolerance = {32, 32};
  return row;
}
const Sweep kLp("Normalization", "Lp", 24, lp);

OpCase mean_variance_of(ElementType type, Random& random) {
  OpCase row;
  row.node = {.op_type = "MeanVarianceNormalization", .opset = 13};
  if (random.one_in(2)) row.node.attributes = {{"axes", ints({1, 2, 3})}};
  row.inputs = {
      random.tensor(type, {random.integer(2, 5), random.integer(1, 5), random.integer(3, 9), 7})};
  row.tolerance = {256, 1024};
  if (type == ElementType::Float16) row.tolerance = {2.0 * 8192, 2.0 * 8192};
  if (type == ElementType::BFloat16) row.tolerance = {2.0 * 65536, 2.0 * 65536};
  return row;
}

OpCase mean_variance(Random& random) { return mean_variance_of(ElementType::Float, random); }
const Sweep kMeanVariance("Normalization", "MeanVariance", 12, mean_variance);

/// ONNX's body of the operator takes floats alone.
OpCase mean_variance_of_others(Random& random) {
  return mean_variance_of(
      random.pick({ElementType::Double, ElementType::Float16, ElementType::BFloat16}), random);
}
const Sweep kOthers("Normalization", "MeanVarianceOfOtherTypes", 12, mean_variance_of_others);

}  // namespace
}  // namespace backplane::ops_test
