// RoiAlign: https://onnx.ai/onnx/operators/onnx__RoiAlign.html, after https://arxiv.org/abs/1703.06870
#include <algorithm>
#include <cmath>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"

namespace backplane::cpu {
namespace {

/// Four neighbours of a sampling point in an image, and their weights; all weights 0 outside.
struct Sample {
  std::int64_t at[4] = {0, 0, 0, 0};
  double weight[4] = {0, 0, 0, 0};

  Sample(double y, double x, std::int64_t height, std::int64_t width) {
    if (!(y >= -1 && y <= static_cast<double>(height) && x >= -1 &&
          x <= static_cast<double>(width)))
      return;
    y = std::max(y, 0.0);
    x = std::max(x, 0.0);
    const std::int64_t top = std::min(static_cast<std::int64_t>(y), height - 1),
                       left = std::min(static_cast<std::int64_t>(x), width - 1);
    const std::int64_t bottom = std::min(top + 1, height - 1),
                       right = std::min(left + 1, width - 1);
    const double down = top == bottom ? 0 : y - static_cast<double>(top),
                 across = left == right ? 0 : x - static_cast<double>(left);
    at[0] = top * width + left;
    at[1] = top * width + right;
    at[2] = bottom * width + left;
    at[3] = bottom * width + right;
    weight[0] = (1 - down) * (1 - across);
    weight[1] = (1 - down) * across;
    weight[2] = down * (1 - across);
    weight[3] = down * across;
  }
};

class RoiAlign {
 public:
  struct Rule {
    std::int64_t out_height, out_width, samples;
    double scale;
    bool half_pixel, average;
  };

  struct Prepared {
    Rule rule;
    std::int64_t rois, batch, channels, height, width;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* batches = ctx.input(2).data<std::int64_t>();
      for (std::int64_t n = 0; n < rois; ++n) {
        if (batches[n] < 0 || batches[n] >= batch)
          sdk::failed("RoiAlign: batch index ", batches[n], " of region ", n,
                      " is out of range for axis 0 of ", batch, " images");
      }
      common::with_float(ctx.input(0).type(),
                         [&](auto tag) { run<typename decltype(tag)::type>(ctx); });
    }

   private:
    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
        for (auto n = static_cast<std::int64_t>(begin); n < static_cast<std::int64_t>(end); ++n)
          pool<T>(ctx, n);
      };
      const std::int64_t work = channels * rule.out_height * rule.out_width * 16;
      ctx.threads().parallel_for(
          static_cast<std::uint64_t>(rois),
          static_cast<std::uint64_t>(1 + 16 * 1024 / std::max<std::int64_t>(1, work)), part);
    }

    template <class T>
    void pool(const sdk::ComputeContext& ctx, std::int64_t roi) const {
      const T* box = ctx.input(1).data<T>() + roi * 4;
      double corner[4];
      for (int i = 0; i < 4; ++i)
        corner[i] =
            static_cast<double>(common::widen(box[i])) * rule.scale - (rule.half_pixel ? 0.5 : 0);
      double roi_width = corner[2] - corner[0], roi_height = corner[3] - corner[1];
      if (!rule.half_pixel) {
        roi_width = std::max(roi_width, 1.0);
        roi_height = std::max(roi_height, 1.0);
      }
      const double bin_height = roi_height / static_cast<double>(rule.out_height),
                   bin_width = roi_width / static_cast<double>(rule.out_width);
      const std::int64_t down =
          rule.samples > 0 ? rule.samples : static_cast<std::int64_t>(std::ceil(bin_height));
      const std::int64_t across =
          rule.samples > 0 ? rule.samples : static_cast<std::int64_t>(std::ceil(bin_width));
      const T* image = ctx.input(0).data<T>() +
                       ctx.input(2).data<std::int64_t>()[roi] * channels * height * width;
      T* target =
          ctx.output(0).mutable_data<T>() + roi * channels * rule.out_height * rule.out_width;
      for (std::int64_t c = 0; c < channels; ++c, image += height * width) {
        for (std::int64_t y = 0; y < rule.out_height; ++y) {
          for (std::int64_t x = 0; x < rule.out_width; ++x, ++target) {
            const double top = corner[1] + static_cast<double>(y) * bin_height,
                         left = corner[0] + static_cast<double>(x) * bin_width;
            *target =
                common::narrow<T>(pool_bin(image, top, left, bin_height, bin_width, down, across));
          }
        }
      }
    }

    template <class T>
    double pool_bin(const T* image, double top, double left, double bin_height, double bin_width,
                    std::int64_t down, std::int64_t across) const {
      double result = 0;
      bool first = true;
      for (std::int64_t iy = 0; iy < down; ++iy) {
        const double y =
            top + (static_cast<double>(iy) + 0.5) * bin_height / static_cast<double>(down);
        for (std::int64_t ix = 0; ix < across; ++ix) {
          const double x =
              left + (static_cast<double>(ix) + 0.5) * bin_width / static_cast<double>(across);
          const Sample sample(y, x, height, width);
          for (int k = 0; k < 4; ++k) {
            const double value =
                sample.weight[k] * static_cast<double>(common::widen(image[sample.at[k]]));
            if (rule.average) {
              result += value;
            } else {
              result = first ? value : std::max(result, value);
            }
            first = false;
          }
        }
      }
      return rule.average ? result / static_cast<double>(std::max<std::int64_t>(1, down * across))
                          : result;
    }
  };

  RoiAlign(const sdk::CreateContext&, const sdk::Node& node) {
    const std::string mode = node.get_string("mode", "avg");
    // Before opset 16 there was no shift by half a pixel.
    const std::string transformation =
        node.get_string("coordinate_transformation_mode",
                        node.since_version() >= 16 ? "half_pixel" : "output_half_pixel");
    if (mode != "avg" && mode != "max")
      sdk::invalid("RoiAlign: mode '", mode, "' is neither avg nor max");
    if (transformation != "half_pixel" && transformation != "output_half_pixel") {
      sdk::invalid("RoiAlign: coordinate_transformation_mode '", transformation, "' is not known");
    }
    rule_ = {
        node.get_int("output_height", 1),  node.get_int("output_width", 1),
        node.get_int("sampling_ratio", 0), static_cast<double>(node.get_float("spatial_scale", 1)),
        transformation == "half_pixel",    mode == "avg"};
    if (rule_.out_height < 1 || rule_.out_width < 1)
      sdk::invalid("RoiAlign: output_height and output_width must be positive");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor image = ctx.input(0), rois = ctx.input(1), batches = ctx.input(2);
    if (image.rank() != 4 || rois.rank() != 2 || rois.dim(1) != 4 ||
        batches.size() != rois.dim(0)) {
      sdk::invalid("RoiAlign: X of dims ", sdk::to_string(image.dims()), ", rois of dims ",
                   sdk::to_string(rois.dims()), " and batch_indices of dims ",
                   sdk::to_string(batches.dims()),
                   "; [N,C,H,W], [regions,4] and [regions] are needed");
    }
    const sdk::Dims dims{rois.dim(0), image.dim(1), rule_.out_height, rule_.out_width};
    ctx.set_output(0, image.type(), dims);
    return {rule_, rois.dim(0), image.dim(0), image.dim(1), image.dim(2), image.dim(3)};
  }

 private:
  Rule rule_{};
};

}  // namespace

sdk::KernelList roi_align_kernels() {
  return {sdk::op("RoiAlign").name("cpu:roi_align").kernel<RoiAlign>()};
}

}  // namespace backplane::cpu
