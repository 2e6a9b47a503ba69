// What a Resize or Upsample node asks for: https://onnx.ai/onnx/operators/onnx__Resize.html
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "plugins/common/axes.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/resample.hpp"
#include "plugins/common/types.hpp"

namespace backplane::common {

inline Coordinates coordinates_of(const std::string& name) {
  if (name == "half_pixel") return Coordinates::HalfPixel;
  if (name == "half_pixel_symmetric") return Coordinates::HalfPixelSymmetric;
  if (name == "pytorch_half_pixel") return Coordinates::PytorchHalfPixel;
  if (name == "tf_half_pixel_for_nn") return Coordinates::TfHalfPixelForNearest;
  if (name == "align_corners") return Coordinates::AlignCorners;
  if (name == "asymmetric") return Coordinates::Asymmetric;
  if (name == "tf_crop_and_resize") return Coordinates::TfCropAndResize;
  sdk::invalid("Resize: coordinate_transformation_mode '", name, "' is not known");
}

inline Rounding rounding_of(const std::string& name) {
  if (name == "round_prefer_floor") return Rounding::PreferFloor;
  if (name == "round_prefer_ceil") return Rounding::PreferCeil;
  if (name == "floor") return Rounding::Floor;
  if (name == "ceil") return Rounding::Ceil;
  sdk::invalid("Resize: nearest_mode '", name, "' is not known");
}

/// Resize from opset 11 on takes everything below; Resize 10 and Upsample are its simplest case. All inputs
/// but the first are shape inputs.
class ResizeNode {
 public:
  explicit ResizeNode(const sdk::Node& node)
      : axes_(node.get_ints("axes")), has_axes_(node.has("axes")) {
    const std::string mode = node.get_string("mode", "nearest");
    if (mode == "linear" || mode == "bilinear" || mode == "trilinear") {
      rule_.interpolation = Interpolation::Linear;
    } else if (mode == "cubic") {
      rule_.interpolation = Interpolation::Cubic;
    } else if (mode != "nearest") {
      sdk::invalid(node.op_type(), ": mode '", mode, "' is not known");
    }
    simple_ = node.is("Upsample") || node.since_version() < 11;
    if (simple_) {
      rule_.coordinates = Coordinates::Asymmetric;
      // The text of Resize 10 does not say it, but its examples (test_resize_downsample_nearest) do.
      rule_.rounding = node.is("Upsample") ? Rounding::Floor : Rounding::Inward;
      read_scale_attributes(node);
      return;
    }
    rule_.coordinates =
        coordinates_of(node.get_string("coordinate_transformation_mode", "half_pixel"));
    rule_.rounding = rounding_of(node.get_string("nearest_mode", "round_prefer_floor"));
    rule_.cubic_coefficient = static_cast<double>(node.get_float("cubic_coeff_a", -0.75F));
    rule_.exclude_outside = node.get_int("exclude_outside", 0) != 0;
    rule_.antialias = node.get_int("antialias", 0) != 0;
    extrapolation_ = static_cast<double>(node.get_float("extrapolation_value", 0));
    policy_ = node.get_string("keep_aspect_ratio_policy", "stretch");
    if (rule_.antialias && rule_.interpolation == Interpolation::Nearest)
      sdk::invalid("Resize: antialias is not for mode nearest");
    if (policy_ != "stretch" && policy_ != "not_larger" && policy_ != "not_smaller") {
      sdk::invalid("Resize: keep_aspect_ratio_policy '", policy_, "' is not known");
    }
  }

  const ResampleRule& rule() const { return rule_; }
  double extrapolation() const { return extrapolation_; }

  /// For each axis what is asked of it. Resize 10 and Upsample have inputs (X, scales), later ones (X, roi,
  /// scales, sizes).
  std::vector<AxisRequest> requests(const sdk::PrepareContext& ctx) const {
    const sdk::DimsView dims = ctx.input(0).dims();
    std::vector<std::size_t> axes;
    for (std::size_t i = 0; i < (has_axes_ ? axes_.size() : dims.size()); ++i) {
      axes.push_back(has_axes_ ? static_cast<std::size_t>(
                                     normalize_axis(axes_[i], static_cast<int>(dims.size())))
                               : i);
    }
    std::vector<AxisRequest> asked(dims.size());
    for (std::size_t i = 0; i < dims.size(); ++i) asked[i].input = asked[i].output = dims[i];
    const sdk::Tensor scales = ctx.input(simple_ ? 1 : 2),
                      sizes = simple_ ? ctx.input(4) : ctx.input(3);
    const bool by_sizes = sizes.present() && sizes.size() > 0;
    std::vector<float> factors = scales_;
    if (scales.present() && scales.size() > 0)
      factors.assign(scales.data<float>(), scales.data<float>() + scales.size());
    if (by_sizes ? sizes.size() != static_cast<std::int64_t>(axes.size())
                 : factors.size() != axes.size()) {
      sdk::invalid("Resize: ", by_sizes ? static_cast<std::size_t>(sizes.size()) : factors.size(),
                   by_sizes ? " sizes" : " scales", " for ", axes.size(), " axes");
    }
    if (by_sizes) {
      set_sizes(sizes.to_ints(), axes, asked);
    } else {
      for (std::size_t i = 0; i < axes.size(); ++i) set_scale(factors[i], asked[axes[i]]);
    }
    if (rule_.coordinates == Coordinates::TfCropAndResize) set_roi(ctx.input(1), axes, asked);
    return asked;
  }

 private:
  void read_scale_attributes(const sdk::Node& node) {
    scales_ = node.get_floats("scales");
    if (node.since_version() == 1) {
      scales_ = {1, 1, node.get_float("height_scale", 1), node.get_float("width_scale", 1)};
    }
  }

  // As ONNX's shape inference does it: in single precision.
  static void set_scale(float scale, AxisRequest& axis) {
    if (!(scale > 0)) sdk::invalid("Resize: scale ", scale, " is not positive");
    axis.scale = static_cast<double>(scale);
    const float size = std::floor(static_cast<float>(axis.input) * scale);
    axis.output = whole_size(static_cast<double>(size), "Resize: an axis of ", axis.input,
                             " elements by scale ", scale);
  }

  void set_sizes(const std::vector<std::int64_t>& sizes, const std::vector<std::size_t>& axes,
                 std::vector<AxisRequest>& requests) const {
    const bool smaller = policy_ == "not_larger";
    float chosen = smaller ? std::numeric_limits<float>::max() : 0;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      AxisRequest& axis = requests[axes[i]];
      if (sizes[i] < 0) sdk::invalid("Resize: size ", sizes[i], " is negative");
      const float scale = static_cast<float>(sizes[i]) / static_cast<float>(axis.input);
      chosen = smaller ? std::min(chosen, scale) : std::max(chosen, scale);
      axis.output = sizes[i];
      axis.scale =
          axis.input == 0 ? 1 : static_cast<double>(sizes[i]) / static_cast<double>(axis.input);
    }
    if (policy_ == "stretch") return;
    for (const std::size_t at : axes) {
      AxisRequest& axis = requests[at];
      const float size = std::round(chosen * static_cast<float>(axis.input));
      axis.output = whole_size(static_cast<double>(size), "Resize: an axis of ", axis.input,
                               " elements by scale ", chosen);
      axis.scale = static_cast<double>(chosen);
    }
  }

  static void set_roi(const sdk::Tensor& roi, const std::vector<std::size_t>& axes,
                      std::vector<AxisRequest>& requests) {
    if (!roi.present() || roi.size() != static_cast<std::int64_t>(2 * axes.size())) {
      sdk::invalid("Resize: tf_crop_and_resize needs a roi of ", 2 * axes.size(), " numbers");
    }
    with_type<float, double, Half>(roi.type(), [&](auto tag) {
      const auto* data = roi.data<typename decltype(tag)::type>();
      for (std::size_t i = 0; i < axes.size(); ++i) {
        requests[axes[i]].roi_start = static_cast<double>(widen(data[i]));
        requests[axes[i]].roi_end = static_cast<double>(widen(data[axes.size() + i]));
      }
    });
  }

  std::vector<std::int64_t> axes_;
  std::vector<float> scales_;
  std::string policy_ = "stretch";
  ResampleRule rule_;
  double extrapolation_ = 0;
  bool has_axes_, simple_ = false;
};

}  // namespace backplane::common
