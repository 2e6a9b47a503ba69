// What a RoiAlign node asks for: https://onnx.ai/onnx/operators/onnx__RoiAlign.html
#pragma once

#include <cstdint>
#include <string>

#include "backplane/plugin.hpp"

namespace backplane::common {

/// Samples of a bin along an axis. Their number is that of the pixels that a bin spans, or asked for.
constexpr std::int64_t kMostRoiSamples = 1 << 16;

struct RoiAlignRule {
  std::int64_t out_height, out_width;
  std::int64_t samples;  ///< 0: those of the pixels that a bin spans
  double scale;
  bool half_pixel, average;
};

inline RoiAlignRule roi_align_rule(const sdk::Node& node) {
  const std::string mode = node.get_string("mode", "avg");
  // Before opset 16 there was no shift by half a pixel.
  const std::string transformation =
      node.get_string("coordinate_transformation_mode",
                      node.since_version() >= 16 ? "half_pixel" : "output_half_pixel");
  if (mode != "avg" && mode != "max")
    sdk::invalid("RoiAlign: mode '", mode, "' is neither avg nor max");
  if (transformation != "half_pixel" && transformation != "output_half_pixel")
    sdk::invalid("RoiAlign: coordinate_transformation_mode '", transformation, "' is not known");
  const RoiAlignRule rule{
      node.get_int("output_height", 1),  node.get_int("output_width", 1),
      node.get_int("sampling_ratio", 0), static_cast<double>(node.get_float("spatial_scale", 1)),
      transformation == "half_pixel",    mode == "avg"};
  if (rule.out_height < 1 || rule.out_width < 1)
    sdk::invalid("RoiAlign: output_height and output_width must be positive");
  if (rule.samples < 0 || rule.samples > kMostRoiSamples)
    sdk::invalid("RoiAlign: sampling_ratio is ", rule.samples, "; it must be in [0, ",
                 kMostRoiSamples, "]");
  return rule;
}

/// Checks the inputs, sets the output and returns its dims.
inline sdk::Dims set_roi_align_dims(sdk::PrepareContext& ctx, const RoiAlignRule& rule) {
  const sdk::Tensor x = ctx.input(0), rois = ctx.input(1), images = ctx.input(2);
  if (x.rank() != 4 || rois.rank() != 2 || rois.dim(1) != 4 || images.size() != rois.dim(0)) {
    sdk::invalid("RoiAlign: X of dims ", sdk::to_string(x.dims()), ", rois of dims ",
                 sdk::to_string(rois.dims()), " and batch_indices of dims ",
                 sdk::to_string(images.dims()),
                 "; [N,C,H,W], [regions,4] and [regions] are needed");
  }
  sdk::Dims dims{rois.dim(0), x.dim(1), rule.out_height, rule.out_width};
  if (x.dim(2) * x.dim(3) == 0 && sdk::element_count(dims) > 0)
    sdk::invalid("RoiAlign: images of dims ", sdk::to_string(x.dims()), " have no pixels");
  ctx.set_output(0, x.type(), dims);
  return dims;
}

}  // namespace backplane::common
