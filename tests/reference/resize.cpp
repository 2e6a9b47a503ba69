// RoiAlign, and Resize (nearest, linear, cubic; without antialias) and Upsample: an axis at a time would do, but
// here every output element looks up its neighbours in all axes at once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

/// One axis of a resize.
struct Axis {
  std::int64_t in = 1;
  std::int64_t out = 1;
  double scale = 1;
  double roi_begin = 0;
  double roi_end = 1;
};

/// Input positions and their weights; -1 is the value of extrapolation.
struct Taps {
  std::vector<std::int64_t> at;
  std::vector<double> weight;
};

/// Products and quotients here are those of single precision in other runtimes; positions that come
/// to lie on the edge between two elements are avoided by the cases.
double source_position(const Call& call, const Axis& axis, double x) {
  const std::string mode = call.node.op_type == "Upsample" || call.node.opset < 11
                               ? "asymmetric"
                               : call.text("coordinate_transformation_mode", "half_pixel");
  const auto in = static_cast<double>(axis.in);
  const auto out = static_cast<double>(axis.out);
  if (mode == "asymmetric") return x / axis.scale;
  if (mode == "align_corners") return axis.out == 1 ? 0 : x * (in - 1) / (out - 1);
  if (mode == "pytorch_half_pixel") return axis.out > 1 ? (x + 0.5) / axis.scale - 0.5 : 0;
  if (mode == "tf_half_pixel_for_nn") return (x + 0.5) / axis.scale;
  if (mode == "tf_crop_and_resize") {
    if (axis.out == 1) return 0.5 * (axis.roi_begin + axis.roi_end) * (in - 1);
    return axis.roi_begin * (in - 1) + x * (axis.roi_end - axis.roi_begin) * (in - 1) / (out - 1);
  }
  if (mode == "half_pixel_symmetric") {
    const double adjustment = out / (axis.scale * in);
    const double center = in / 2;
    return center * (1 - adjustment) + (x + 0.5) / axis.scale - 0.5;
  }
  return (x + 0.5) / axis.scale - 0.5;
}

std::int64_t nearest(const Call& call, double position) {
  const bool old = call.node.op_type == "Upsample" || call.node.opset < 11;
  const std::string mode = old ? "floor" : call.text("nearest_mode", "round_prefer_floor");
  if (mode == "floor") return static_cast<std::int64_t>(std::floor(position));
  if (mode == "ceil") return static_cast<std::int64_t>(std::ceil(position));
  if (mode == "round_prefer_ceil") return static_cast<std::int64_t>(std::floor(position + 0.5));
  return static_cast<std::int64_t>(std::ceil(position - 0.5));
}

double cubic(double t, double a) {
  t = std::abs(t);
  if (t <= 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
  if (t < 2) return a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a;
  return 0;
}

Taps taps_of(const Call& call, const Axis& axis, std::int64_t x) {
  const double position = source_position(call, axis, static_cast<double>(x));
  const std::string mode = call.text("mode", "nearest");
  const bool crops = call.text("coordinate_transformation_mode", "") == "tf_crop_and_resize";
  if (crops && (position < 0 || position > static_cast<double>(axis.in - 1))) return {{-1}, {1}};
  if (mode == "nearest") {
    return {{std::clamp<std::int64_t>(nearest(call, position), 0, axis.in - 1)}, {1}};
  }
  const auto base = static_cast<std::int64_t>(std::floor(position));
  const double fraction = position - std::floor(position);
  Taps taps;
  if (mode == "linear") {
    taps = {{base, base + 1}, {1 - fraction, fraction}};
  } else {
    const double a = call.number("cubic_coeff_a", -0.75);
    for (std::int64_t k = -1; k <= 2; ++k) {
      taps.at.push_back(base + k);
      taps.weight.push_back(cubic(fraction - static_cast<double>(k), a));
    }
  }
  double sum = 0;
  for (std::size_t k = 0; k < taps.at.size(); ++k) {
    const bool outside = taps.at[k] < 0 || taps.at[k] >= axis.in;
    if (outside && call.integer("exclude_outside", 0) != 0) taps.weight[k] = 0;
    taps.at[k] = std::clamp<std::int64_t>(taps.at[k], 0, axis.in - 1);
    sum += taps.weight[k];
  }
  if (call.integer("exclude_outside", 0) != 0) {
    for (double& weight : taps.weight) weight /= sum;
  }
  return taps;
}

/// By keep_aspect_ratio_policy the sizes asked for may give one scale for all axes.
void use_sizes(const Call& call, const Dims& sizes, const Dims& axes, std::vector<Axis>& all) {
  const std::string policy = call.text("keep_aspect_ratio_policy", "stretch");
  double common = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Axis& axis = all[axes[i]];
    axis.out = sizes[i];
    axis.scale = static_cast<double>(sizes[i]) / static_cast<double>(axis.in);
    const bool replaces = policy == "not_larger" ? axis.scale < common : axis.scale > common;
    if (i == 0 || replaces) common = axis.scale;
  }
  if (policy == "stretch") return;
  for (const std::int64_t index : axes) {
    all[index].scale = common;
    all[index].out =
        static_cast<std::int64_t>(std::floor(common * static_cast<double>(all[index].in) + 0.5));
  }
}

/// Inputs: Resize from 11 on: x, roi, scales, sizes; Resize 10 and Upsample 9: x, scales; Upsample
/// 7: an attribute.
std::vector<Axis> axes_of(const Call& call, const Array& x) {
  std::vector<Axis> all(x.dims.size());
  Dims axes;
  for (std::int64_t a = 0; a < x.rank(); ++a) axes.push_back(a);
  axes = call.list("axes", axes);
  for (std::int64_t& a : axes) a = positive_axis(a, x.rank());
  for (std::size_t a = 0; a < all.size(); ++a) all[a].in = all[a].out = x.dims[a];
  const bool with_roi = call.node.op_type == "Resize" && call.node.opset >= 11;
  const Array* scales = call.optional(with_roi ? 2 : 1);
  if (scales != nullptr && scales->size() > 0) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      Axis& axis = all[axes[i]];
      axis.scale = scales->values[i];
      axis.out = static_cast<std::int64_t>(std::floor(static_cast<double>(axis.in) * axis.scale));
    }
  } else {
    use_sizes(call, call.integers(3), axes, all);
  }
  const Array* roi = with_roi ? call.optional(1) : nullptr;
  if (roi != nullptr && roi->size() > 0) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      all[axes[i]].roi_begin = roi->values[i];
      all[axes[i]].roi_end = roi->values[i + axes.size()];
    }
  }
  return all;
}

Arrays resize(const Call& call) {
  const Array& x = call.input(0);
  const std::vector<Axis> axes = axes_of(call, x);
  const double outside = call.number("extrapolation_value", 0);
  Array y{x.type, {}, {}};
  for (const Axis& axis : axes) y.dims.push_back(axis.out);
  // Of each place along an axis once: reading attributes takes longer than to add what they choose.
  const bool crops = call.text("coordinate_transformation_mode", "") == "tf_crop_and_resize";
  std::vector<std::vector<Taps>> all(axes.size());
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const bool same = axes[a].in == axes[a].out && axes[a].scale == 1 && !crops;
    for (std::int64_t i = 0; i < axes[a].out; ++i)
      all[a].push_back(same ? Taps{{i}, {1}} : taps_of(call, axes[a], i));
  }
  Dims counts(axes.size()), at(axes.size());
  for_each_index(y.dims, [&](const Dims& index) {
    bool extrapolates = false;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const Taps& taps = all[a][index[a]];
      extrapolates = extrapolates || taps.at[0] < 0;
      counts[a] = static_cast<std::int64_t>(taps.at.size());
    }
    double sum = 0;
    for_each_index(counts, [&](const Dims& tap) {
      if (extrapolates) return;
      double weight = 1;
      for (std::size_t a = 0; a < axes.size(); ++a) {
        const Taps& taps = all[a][index[a]];
        at[a] = taps.at[tap[a]];
        weight *= taps.weight[tap[a]];
      }
      sum += weight * x.values[offset_of(x.dims, at)];
    });
    y.values.push_back(extrapolates ? outside : sum);
  });
  return {y};
}

/// The four neighbours of a place [y, x] in a channel of an image, each times its weight.
void add_neighbours(const Array& x, std::int64_t image, std::int64_t channel,
                    const double (&where)[2], std::vector<double>& parts) {
  for (int corner = 0; corner < 4; ++corner) {
    const bool upper[2] = {corner >= 2, corner % 2 != 0};
    double weight = 1;
    Dims place = {image, channel, 0, 0};
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const std::int64_t size = x.dims[axis + 2];
      const bool outside = where[axis] < -1 || where[axis] > static_cast<double>(size);
      const double clamped = std::clamp(where[axis], 0.0, static_cast<double>(size - 1));
      const double rest = clamped - std::floor(clamped);
      weight *= outside ? 0 : upper[axis] ? rest : 1 - rest;
      place[axis + 2] =
          std::min(static_cast<std::int64_t>(clamped) + (upper[axis] ? 1 : 0), size - 1);
    }
    parts.push_back(weight * x.values[offset_of(x.dims, place)]);
  }
}

/// RoiAlign: a bin is the mean (or the greatest weighted neighbour) of its samples, which lie evenly in it.
Arrays roi_align(const Call& call) {
  const Array& x = call.input(0);
  const std::int64_t out_h = call.integer("output_height", 1);
  const std::int64_t out_w = call.integer("output_width", 1);
  const bool half = call.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const bool max = call.text("mode", "avg") == "max";
  const double scale = call.number("spatial_scale", 1);
  const auto samples_of = [&](double bin) {
    const std::int64_t given = call.integer("sampling_ratio", 0);
    return given > 0 ? given : static_cast<std::int64_t>(std::ceil(bin));
  };
  Array y{x.type, {call.input(1).dims[0], x.dims[1], out_h, out_w}, {}};
  for_each_index(y.dims, [&](const Dims& at) {
    double begin[2], bin[2];
    for (int axis = 0; axis < 2; ++axis) {  // y, x; a box is x1, y1, x2, y2
      const double low = call.input(1).values[at[0] * 4 + 1 - axis] * scale - (half ? 0.5 : 0);
      const double high = call.input(1).values[at[0] * 4 + 3 - axis] * scale - (half ? 0.5 : 0);
      const double size = half ? high - low : std::max(high - low, 1.0);
      bin[axis] = size / static_cast<double>(axis == 0 ? out_h : out_w);
      begin[axis] = low + static_cast<double>(at[static_cast<std::size_t>(axis) + 2]) * bin[axis];
    }
    const std::int64_t rows = samples_of(bin[0]), columns = samples_of(bin[1]);
    std::vector<double> parts;
    const std::int64_t samples = std::max<std::int64_t>(0, rows) * columns;
    for (std::int64_t i = 0; i < samples; ++i) {
      const std::int64_t row = i / columns;
      const double where[2] = {
          begin[0] + bin[0] * (static_cast<double>(row) + 0.5) / static_cast<double>(rows),
          begin[1] +
              bin[1] * (static_cast<double>(i % columns) + 0.5) / static_cast<double>(columns)};
      const std::int64_t image = call.integers(2)[static_cast<std::size_t>(at[0])];
      add_neighbours(x, image, at[1], where, parts);
    }
    double result = 0;
    for (const double part : parts) result += part / static_cast<double>(rows * columns);
    if (max && !parts.empty()) result = *std::max_element(parts.begin(), parts.end());
    y.values.push_back(result);
  });
  return {y};
}

const Registration kRoiAlign({"RoiAlign"}, roi_align);
const Registration kResize({"Resize", "Upsample"}, resize);

}  // namespace
}  // namespace backplane::reference
