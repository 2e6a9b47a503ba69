// NonMaxSuppression, RoiAlign, MaxRoiPool, AffineGrid, GridSample: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html
#include <cmath>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

/// Two boxes that overlap by 0.6 of their union, and one apart; as [y1, x1, y2, x2].
Tensor three_boxes() { return f32({1, 3, 4}, {0, 0, 1, 1, 0, 0.25, 1, 1.25, 0, 10, 1, 11}); }

const OpCase kSuppression[] = {
    {.name = "OverlapsAreSuppressed",
     .node = {.op_type = "NonMaxSuppression", .opset = 11},
     .inputs = {three_boxes(), f32({1, 1, 3}, {0.9, 0.75, 0.6}), constant(i64({3})),
                constant(f32({1}, {0.5})), constant(f32({1}, {0}))},
     .outputs = {i64({2, 3}, {0, 0, 0, 0, 0, 2})}},
    {.name = "AHigherThresholdKeepsThem",
     .node = {.op_type = "NonMaxSuppression", .opset = 11},
     .inputs = {three_boxes(), f32({1, 1, 3}, {0.6, 0.75, 0.9}), constant(i64({3})),
                constant(f32({1}, {0.65}))},
     .outputs = {i64({3, 3}, {0, 0, 2, 0, 0, 1, 0, 0, 0})}},
    {.name = "ScoresBelowTheThresholdAreLeftOut",
     .node = {.op_type = "NonMaxSuppression", .opset = 11},
     .inputs = {three_boxes(), f32({1, 1, 3}, {0.9, 0.75, 0.1}), constant(i64({3})),
                constant(f32({1}, {0.65})), constant(f32({1}, {0.4}))},
     .outputs = {i64({2, 3}, {0, 0, 0, 0, 0, 1})}},
    {.name = "EveryClassForItself",
     .node = {.op_type = "NonMaxSuppression", .opset = 11},
     .inputs = {three_boxes(), f32({1, 2, 3}, {0.9, 0.8, 0.7, 0.1, 0.2, 0.3}), constant(i64({1})),
                constant(f32({1}, {0.5}))},
     .outputs = {i64({2, 3}, {0, 0, 0, 0, 1, 2})}},
    {.name = "BoxesByCenter",
     .node = {.op_type = "NonMaxSuppression", .opset = 11, .attributes = {{"center_point_box", 1}}},
     .inputs = {f32({1, 2, 4}, {0.5, 0.5, 1, 1, 0.5, 0.6, 1, 1}), f32({1, 1, 2}, {0.3, 0.9}),
                constant(i64({2})), constant(f32({1}, {0.5}))},
     .outputs = {i64({1, 3}, {0, 0, 1})}},
};
const Rows kSuppressionRows("NonMaxSuppression", kSuppression);

Tensor columns() { return f32({1, 1, 4, 4}, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}); }

OpCase refusal(const char* name, double most, std::int64_t samples, const char* words) {
  return {.name = name,
          .node = {.op_type = "RoiAlign",
                   .opset = 16,
                   .attributes = {{"output_height", 1},
                                  {"output_width", 1},
                                  {"sampling_ratio", samples}}},
          .inputs = {columns(), f32({1, 4}, {0, 0, most, most}), i64({0})},
          .outputs = {f32({0, 0, 0, 0}, {})},
          .refusal = words};
}

const OpCase kRefusals[] = {
    refusal("SamplesWithoutEnd", 4, std::int64_t{1} << 40, "sampling_ratio is 1099511627776"),
    refusal("RegionWithoutEnd", 1e9, 0, "pixels; at most 65536 are handled"),
};
const Rows kAlignRefusals("RoiAlign", kRefusals);

Node one_bin(std::int64_t opset) {
  return {.op_type = "RoiAlign",
          .opset = opset,
          .attributes = {{"output_height", 1}, {"output_width", 1}, {"sampling_ratio", 1}}};
}

const OpCase kImageRefusals[] = {
    {.name = "NoSuchImage",
     .node = one_bin(16),
     .inputs = {columns(), f32({2, 4}, {0, 0, 4, 4, 0, 0, 4, 4}), i64({0, 1})},
     .outputs = {f32({2, 1, 1, 1}, {0, 0})},
     .refusal = "out of range for axis 0"},
    {.name = "AnImageBeforeTheFirst",
     .node = one_bin(22),
     .inputs = {columns(), f32({1, 4}, {0, 0, 4, 4}), i64({-1})},
     .outputs = {f32({1, 1, 1, 1}, {0})},
     .refusal = "out of range for axis 0"},
    {.name = "ImagesWithoutPixels",
     .node = one_bin(16),
     .inputs = {f32({1, 1, 0, 4}, {}), f32({1, 4}, {0, 0, 4, 4}), i64({0})},
     .outputs = {f32({1, 1, 1, 1}, {0})},
     .refusal = "have no pixels"},
};
const Rows kAlignImageRefusals("RoiAlign", kImageRefusals);

const OpCase kAlign[] = {
    {.name = "AveragesOfSamplesAtTheEdge",
     .node = {.op_type = "RoiAlign",
              .opset = 16,
              .attributes = {{"output_height", 1},
                             {"output_width", 2},
                             {"sampling_ratio", 2},
                             {"coordinate_transformation_mode", "output_half_pixel"}}},
     .inputs = {columns(), f32({1, 4}, {0, 0, 4, 4}), i64({0})},
     .outputs = {f32({1, 1, 1, 2}, {1, 2.75})}},
    {.name = "HalfPixelShiftsByAHalf",
     .node = {.op_type = "RoiAlign",
              .opset = 16,
              .attributes = {{"output_height", 1}, {"output_width", 2}, {"sampling_ratio", 1}}},
     .inputs = {columns(), f32({1, 4}, {0, 0, 4, 4}), i64({0})},
     .outputs = {f32({1, 1, 1, 2}, {0.5, 2.5})}},
    {.name = "TheFirstVersionDoesNotShift",
     .node = {.op_type = "RoiAlign",
              .opset = 10,
              .attributes = {{"output_height", 1}, {"output_width", 2}, {"sampling_ratio", 2}}},
     .inputs = {columns(), f32({1, 4}, {0, 0, 4, 4}), i64({0})},
     .outputs = {f32({1, 1, 1, 2}, {1, 2.75})}},
    {.name = "NoRegions",
     .node = {.op_type = "RoiAlign",
              .opset = 16,
              .attributes = {{"output_height", 2}, {"output_width", 2}, {"sampling_ratio", 1}}},
     .inputs = {columns(), f32({0, 4}, {}), i64(Dims{0}, {})},
     .outputs = {f32({0, 1, 2, 2}, {})}},
};
const Rows kAlignRows("RoiAlign", kAlign);

OpCase align(Random& random) {
  OpCase row;
  row.node = {.op_type = "RoiAlign",
              .opset = 16,
              .attributes = {{"output_height", random.integer(1, 5)},
                             {"output_width", random.integer(1, 5)},
                             {"sampling_ratio", random.integer(0, 3)},
                             {"spatial_scale", 0.5},
                             {"mode", random.pick({"avg", "max"})},
                             {"coordinate_transformation_mode",
                              random.pick({"half_pixel", "output_half_pixel"})}}};
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Float, ElementType::Float, ElementType::Double,
                   ElementType::Float16, ElementType::BFloat16});
  if (type == ElementType::BFloat16) row.node.opset = 22;
  const std::int64_t rois = random.integer(0, 9), batch = random.integer(1, 3);
  // Few regions in a large image, and many in a small one; channels past a block of them.
  const std::int64_t most = random.pick({8, 8, 40});
  const std::int64_t channels = random.pick({0, 1, 3, 16, 17, 70});
  const Dims dims = {batch, channels, random.integer(1, most), random.integer(1, most)};
  const double far = 2.0 * static_cast<double>(most) + 4;
  // A box of whole eighths: positions are exact, and nobody rounds a bin to another number of samples.
  Array boxes = to_array(random.tensor(type, {rois, 4}, -4, far));
  for (double& value : boxes.values) value = std::floor(value) + 0.125;
  row.inputs = {random.tensor(type, dims), to_tensor(boxes),
                random.tensor(ElementType::Int64, {rois}, 0, static_cast<double>(batch - 1))};
  row.tolerance = {64, 512};
  return row;
}
const Sweep kAlignSweep("RoiAlign", "RegionsInAnyForm", 40, align);

Tensor two_images() {
  return f32({2, 1, 4, 5},
             {3,  1,  4,  1,  5,  9,  2,  6,  5,  3,  5,  8,  9,  7,  9,  3,  2,  3,  8,  4,
              -3, -1, -4, -1, -5, -9, -2, -6, -5, -3, -5, -8, -9, -7, -9, -3, -2, -3, -8, -4});
}

// What is expected is what ONNX Runtime 1.32 makes.
const OpCase kMaxRoiPool[] = {
    {.name = "RegionsInAndOutsideOfTheImage",
     .node = {.op_type = "MaxRoiPool", .attributes = {{"pooled_shape", ints({2, 2})}}},
     .inputs = {two_images(), f32({5, 5}, {0, 0, 0, 4,  3,  1, 1, 1, 3, 3, 0, 3, 2,
                                           9, 9, 1, -3, -3, 0, 1, 0, 7, 7, 8, 8})},
     .outputs = {f32({5, 1, 2, 2},
                     {9, 6, 9, 9, -2, -5, -2, -3, 9, 0, 0, 0, 0, 0, 0, -3, 0, 0, 0, 0})}},
    {.name = "ScaledRegion",
     .node = {.op_type = "MaxRoiPool",
              .attributes = {{"pooled_shape", ints({1, 3})}, {"spatial_scale", 0.5}}},
     .inputs = {two_images(), f32({1, 5}, {0, 1, 2, 7, 6})},
     .outputs = {f32({1, 1, 1, 3}, {9, 9, 9})}},
    {.name = "MoreBinsThanPixels",
     .node = {.op_type = "MaxRoiPool", .attributes = {{"pooled_shape", ints({2, 3})}}},
     .inputs = {two_images(), f32({1, 5}, {1, 2, 2, 2, 2})},
     .outputs = {f32({1, 1, 2, 3}, {-9, -9, -9, -9, -9, -9})}},
    {.name = "Doubles",
     .node = {.op_type = "MaxRoiPool", .attributes = {{"pooled_shape", ints({1, 1})}}},
     .inputs = {f64({1, 1, 1, 2}, {1, 2}), f64({1, 5}, {0, 0, 0, 1, 0})},
     .outputs = {f64({1, 1, 1, 1}, {2})}},
    {.name = "Halves",
     .node = {.op_type = "MaxRoiPool", .attributes = {{"pooled_shape", ints({1, 1})}}},
     .inputs = {f16({1, 1, 1, 2}, {1, 2}), f16({1, 5}, {0, 0, 0, 1, 0})},
     .outputs = {f16({1, 1, 1, 1}, {2})}},
    {.name = "NoRegions",
     .node = {.op_type = "MaxRoiPool", .attributes = {{"pooled_shape", ints({2, 3})}}},
     .inputs = {two_images(), f32({0, 5}, {})},
     .outputs = {f32({0, 1, 2, 3}, {})}},
    {.name = "NoSuchImage",
     .node = {.op_type = "MaxRoiPool", .attributes = {{"pooled_shape", ints({1, 1})}}},
     .inputs = {two_images(), f32({1, 5}, {2, 0, 0, 1, 1})},
     .outputs = {f32({1, 1, 1, 1}, {0})},
     .refusal = "region 0 is of image 2, but there are 2"},
    {.name = "CornerThatIsNoNumber",
     .node = {.op_type = "MaxRoiPool", .attributes = {{"pooled_shape", ints({1, 1})}}},
     .inputs = {two_images(), f32({1, 5}, {0, 0, kNan, 1, 1})},
     .outputs = {f32({1, 1, 1, 1}, {0})},
     .refusal = "region 0 has a corner at nan pixels"},
};
const Rows kMaxRoiPoolRows("MaxRoiPool", kMaxRoiPool);

Node affine(std::int64_t align_corners) {
  return {.op_type = "AffineGrid", .opset = 20, .attributes = {{"align_corners", align_corners}}};
}

// What is expected is what onnx.reference makes.
const OpCase kAffineGrid[] = {
    {.name = "OneImage",
     .node = affine(0),
     .inputs = {f32({1, 2, 3}, {1, 0.5, 0.25, -0.5, 2, 1}), constant(i64({1, 1, 2, 3}))},
     .outputs = {f32({1, 2, 3, 2}, {-2.0 / 3, 1.0 / 3, 0, 0, 2.0 / 3, -1.0 / 3, -1.0 / 6, 7.0 / 3,
                                    0.5, 2, 7.0 / 6, 5.0 / 3})},
     .tolerance = {16, 16}},
    {.name = "OneRowWithAlignedCorners",
     .node = affine(1),
     .inputs = {f32({1, 2, 3}, {1, 0.5, 0.25, -0.5, 2, 1}), i64({1, 1, 1, 2})},
     .outputs = {f32({1, 1, 2, 2}, {-1.25, -0.5, 0.75, -1.5})}},
    {.name = "OneVolumeOfTwoPlanes",
     .node = affine(1),
     .inputs = {f32({1, 3, 4}, {0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75}),
                i64({1, 1, 2, 1, 2})},
     .outputs = {f32({1, 2, 1, 2, 3}, {0, -2, -4, 0, 0, 0, 1, 1, 1, 1, 3, 5})}},
    {.name = "TwoImages",
     .node = affine(0),
     .inputs = {f32({2, 2, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 4}), i64({2, 5, 1, 2})},
     .outputs = {f32({2, 1, 2, 2}, {-0.5, 0, 0.5, 0, 3, 4, 3, 4})}},
    {.name = "Doubles",
     .node = affine(0),
     .inputs = {f64({1, 2, 3}, {1, 0, 0, 0, 1, 0}), i64({1, 1, 1, 2})},
     .outputs = {f64({1, 1, 2, 2}, {-0.5, 0, 0.5, 0})}},
    {.name = "Halves",
     .node = affine(0),
     .inputs = {f16({1, 2, 3}, {1, 0, 0, 0, 1, 0}), i64({1, 1, 1, 2})},
     .outputs = {f16({1, 1, 2, 2}, {-0.5, 0, 0.5, 0})}},
    {.name = "NoImages",
     .node = affine(0),
     .inputs = {f32({0, 2, 3}, {}), i64({0, 1, 1, 2})},
     .outputs = {f32({0, 1, 2, 2}, {})}},
    {.name = "MatricesOfAnotherSpace",
     .node = affine(0),
     .inputs = {f32({1, 2, 3}, {1, 0, 0, 0, 1, 0}), i64({1, 1, 1, 1, 2})},
     .outputs = {f32({1, 1, 1, 2, 3}, {0, 0, 0, 0, 0, 0})},
     .refusal = "AffineGrid"},
};
const Rows kAffineGridRows("AffineGrid", kAffineGrid);

Tensor small_image() { return f32({1, 1, 2, 2}, {0, 1, 2, 3}); }

Node cubic_border(int align_corners) {
  return {.op_type = "GridSample",
          .opset = 20,
          .attributes = {
              {"mode", "cubic"}, {"padding_mode", "border"}, {"align_corners", align_corners}}};
}

/// Points beyond the border, in the outer half of a pixel, and inside.
Tensor border_grid() {
  return f32({1, 1, 9, 2}, {-1.4, 0.1, -1.05, 0.95, -1, 1, -0.9, 1.2, -0.8, -1.4, 0.1, -1.05, 0.95,
                            -1, 1, -0.9, 1.2, -0.8});
}

Tensor uneven_image() { return f32({1, 1, 3, 4}, {0, 1, 2, 3, 5, 3, 8, 1, 2, 9, 4, 6}); }

const OpCase kGrid[] = {
    // Numbers of onnx.reference.
    {.name = "CubicWeightsInTheOuterHalfOfAPixel",
     .node = cubic_border(0),
     .inputs = {uneven_image(), border_grid()},
     .outputs = {f32({1, 1, 1, 9}, {5.023344, 1.683840, 0.983398, 1.228252, -0.060750, 1.658001,
                                    3.376500, 3.398742, 3.192001})}},
    {.name = "CubicWeightsAtAnAlignedBorder",
     .node = cubic_border(1),
     .inputs = {uneven_image(), border_grid()},
     .outputs = {f32({1, 1, 1, 9}, {5.057750, 2.126844, 2, 2.965532, 0.231750, 1.615876, 2.943644,
                                    2.802251, 2.528002})}},
    {.name = "CornersAndCenterWhenAligned",
     .node = {.op_type = "GridSample", .opset = 16, .attributes = {{"align_corners", 1}}},
     .inputs = {small_image(), f32({1, 1, 3, 2}, {-1, -1, 1, 1, 0, 0})},
     .outputs = {f32({1, 1, 1, 3}, {0, 3, 1.5})}},
    {.name = "ZerosLieAround",
     .node = {.op_type = "GridSample", .opset = 16},
     .inputs = {f32({1, 1, 2, 2}, {4, 4, 4, 4}), f32({1, 1, 2, 2}, {-1, -1, 3, 3})},
     .outputs = {f32({1, 1, 1, 2}, {1, 0})}},
    {.name = "TheBorderGoesOn",
     .node = {.op_type = "GridSample", .opset = 16, .attributes = {{"padding_mode", "border"}}},
     .inputs = {small_image(), f32({1, 1, 2, 2}, {-1, -1, 9, -9})},
     .outputs = {f32({1, 1, 1, 2}, {0, 1})}},
    {.name = "Reflection",
     .node = {.op_type = "GridSample",
              .opset = 16,
              .attributes = {{"padding_mode", "reflection"}, {"align_corners", 1}}},
     .inputs = {small_image(), f32({1, 1, 1, 2}, {2, -1})},
     .outputs = {f32({1, 1, 1, 1}, {0.5})}},
    {.name = "Nearest",
     .node = {.op_type = "GridSample", .opset = 16, .attributes = {{"mode", "nearest"}}},
     .inputs = {small_image(), f32({1, 1, 2, 2}, {-0.4, -0.4, 0.4, 0.4})},
     .outputs = {f32({1, 1, 1, 2}, {0, 3})}},
};
const Rows kGridRows("GridSample", kGrid);

/// Lines, planes and volumes of every type; points inside, at the edges, and beyond them by more than a whole image.
OpCase sample(Random& random) {
  OpCase row;
  const bool is_new = random.one_in(2);
  const std::int64_t axes = random.pick<std::int64_t>({1, 2, 2, 2, 3});
  const char* const smooth =
      is_new ? random.pick({"linear", "cubic"}) : random.pick({"bilinear", "bicubic"});
  row.node = {.op_type = "GridSample",
              .opset = is_new ? random.pick({20, 22}) : 16,
              .attributes = {{"mode", random.one_in(3) ? "nearest" : smooth},
                             {"padding_mode", random.pick({"zeros", "border", "reflection"})},
                             {"align_corners", random.integer(0, 1)}}};
  const auto any_type = [&] {
    return random.pick({ElementType::Float, ElementType::Float, ElementType::Float,
                        ElementType::Double, ElementType::Float16,
                        row.node.opset < 22 ? ElementType::Float : ElementType::BFloat16});
  };
  const std::int64_t batch = random.integer(1, 3), channels = random.pick({0, 1, 3, 17, 70});
  Dims dims{batch, channels}, grid{batch};
  for (std::int64_t a = 0; a < axes; ++a) {
    dims.push_back(random.integer(1, 9));
    grid.push_back(random.integer(random.one_in(9) ? 0 : 1, axes == 1 ? 200 : 9));
  }
  grid.push_back(axes);
  const double far = random.pick({1.0, 1.5, 4.0});
  // What lies between two elements is the nearer to one of them in every precision.
  // Weights are as exact as coordinates.
  const ElementType type = any_type(),
                    coordinate = type == ElementType::Double ? ElementType::Double : any_type();
  Array points = to_array(random.tensor(coordinate, grid, -far, far));
  for (double& value : points.values) value = std::floor(value * 16) / 16 + 1.0 / 64;
  row.inputs = {random.tensor(type, dims), to_tensor(points)};
  row.tolerance = {64, 512};
  return row;
}
const Sweep kSampleSweep("GridSample", "PointsInAnyForm", 60, sample);

}  // namespace
}  // namespace backplane::ops_test
