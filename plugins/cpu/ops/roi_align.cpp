// RoiAlign: https://onnx.ai/onnx/operators/onnx__RoiAlign.html, after https://arxiv.org/abs/1703.06870
#include <algorithm>
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/roi_align_node.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/roi_pool_f32.hpp"
#include "plugins/cpu/kernels/transpose_tile.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

/// Samples on one axis: two neighbours and their weights; both 0 outside of the image.
struct AxisSample {
  std::int64_t low = 0, high = 0;
  double low_weight = 0, high_weight = 0;

  AxisSample(double at, std::int64_t size) {
    if (!(at >= -1 && at <= static_cast<double>(size))) return;
    at = std::max(at, 0.0);
    low = std::min(static_cast<std::int64_t>(at), size - 1);
    high = std::min(low + 1, size - 1);
    high_weight = low == high ? 0 : at - static_cast<double>(low);
    low_weight = 1 - high_weight;
  }
};

/// How a region lies along one axis.
struct AxisBins {
  double begin, bin;
  std::int64_t samples;  // of a bin

  double position(std::int64_t out, std::int64_t sample) const {
    return begin + static_cast<double>(out) * bin +
           (static_cast<double>(sample) + 0.5) * bin / static_cast<double>(samples);
  }
};

/// Sampling positions of an axis that are kept in a table; regions with more are pooled point by point.
constexpr std::int64_t kMostTaps = 1024;
/// Floats of a block of channels with the channels side by side.
constexpr std::int64_t kBlockFloats = 1 << 20;

class RoiAlign {
 public:
  struct Prepared {
    common::RoiAlignRule rule;
    std::int64_t rois, batch, channels, height, width;
    std::int64_t block = 0;  // channels; 0: point by point
    RoiPoolF32 pool_vectors = nullptr;
    Isa isa = Isa::kBaseline;

    static constexpr std::uint64_t kTapBytes = 2 * kMostTaps * sizeof(RoiTap);
    static std::int64_t align_lanes(std::int64_t count) {
      return (count + kRoiLanes - 1) / kRoiLanes * kRoiLanes;
    }
    std::int64_t bins() const { return rule.out_height * rule.out_width; }
    std::uint64_t block_bytes() const {
      return static_cast<std::uint64_t>(batch * height * width * block) * sizeof(float);
    }
    std::uint64_t worker_bytes() const {
      return kTapBytes + align64(static_cast<std::uint64_t>(bins() * block) * sizeof(float));
    }

    /// Vectors pay where the samples are not few beside the elements of the images, which are copied first.
    void choose_block() {
      const std::int64_t positions = batch * height * width;
      const std::int64_t samples = rule.samples > 0 ? rule.samples * rule.samples : 1;
      if (positions == 0 || rois * channels == 0) return;
      if (static_cast<double>(rois * bins()) * static_cast<double>(samples) * 16 <
          static_cast<double>(positions))
        return;
      block = std::min(align_lanes(channels),
                       std::max(kRoiLanes, kBlockFloats / positions / kRoiLanes * kRoiLanes));
    }

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* batches = ctx.input(2).data<std::int64_t>();
      for (std::int64_t n = 0; n < rois; ++n) {
        if (batches[n] < 0 || batches[n] >= batch)
          sdk::failed("RoiAlign: batch index ", batches[n], " of region ", n,
                      " is out of range for axis 0 of ", batch, " images");
      }
      if (ctx.output(0).size() == 0) return;
      common::with_float(ctx.input(0).type(),
                         [&](auto tag) { run<typename decltype(tag)::type>(ctx); });
    }

   private:
    /// Before the threads begin, in which nothing may fail.
    template <class T>
    void check_bins(const sdk::ComputeContext& ctx) const {
      for (std::int64_t n = 0; n < rois && rule.samples == 0; ++n) {
        for (const bool is_rows : {true, false}) {
          const AxisBins bins = axis_bins<T>(ctx, n, is_rows);
          if (bins.samples > common::kMostRoiSamples)
            sdk::failed("RoiAlign: a bin of region ", n, " spans ", bins.bin, " pixels; at most ",
                        common::kMostRoiSamples, " are handled");
        }
      }
    }

    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      check_bins<T>(ctx);
      if constexpr (std::is_same_v<T, float>) {
        if (block > 0) return pool_blocks(ctx);
      }
      const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
        for (auto n = static_cast<std::int64_t>(begin); n < static_cast<std::int64_t>(end); ++n)
          pool_points<T>(ctx, n);
      };
      const std::int64_t work = channels * bins() * 16;
      ctx.threads().parallel_for(
          static_cast<std::uint64_t>(rois),
          static_cast<std::uint64_t>(1 + 16 * 1024 / std::max<std::int64_t>(1, work)), part);
    }

    /// Rows or columns of a region.
    template <class T>
    AxisBins axis_bins(const sdk::ComputeContext& ctx, std::int64_t roi, bool is_rows) const {
      const T* box = ctx.input(1).data<T>() + roi * 4 + (is_rows ? 1 : 0);
      const double shift = rule.half_pixel ? 0.5 : 0;
      const double begin = static_cast<double>(common::widen(box[0])) * rule.scale - shift;
      const double end = static_cast<double>(common::widen(box[2])) * rule.scale - shift;
      const double size = rule.half_pixel ? end - begin : std::max(end - begin, 1.0);
      const double bin = size / static_cast<double>(is_rows ? rule.out_height : rule.out_width);
      constexpr auto kMost = static_cast<double>(common::kMostRoiSamples + 1);
      const auto spanned =
          bin > 0 ? static_cast<std::int64_t>(std::ceil(std::min(bin, kMost))) : std::int64_t{0};
      return {begin, bin, rule.samples > 0 ? rule.samples : spanned};
    }

    /// One region by loops over its points, in double.
    template <class T>
    void pool_points(const sdk::ComputeContext& ctx, std::int64_t roi) const {
      const AxisBins rows = axis_bins<T>(ctx, roi, true), columns = axis_bins<T>(ctx, roi, false);
      const T* image = ctx.input(0).data<T>() +
                       ctx.input(2).data<std::int64_t>()[roi] * channels * height * width;
      T* target = ctx.output(0).mutable_data<T>() + roi * channels * bins();
      for (std::int64_t c = 0; c < channels; ++c, image += height * width) {
        for (std::int64_t y = 0; y < rule.out_height; ++y) {
          for (std::int64_t x = 0; x < rule.out_width; ++x, ++target)
            *target = common::narrow<T>(pool_bin(image, rows, y, columns, x));
        }
      }
    }

    template <class T>
    double pool_bin(const T* image, const AxisBins& rows, std::int64_t y, const AxisBins& columns,
                    std::int64_t x) const {
      double result = 0;
      bool first = true;
      const auto fold = [&](double weight, std::int64_t at) {
        const double value = weight * static_cast<double>(common::widen(image[at]));
        if (rule.average) {
          result += value;
        } else {
          result = first ? value : std::max(result, value);
        }
        first = false;
      };
      for (std::int64_t iy = 0; iy < rows.samples; ++iy) {
        const AxisSample row(rows.position(y, iy), height);
        for (std::int64_t ix = 0; ix < columns.samples; ++ix) {
          const AxisSample column(columns.position(x, ix), width);
          fold(row.low_weight * column.low_weight, row.low * width + column.low);
          fold(row.low_weight * column.high_weight, row.low * width + column.high);
          fold(row.high_weight * column.low_weight, row.high * width + column.low);
          fold(row.high_weight * column.high_weight, row.high * width + column.high);
        }
      }
      const std::int64_t samples = rows.samples * columns.samples;
      return rule.average ? result / static_cast<double>(std::max<std::int64_t>(1, samples))
                          : result;
    }

    /// All regions by vectors of channels: of a block of them at a time, which then lie side by side.
    void pool_blocks(const sdk::ComputeContext& ctx) const {
      auto* memory = ctx.workspace().mutable_data<char>();
      auto* images = reinterpret_cast<float*>(memory);
      memory += block_bytes();
      for (std::int64_t c = 0; c < channels; c += block) {
        const std::int64_t count = std::min(block, channels - c);
        gather_block(ctx, c, count, images);
        ctx.threads().parallel_for(
            static_cast<std::uint64_t>(rois), 1,
            [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
              char* own = memory + worker * worker_bytes();
              for (auto n = static_cast<std::int64_t>(begin); n < static_cast<std::int64_t>(end);
                   ++n)
                pool_region(ctx, n, c, count, images, own);
            });
      }
    }

    void gather_block(const sdk::ComputeContext& ctx, std::int64_t channel, std::int64_t count,
                      float* images) const {
      const float* source = ctx.input(0).data<float>() + channel * height * width;
      constexpr auto kBytes = static_cast<std::int64_t>(sizeof(float));
      split_loop(ctx.threads(), batch * height * width, static_cast<double>(count), 64,
                 [&](std::int64_t begin, std::int64_t end) {
                   while (begin < end) {  // a part may reach into the next image
                     const std::int64_t n = begin / (height * width), at = begin % (height * width);
                     const std::int64_t positions = std::min(end - begin, height * width - at);
                     const float* from = source + n * channels * height * width + at;
                     transpose_tile(isa, kBytes, reinterpret_cast<const char*>(from),
                                    height * width * kBytes,
                                    reinterpret_cast<char*>(images + begin * block), block * kBytes,
                                    positions, count);
                     begin += positions;
                   }
                 });
    }

    void pool_region(const sdk::ComputeContext& ctx, std::int64_t roi, std::int64_t channel,
                     std::int64_t count, const float* images, char* own) const {
      const AxisBins rows = axis_bins<float>(ctx, roi, true);
      const AxisBins columns = axis_bins<float>(ctx, roi, false);
      if (rows.samples < 1 || columns.samples < 1 || rows.samples * rule.out_height > kMostTaps ||
          columns.samples * rule.out_width > kMostTaps) {
        if (channel == 0) pool_points<float>(ctx, roi);
        return;
      }
      auto* taps = reinterpret_cast<RoiTap*>(own);
      const auto list = [&](const AxisBins& axis, std::int64_t out, std::int64_t size,
                            std::int64_t step, RoiTap* to) {
        for (std::int64_t i = 0; i < out * axis.samples; ++i) {
          const AxisSample sample(axis.position(i / axis.samples, i % axis.samples), size);
          to[i] = {sample.low * step, sample.high * step, static_cast<float>(sample.low_weight),
                   static_cast<float>(sample.high_weight)};
        }
      };
      list(rows, rule.out_height, height, width * block, taps);
      list(columns, rule.out_width, width, block, taps + kMostTaps);
      const RoiBins region{taps,         taps + kMostTaps, rule.out_height, rule.out_width,
                           rows.samples, columns.samples,  rule.average};
      auto* pooled = reinterpret_cast<float*>(own + kTapBytes);
      const std::int64_t image = ctx.input(2).data<std::int64_t>()[roi];
      pool_vectors(region, images + image * height * width * block, align_lanes(count), pooled);
      float* target = ctx.output(0).mutable_data<float>() + (roi * channels + channel) * bins();
      constexpr auto kBytes = static_cast<std::int64_t>(sizeof(float));
      transpose_tile(isa, kBytes, reinterpret_cast<const char*>(pooled),
                     align_lanes(count) * kBytes, reinterpret_cast<char*>(target), bins() * kBytes,
                     count, bins());
    }
  };

  RoiAlign(const sdk::CreateContext& ctx, const sdk::Node& node)
      : rule_(common::roi_align_rule(node)),
        pool_vectors_(roi_pool_f32(isa_of(ctx))),
        isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Dims dims = common::set_roi_align_dims(ctx, rule_);
    const sdk::Tensor image = ctx.input(0);
    Prepared prepared{rule_,        dims[0], image.dim(0),  image.dim(1), image.dim(2),
                      image.dim(3), 0,       pool_vectors_, isa_};
    if (image.type() == sdk::DataType::Float) prepared.choose_block();
    ctx.set_variant(prepared.block > 0 ? "channels" : "points");
    if (prepared.block > 0) {
      ctx.set_workspace(prepared.block_bytes() + prepared.worker_bytes() * ctx.threads().count());
    }
    return prepared;
  }

 private:
  common::RoiAlignRule rule_;
  RoiPoolF32 pool_vectors_;
  Isa isa_;
};

}  // namespace

sdk::KernelList roi_align_kernels() {
  return {sdk::op("RoiAlign").name("cpu:roi_align").kernel<RoiAlign>()};
}

}  // namespace backplane::cpu
