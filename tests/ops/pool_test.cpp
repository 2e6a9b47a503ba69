// Pooling: https://onnx.ai/onnx/operators/onnx__MaxPool.html
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 40;

const OpCase kRows[] = {
    {.name = "MaxOfPairs",
     .node = {.op_type = "MaxPool",
              .opset = 12,
              .attributes = {{"kernel_shape", ints({1, 2})}, {"strides", ints({1, 2})}}},
     .inputs = {f32({1, 1, 1, 4}, {1, 2, 4, 3})},
     .outputs = {f32({1, 1, 1, 2}, {2, 4}), i64({1, 1, 1, 2}, {1, 2})}},
    {.name = "PadsAreNeverTheMaximum",
     .node = {.op_type = "MaxPool",
              .opset = 12,
              .attributes = {{"kernel_shape", ints({3})}, {"pads", ints({1, 1})}}},
     .inputs = {f32({1, 1, 2}, {-5, -6})},
     .outputs = {f32({1, 1, 2}, {-5, -5})}},
    {.name = "MaxOfBytes",
     .node = {.op_type = "MaxPool", .opset = 12, .attributes = {{"kernel_shape", ints({2})}}},
     .inputs = {u8({1, 1, 3}, {200, 7, 255})},
     .outputs = {u8({1, 1, 2}, {200, 255})}},
    {.name = "CeilModeAddsAWindow",
     .node = {.op_type = "MaxPool",
              .opset = 12,
              .attributes = {{"kernel_shape", ints({2})},
                             {"strides", ints({2})},
                             {"ceil_mode", 1}}},
     .inputs = {f32({1, 1, 3}, {1, 2, 3})},
     .outputs = {f32({1, 1, 2}, {2, 3})}},
    {.name = "CeilModeKeepsAWindowLargerThanTheImage",
     .node = {.op_type = "MaxPool",
              .opset = 12,
              .attributes = {{"kernel_shape", ints({3, 3})},
                             {"strides", ints({2, 2})},
                             {"ceil_mode", 1}}},
     .inputs = {f32({1, 1, 2, 3}, {1, 6, 3, 4, 2, 5})},
     .outputs = {f32({1, 1, 1, 1}, {6})}},
    {.name = "AverageOfAnImageSmallerThanItsWindow",
     .node = {.op_type = "AveragePool",
              .opset = 22,
              .attributes = {{"kernel_shape", ints({3})},
                             {"strides", ints({2})},
                             {"ceil_mode", 1}}},
     .inputs = {f32({1, 2, 2}, {3, 5, 7, 8})},
     .outputs = {f32({1, 2, 1}, {4, 7.5})}},
    {.name = "MaxIsNanWhereTheWindowSeesOne",
     .node = {.op_type = "MaxPool", .opset = 12, .attributes = {{"kernel_shape", ints({2, 2})}}},
     .inputs = {f32({1, 1, 3, 4}, {1, 2, 3, kNan, 5, 6, 7, 8, kNan, 10, 11, 12})},
     .outputs = {f32({1, 1, 2, 3}, {6, 7, kNan, kNan, 11, 12})}},
    {.name = "AverageLeavesPadsOut",
     .node = {.op_type = "AveragePool",
              .opset = 11,
              .attributes = {{"kernel_shape", ints({3})}, {"pads", ints({1, 1})}}},
     .inputs = {f32({1, 1, 2}, {3, 5})},
     .outputs = {f32({1, 1, 2}, {4, 4})}},
    {.name = "AverageCountsPadsIfAsked",
     .node = {.op_type = "AveragePool",
              .opset = 11,
              .attributes = {{"kernel_shape", ints({3})},
                             {"pads", ints({1, 1})},
                             {"count_include_pad", 1}}},
     .inputs = {f32({1, 1, 2}, {3, 6})},
     .outputs = {f32({1, 1, 2}, {3, 3})}},
    {.name = "AverageThatCountsPadsMaySeeNothingElse",
     .node = {.op_type = "AveragePool",
              .opset = 11,
              .attributes = {{"kernel_shape", ints({1})},
                             {"pads", ints({1, 1})},
                             {"count_include_pad", 1}}},
     .inputs = {f32({1, 1, 1}, {4})},
     .outputs = {f32({1, 1, 3}, {0, 4, 0})}},
    {.name = "PadsThatNoWindowReaches",
     .node = {.op_type = "MaxPool",
              .opset = 12,
              .attributes = {{"kernel_shape", ints({1})},
                             {"strides", ints({2})},
                             {"pads", ints({0, 1})}}},
     .inputs = {f32({1, 1, 3}, {1, 2, 3})},
     .outputs = {f32({1, 1, 2}, {1, 3})}},
    {.name = "CeilModeLeavesOutWindowsThatBeginInThePads",
     .node = {.op_type = "MaxPool",
              .opset = 22,
              .attributes = {{"kernel_shape", ints({2})},
                             {"strides", ints({2})},
                             {"pads", ints({0, 3})},
                             {"ceil_mode", 1}}},
     .inputs = {f32({1, 1, 3}, {1, 2, 3})},
     .outputs = {f32({1, 1, 2}, {2, 3})}},
    {.name = "AnImageOneSmallerThanItsWindow",
     .node = {.op_type = "MaxPool", .opset = 12, .attributes = {{"kernel_shape", ints({3})}}},
     .inputs = {f32({1, 1, 2}, {1, 2})},
     .outputs = {f32({1, 1, 0}, {})}},
    {.name = "CeilModeOnAnImageAStrideSmaller",
     .node = {.op_type = "AveragePool",
              .opset = 22,
              .attributes = {{"kernel_shape", ints({5})},
                             {"strides", ints({2})},
                             {"ceil_mode", 1}}},
     .inputs = {f32({1, 1, 2}, {1, 2})},
     .outputs = {f32({1, 1, 0}, {})}},
    {.name = "NoPixels",
     .node = {.op_type = "AveragePool", .opset = 11, .attributes = {{"kernel_shape", ints({1})}}},
     .inputs = {f32({1, 2, 0}, {})},
     .outputs = {f32({1, 2, 0}, {})}},
    {.name = "WindowsFarLargerThanTheImage",
     .node = {.op_type = "AveragePool",
              .opset = 11,
              .attributes = {{"kernel_shape", ints({kWide, kWide})},
                             {"pads", ints({kWide / 2, kWide / 2, kWide / 2, kWide / 2})}}},
     .inputs = {f32({1, 1, 1, 2}, {1, 4})},
     .outputs = {f32({1, 1, 2, 3}, {2.5, 2.5, 2.5, 2.5, 2.5, 2.5})}},
    {.name = "MaxOfColumnsInAWindowFarLarger",
     .node = {.op_type = "MaxPool",
              .opset = 12,
              .attributes = {{"kernel_shape", ints({kWide, 1})},
                             {"pads", ints({kWide - 2, 0, 0, 0})}}},
     .inputs = {f32({1, 1, 2, 3}, {1, 5, 3, 4, 2, 6})},
     .outputs = {f32({1, 1, 1, 3}, {4, 5, 6})}},
    {.name = "GlobalAverage",
     .node = {.op_type = "GlobalAveragePool", .opset = 1},
     .inputs = {f32({1, 2, 1, 2}, {1, 3, 10, 20})},
     .outputs = {f32({1, 2, 1, 1}, {2, 15})}},
    {.name = "GlobalMax",
     .node = {.op_type = "GlobalMaxPool", .opset = 1},
     .inputs = {f32({1, 2, 1, 2}, {1, 3, -20, -10})},
     .outputs = {f32({1, 2, 1, 1}, {3, -10})}},
    {.name = "NoImages",
     .node = {.op_type = "MaxPool", .opset = 12, .attributes = {{"kernel_shape", ints({2, 2})}}},
     .inputs = {f32({0, 3, 4, 4}, {})},
     .outputs = {f32({0, 3, 3, 3}, {})}},
};
const Rows kPoolRows("Pool", kRows);

OpCase refusal(const char* name, const char* op, std::int64_t pads, const char* words) {
  return {.name = name,
          .node = {.op_type = op,
                   .opset = 12,
                   .attributes = {{"kernel_shape", ints({2, 2})},
                                  {"pads", ints({pads, pads, pads, pads})}}},
          .inputs = {f32({1, 1, 2, 2}, {1, 2, 3, 4})},
          .outputs = {f32({0, 0, 0, 0}, {})},
          .refusal = words};
}

/// On pixels along one axis.
OpCase line_refusal(const char* name, std::vector<double> pixels,
                    std::vector<reference::Attribute> more, const char* words) {
  const auto count = static_cast<std::int64_t>(pixels.size());
  return {.name = name,
          .node = {.op_type = "MaxPool", .opset = 22, .attributes = std::move(more)},
          .inputs = {f32({1, 1, count}, std::move(pixels))},
          .outputs = {f32({0, 0, 0}, {})},
          .refusal = words};
}

const OpCase kRefusals[] = {
    // Of negative sizes, and where ONNX's text and its inference round to different sides.
    line_refusal("MaxOfAWindowThatDoesNotFit", {1, 2}, {{"kernel_shape", ints({4})}},
                 "does not fit"),
    line_refusal("MaxOfAStrideThatIsNotFilled", {1, 2},
                 {{"kernel_shape", ints({3})}, {"strides", ints({2})}}, "does not fit"),
    line_refusal("MaxOfValidWindowsRoundedUp", {1, 2, 3, 4},
                 {{"kernel_shape", ints({3})},
                  {"strides", ints({2})},
                  {"auto_pad", "VALID"},
                  {"ceil_mode", 1}},
                 "give pads instead"),
    line_refusal("MaxOfNothingButPads", {}, {{"kernel_shape", ints({2})}, {"pads", ints({1, 1})}},
                 "in the padding alone"),
    refusal("MaxOfPadsThatCannotBeCounted", "MaxPool", kGreatest, "too large"),
    refusal("AverageOfPadsThatCannotBeCounted", "AveragePool", kGreatest / 2 + 1, "too large"),
    refusal("MaxOfPadsAlone", "MaxPool", 3, "in the padding alone"),
    refusal("AverageOfPadsAlone", "AveragePool", 2, "in the padding alone"),
};
const Rows kPoolRefusals("Pool", kRefusals);

OpCase pool_of(Random& random, const std::string& op, std::int64_t axes) {
  OpCase row;
  const bool has_dilations = op == "MaxPool" || random.one_in(3);
  row.node = {.op_type = op, .opset = op == "MaxPool" ? 12 : has_dilations ? 19 : 11};
  if (op == "LpPool" && row.node.opset == 19) row.node.opset = 18;
  Dims kernel;
  Dims strides;
  Dims dilations;
  Dims pads(static_cast<std::size_t>(2 * axes), 0);
  Dims dims = {random.integer(1, 2), random.pick<std::int64_t>({1, 3, 8, 17, 33})};
  const std::int64_t most = axes == 3 ? 5 : random.pick<std::int64_t>({4, 15, 15, 70});
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    kernel.push_back(random.integer(1, 4));
    strides.push_back(random.integer(1, 3));
    dilations.push_back(has_dilations ? random.integer(1, 2) : 1);
    pads[axis] = random.integer(0, kernel.back() - 1);
    pads[axis + axes] = random.integer(0, kernel.back() - 1);
    dims.push_back((kernel.back() - 1) * dilations.back() + 1 + random.integer(0, most));
  }
  row.node.attributes = {{"kernel_shape", kernel}};
  if (random.one_in(2)) row.node.attributes.push_back({"strides", strides});
  if (has_dilations) row.node.attributes.push_back({"dilations", dilations});
  const std::int64_t way = random.integer(0, 4);
  if (way == 0 && !has_dilations) {
    row.node.attributes.push_back({"auto_pad", random.pick({"SAME_UPPER", "SAME_LOWER"})});
  }
  // Dilated windows that see pads alone have no maximum.
  const bool pads_fit = !has_dilations || dilations == Dims(kernel.size(), 1);
  if (way > 1 && pads_fit) row.node.attributes.push_back({"pads", pads});
  // Shape inference of earlier opsets counts a last window that lies in the pads alone.
  if (way == 1 && pads_fit && op != "LpPool") {
    row.node.opset = 22;
    row.node.attributes.push_back({"ceil_mode", 1});
  }
  if (op == "AveragePool" && random.one_in(2))
    row.node.attributes.push_back({"count_include_pad", 1});
  if (op == "LpPool") row.node.attributes.push_back({"p", random.integer(1, 3)});
  row.inputs = {random.tensor(ElementType::Float, dims)};
  row.tolerance = {32, 64};
  return row;
}

OpCase max_pool(Random& random) {
  OpCase row = pool_of(random, "MaxPool", random.integer(1, 3));
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Float, ElementType::Double,
                   ElementType::Float16, ElementType::Int8, ElementType::UInt8});
  row.inputs = {random.tensor(type, row.inputs[0].tensor.dims, -50, 50)};
  if (random.one_in(3)) {
    row.output_count = 2;
    if (random.one_in(2)) row.node.attributes.push_back({"storage_order", 1});
  }
  return row;
}
const Sweep kMaxPool("Pool", "Max", 60, max_pool);

OpCase average_pool(Random& random) {
  OpCase row = pool_of(random, "AveragePool", random.integer(1, 3));
  const ElementType type = random.pick(
      {ElementType::Float, ElementType::Float, ElementType::Double, ElementType::Float16});
  row.inputs = {random.tensor(type, row.inputs[0].tensor.dims)};
  return row;
}
const Sweep kAveragePool("Pool", "Average", 60, average_pool);

/// Windows that are whole lines or images.
OpCase whole_windows(Random& random) {
  const bool mean = random.one_in(2);
  const std::int64_t axes = random.integer(1, 3);
  const std::int64_t each = random.integer(0, axes - 1);  // first axes of which a window has one
  const ElementType type = mean ? random.pick({ElementType::Float, ElementType::Double})
                                : random.pick({ElementType::Float, ElementType::Double,
                                               ElementType::Int8, ElementType::UInt8});
  Dims dims = {random.integer(1, 2), random.pick<std::int64_t>({1, 3, 8, 17})};
  Dims kernel;
  std::int64_t count = dims[0] * dims[1];
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    dims.push_back(axes == 1 ? random.integer(1, 300) : random.integer(1, 9));
    kernel.push_back(axis < each ? 1 : dims.back());
    count *= dims.back();
  }
  const bool real = type == ElementType::Float || type == ElementType::Double;
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool special = real && random.one_in(200);
    const auto whole =
        static_cast<double>(random.integer(type == ElementType::UInt8 ? 0 : -50, 50));
    values.push_back(special ? random.pick({kNan, kInf, -kInf}) : whole / (real ? 7 : 1));
  }
  OpCase row;
  row.node = {.op_type = mean ? "AveragePool" : "MaxPool",
              .opset = 19,
              .attributes = {{"kernel_shape", kernel}}};
  if (mean && random.one_in(2)) row.node.attributes.push_back({"count_include_pad", 1});
  if (random.one_in(3)) row.node.attributes.push_back({"ceil_mode", 1});
  if (!mean && random.one_in(4)) row.output_count = 2;
  row.inputs = {tensor(type, dims, std::move(values))};
  row.tolerance = {32, 64};
  return row;
}
const Sweep kWholeWindows("Pool", "WholeWindows", 80, whole_windows);

OpCase lp_pool(Random& random) { return pool_of(random, "LpPool", random.integer(1, 2)); }
const Sweep kLpPool("Pool", "Lp", 20, lp_pool);

OpCase global(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}),
              .opset = 13};
  if (row.node.op_type == "GlobalLpPool") row.node.attributes = {{"p", random.integer(1, 3)}};
  row.inputs = {random.tensor(ElementType::Float, random.dims(random.integer(3, 5), 4000, false))};
  row.tolerance = {64, 64};
  return row;
}
const Sweep kGlobal("Pool", "Global", 30, global);

}  // namespace
}  // namespace backplane::ops_test
