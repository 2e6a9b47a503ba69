// MaxRoiPool: https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html, after https://arxiv.org/abs/1504.08083
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

/// Along one axis: pixels of the image that a region covers, both ends included, cut into `bins`.
struct RegionAxis {
  std::int64_t first = 0, pixels = 1, bins = 1, limit = 0;

  /// Bins of whole pixels overlap where the region does not divide by their number.
  std::int64_t begin(std::int64_t bin) const { return inside(first + bin * pixels / bins); }
  std::int64_t end(std::int64_t bin) const {
    return inside(first + ((bin + 1) * pixels + bins - 1) / bins);
  }

 private:
  std::int64_t inside(std::int64_t at) const { return std::clamp<std::int64_t>(at, 0, limit); }
};

/// Regions further from the image than this are none.
constexpr double kMostPixels = 1 << 30;
constexpr std::int64_t kMostBins = 1 << 20;

/// The largest element of each bin of each region; 0 where a bin lies outside of the image.
class MaxRoiPool {
 public:
  struct Prepared {
    std::int64_t rois, batch, channels, height, width, out_height, out_width;
    double scale;

    void compute(const sdk::ComputeContext& ctx) const {
      common::with_float(ctx.input(0).type(),
                         [&](auto tag) { run<typename decltype(tag)::type>(ctx); });
    }

   private:
    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      const T* x = ctx.input(0).data<T>();
      const T* regions = ctx.input(1).data<T>();
      for (std::int64_t n = 0; n < rois; ++n) check(regions + n * 5, n);
      if (ctx.output(0).size() == 0) return;
      T* y = ctx.output(0).mutable_data<T>();
      const double ns = static_cast<double>(height * width) + 8.0 * static_cast<double>(bins());
      split_loop(ctx.threads(), rois * channels, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const T* region = regions + i / channels * 5;
          const auto image = static_cast<std::int64_t>(common::widen(region[0]));
          pool(x + (image * channels + i % channels) * height * width, region, y + i * bins());
        }
      });
    }

    std::int64_t bins() const { return out_height * out_width; }

    template <class T>
    void check(const T* region, std::int64_t n) const {
      const auto image = static_cast<double>(common::widen(region[0]));
      if (!(image >= 0 && image < static_cast<double>(batch)) || image != std::floor(image))
        sdk::failed("MaxRoiPool: region ", n, " is of image ", image, ", but there are ", batch);
      for (int k = 1; k < 5; ++k) {
        const double at = static_cast<double>(common::widen(region[k])) * scale;
        if (!(std::abs(at) <= kMostPixels))
          sdk::failed("MaxRoiPool: region ", n, " has a corner at ", at, " pixels");
      }
    }

    template <class T>
    RegionAxis axis(const T* region, int low, std::int64_t out, std::int64_t size) const {
      const auto pixel = [&](int k) {
        return std::llround(static_cast<double>(common::widen(region[k])) * scale);
      };
      const std::int64_t first = pixel(low), last = pixel(low + 2);
      return {first, std::max<std::int64_t>(last - first + 1, 1), out, size};
    }

    template <class T>
    void pool(const T* image, const T* region, T* to) const {
      const RegionAxis columns = axis(region, 1, out_width, width);
      const RegionAxis rows = axis(region, 2, out_height, height);
      for (std::int64_t oy = 0; oy < out_height; ++oy) {
        for (std::int64_t ox = 0; ox < out_width; ++ox, ++to)
          *to = largest(image, rows.begin(oy), rows.end(oy), columns.begin(ox), columns.end(ox));
      }
    }

    template <class T>
    T largest(const T* image, std::int64_t top, std::int64_t bottom, std::int64_t left,
              std::int64_t right) const {
      if (top >= bottom || left >= right) return common::narrow<T>(0.0);
      T best = image[top * width + left];
      for (std::int64_t y = top; y < bottom; ++y) {
        for (std::int64_t x = left; x < right; ++x) {
          const T value = image[y * width + x];
          if (common::widen(value) > common::widen(best)) best = value;
        }
      }
      return best;
    }
  };

  MaxRoiPool(const sdk::CreateContext&, const sdk::Node& node)
      : pooled_(node.get_ints("pooled_shape")), scale_(node.get_float("spatial_scale", 1)) {
    if (pooled_.size() != 2 || pooled_[0] < 1 || pooled_[1] < 1 || pooled_[0] > kMostBins ||
        pooled_[1] > kMostBins)
      sdk::invalid("MaxRoiPool: pooled_shape is ", sdk::to_string(pooled_),
                   "; a height and a width in [1, ", kMostBins, "] are needed");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0), rois = ctx.input(1);
    if (x.rank() != 4 || rois.rank() != 2 || rois.dim(1) != 5)
      sdk::invalid("MaxRoiPool: X of dims ", sdk::to_string(x.dims()), " and rois of dims ",
                   sdk::to_string(rois.dims()), "; [N,C,H,W] and [regions,5] are needed");
    ctx.set_output(0, x.type(), sdk::Dims{rois.dim(0), x.dim(1), pooled_[0], pooled_[1]});
    return {rois.dim(0), x.dim(0),   x.dim(1),   x.dim(2),
            x.dim(3),    pooled_[0], pooled_[1], static_cast<double>(scale_)};
  }

 private:
  std::vector<std::int64_t> pooled_;
  float scale_;
};

}  // namespace

sdk::KernelList max_roi_pool_kernels() {
  return {sdk::op("MaxRoiPool")
              .name("cpu:max_roi_pool")
              .types("T", common::float_types())
              .kernel<MaxRoiPool>()};
}

}  // namespace backplane::cpu
