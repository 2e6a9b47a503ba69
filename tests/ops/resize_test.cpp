// Resize and Upsample: https://onnx.ai/onnx/operators/onnx__Resize.html
#include <cmath>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "NearestByScales",
     .node = {.op_type = "Resize",
              .opset = 13,
              .attributes = {{"mode", "nearest"},
                             {"coordinate_transformation_mode", "asymmetric"},
                             {"nearest_mode", "floor"}}},
     .inputs = {f32({1, 1, 1, 2}, {1, 2}), absent(), constant(f32({4}, {1, 1, 2, 2}))},
     .outputs = {f32({1, 1, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2})}},
    {.name = "LinearByScales",
     .node = {.op_type = "Resize", .opset = 13, .attributes = {{"mode", "linear"}}},
     .inputs = {f32({1, 1, 1, 2}, {0, 4}), absent(), constant(f32({4}, {1, 1, 1, 2}))},
     .outputs = {f32({1, 1, 1, 4}, {0, 1, 3, 4})}},
    {.name = "LinearBySizesWithAlignedCorners",
     .node = {.op_type = "Resize",
              .opset = 13,
              .attributes = {{"mode", "linear"},
                             {"coordinate_transformation_mode", "align_corners"}}},
     .inputs = {f32({1, 1, 1, 2}, {0, 4}), absent(), absent(), constant(i64({1, 1, 1, 3}))},
     .outputs = {f32({1, 1, 1, 3}, {0, 2, 4})}},
    {.name = "OfSomeAxes",
     .node = {.op_type = "Resize",
              .opset = 18,
              .attributes = {{"axes", ints({3})},
                             {"coordinate_transformation_mode", "asymmetric"},
                             {"nearest_mode", "floor"}}},
     .inputs = {f32({1, 1, 1, 2}, {1, 2}), absent(), absent(), constant(i64({4}))},
     .outputs = {f32({1, 1, 1, 4}, {1, 1, 2, 2})}},
    // ONNX 1.5, test_resize_downsample_nearest and test_resize_nearest.
    {.name = "ShrunkInOpset10",
     .node = {.op_type = "Resize", .opset = 10},
     .inputs = {f32({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), constant(f32({4}, {1, 1, 0.6, 0.6}))},
     .outputs = {f32({1, 1, 1, 2}, {1, 3})}},
    {.name = "GrownAndShrunkInOpset10",
     .node = {.op_type = "Resize", .opset = 10},
     .inputs = {f32({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), constant(f32({4}, {1, 1, 1.5, 0.6}))},
     .outputs = {f32({1, 1, 3, 2}, {1, 3, 1, 3, 5, 7})}},
    {.name = "UpsampleByAnInput",
     .node = {.op_type = "Upsample", .opset = 9},
     .inputs = {f32({1, 1, 1, 2}, {1, 2}), constant(f32({4}, {1, 1, 1, 2}))},
     .outputs = {f32({1, 1, 1, 4}, {1, 1, 2, 2})}},
};
const Rows kResizeRows("Resize", kRows);

OpCase refusal(const char* name, const char* op, std::int64_t opset, std::vector<double> scales,
               const char* words) {
  OpCase row = {.name = name,
                .node = {.op_type = op, .opset = opset},
                .inputs = {f32({1, 1, 2, 2}, {1, 2, 3, 4}), constant(f32({4}, std::move(scales)))},
                .outputs = {f32({0, 0, 0, 0}, {})},
                .refusal = words};
  if (opset > 10) row.inputs.insert(row.inputs.begin() + 1, absent());
  return row;
}

const OpCase kRefusals[] = {
    refusal("ToAnAxisThatCannotBeCounted", "Resize", 13, {1, 1, 1e30, 1e30}, "too large"),
    refusal("UpsampleToAnAxisThatCannotBeCounted", "Upsample", 9, {1, 1, 1e19, 1e19}, "too large"),
    refusal("ToElementsThatCannotBeCounted", "Resize", 13, {1, 1, 1e15, 1e15},
            "more elements than 63 bits can count"),
    refusal("ToAnImageThatCannotBeCounted", "Upsample", 9, {1, 1, 1e15, 1e15},
            "more elements than 63 bits can count"),
};
const Rows kResizeRefusals("Resize", kRefusals);

/// Factors by which no output element falls on the edge between two input elements, in whatever
/// precision.
OpCase nearest(Random& random) {
  OpCase row;
  row.node = {.op_type = "Resize", .opset = random.pick<std::int64_t>({11, 13, 19})};
  row.node.attributes = {
      {"coordinate_transformation_mode", random.pick({"asymmetric", "half_pixel"})}};
  const bool asymmetric = std::get<std::string>(row.node.attributes[0].value) == "asymmetric";
  row.node.attributes.push_back(
      {"nearest_mode",
       asymmetric ? "floor" : random.pick({"round_prefer_floor", "round_prefer_ceil"})});
  const Dims dims = {random.integer(1, 2), random.integer(1, 5), random.integer(1, 9),
                     random.integer(1, 9)};
  const ElementType type = random.pick({ElementType::Float, ElementType::Float, ElementType::UInt8,
                                        ElementType::Int8, ElementType::Int32});
  row.inputs = {random.tensor(type, dims, 0, 100)};
  row.inputs.push_back(row.node.opset == 11 ? constant(f32({0}, {})) : absent());
  const double up = static_cast<double>(random.pick<std::int64_t>({1, 2, 3, 4}));
  row.inputs.push_back(constant(f32({4}, {1, 1, up, random.one_in(2) ? 2.0 : up})));
  return row;
}
const Sweep kNearest("Resize", "Nearest", 40, nearest);

OpCase smooth(Random& random) {
  OpCase row;
  const std::string mode = random.pick({"linear", "linear", "cubic"});
  const std::string transformation =
      random.pick({"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"});
  row.node = {.op_type = "Resize",
              .opset = 13,
              .attributes = {{"mode", mode}, {"coordinate_transformation_mode", transformation}}};
  if (mode == "cubic" && random.one_in(2)) row.node.attributes.push_back({"cubic_coeff_a", -0.5f});
  if (mode == "cubic" && random.one_in(2)) row.node.attributes.push_back({"exclude_outside", 1});
  const Dims dims = {random.integer(1, 2), random.integer(1, 4), random.integer(2, 9),
                     random.integer(2, 9)};
  row.inputs = {random.tensor(ElementType::Float, dims), absent(), absent()};
  // With aligned corners the size is taken before it is cut to a whole number by some, and
  // afterwards by others.
  if (transformation == "align_corners" || random.one_in(2)) {
    row.inputs.push_back(
        constant(i64({dims[0], dims[1], random.integer(2, 20), random.integer(2, 20)})));
  } else {
    double by[2] = {0.25 * static_cast<double>(random.integer(2, 10)),
                    0.5 * static_cast<double>(random.integer(1, 5))};
    // A factor that does not change the size is taken as a copy by some.
    for (int i = 0; i < 2; ++i) {
      const auto in = static_cast<double>(dims[i + 2]);
      if (std::floor(in * by[i]) == in) by[i] = 1;
    }
    row.inputs[2] = constant(f32({4}, {1, 1, by[0], by[1]}));
  }
  // Positions are computed in float: an error of theirs counts times the slope.
  row.tolerance = {64, 256};
  return row;
}
const Sweep kSmooth("Resize", "LinearAndCubic", 60, smooth);

/// Axes that are too long for tables; by factors whose positions are exact in float.
OpCase long_axis(Random& random) {
  OpCase row;
  const std::string mode = random.pick({"nearest", "linear", "cubic"});
  row.node = {
      .op_type = "Resize",
      .opset = 19,
      .attributes = {{"mode", mode},
                     {"coordinate_transformation_mode", random.pick({"half_pixel", "asymmetric"})},
                     {"nearest_mode", "floor"}}};
  const double by = random.one_in(3) ? 0.5 : 2;
  const std::int64_t length = (by < 1 ? 280'000 : 70'000) + random.integer(0, 3);
  const bool is_last = random.one_in(2);
  row.inputs = {
      random.tensor(ElementType::Float, is_last ? Dims{1, 2, length} : Dims{1, length, 3}),
      absent(), constant(is_last ? f32({3}, {1, 1, by}) : f32({3}, {1, by, 1}))};
  row.tolerance = {64, 256};
  return row;
}
const Sweep kLongAxis("Resize", "LongAxis", 12, long_axis);

}  // namespace
}  // namespace backplane::ops_test
