// DeformConv: https://onnx.ai/onnx/operators/onnx__DeformConv.html
#include <cmath>

#include "plugins/common/deform_conv_node.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/conv_geometry.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using common::DeformConvRule;

/// Images of two spatial axes; sums in double for double, otherwise in float.
template <class T>
class DeformConv {
 public:
  using Sum = common::Wide<T>;

  struct Prepared {
    Window window;
    std::int64_t batch, in_channels, out_channels, groups, offset_groups;

    std::int64_t in_pixels() const { return window.in_pixels(); }
    std::int64_t out_pixels() const { return window.out_pixels(); }

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      const std::int64_t samples = in_channels * window.taps();
      auto* workspace = ctx.workspace().template mutable_data<Sum>();
      const std::int64_t work = samples * (out_channels / groups + 8);
      const auto grain = static_cast<std::uint64_t>(20000 / (work + 1) + 1);
      ctx.threads().parallel_for(static_cast<std::uint64_t>(batch * out_pixels()), grain,
                                 [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
                                   Sum* own =
                                       workspace + static_cast<std::int64_t>(worker) * samples;
                                   for (auto i = static_cast<std::int64_t>(begin);
                                        i < static_cast<std::int64_t>(end); ++i) {
                                     sample(ctx, i / out_pixels(), i % out_pixels(), own);
                                     multiply(ctx, i / out_pixels(), i % out_pixels(), own);
                                   }
                                 });
    }

    /// What an output pixel sees: [in_channels, taps].
    void sample(const sdk::ComputeContext& ctx, std::int64_t image, std::int64_t pixel,
                Sum* samples) const {
      const T* x = ctx.input(DeformConvRule::kX).template data<T>();
      const T* offset = ctx.input(DeformConvRule::kOffset).template data<T>();
      const T* mask = ctx.has_input(DeformConvRule::kMask)
                          ? ctx.input(DeformConvRule::kMask).template data<T>()
                          : nullptr;
      const std::int64_t taps = window.taps();
      const std::int64_t per_group = in_channels / offset_groups;
      const std::int64_t first_y = pixel / window.out[2] * window.stride[1] - window.pad_begin[1];
      const std::int64_t first_x = pixel % window.out[2] * window.stride[2] - window.pad_begin[2];
      for (std::int64_t group = 0; group < offset_groups; ++group) {
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const std::int64_t index = (image * offset_groups + group) * taps + tap;
          const T* moved = offset + 2 * index * out_pixels() + pixel;
          const std::int64_t ky = tap / window.kernel[2] * window.dilation[1];
          const std::int64_t kx = tap % window.kernel[2] * window.dilation[2];
          const Sum y = static_cast<Sum>(first_y + ky) + common::widen(moved[0]);
          const Sum at = static_cast<Sum>(first_x + kx) + common::widen(moved[out_pixels()]);
          const Sum weight =
              mask != nullptr ? common::widen(mask[index * out_pixels() + pixel]) : Sum(1);
          for (std::int64_t c = group * per_group; c < (group + 1) * per_group; ++c) {
            const T* plane = x + (image * in_channels + c) * in_pixels();
            samples[c * taps + tap] = weight * interpolate(plane, y, at);
          }
        }
      }
    }

    /// Between the four pixels around (y, x); outside of the image there are zeros.
    Sum interpolate(const T* plane, Sum y, Sum x) const {
      const std::int64_t height = window.in[1];
      const std::int64_t width = window.in[2];
      // NaN too is outside.
      if (!(y > -1 && y < static_cast<Sum>(height) && x > -1 && x < static_cast<Sum>(width)))
        return 0;
      const auto top = static_cast<std::int64_t>(std::floor(y));
      const auto left = static_cast<std::int64_t>(std::floor(x));
      const Sum down = y - static_cast<Sum>(top);
      const Sum right = x - static_cast<Sum>(left);
      const auto at = [&](std::int64_t i, std::int64_t j) {
        const bool inside = i >= 0 && i < height && j >= 0 && j < width;
        return inside ? common::widen(plane[i * width + j]) : Sum(0);
      };
      return (1 - down) * ((1 - right) * at(top, left) + right * at(top, left + 1)) +
             down * ((1 - right) * at(top + 1, left) + right * at(top + 1, left + 1));
    }

    void multiply(const sdk::ComputeContext& ctx, std::int64_t image, std::int64_t pixel,
                  const Sum* samples) const {
      const T* w = ctx.input(DeformConvRule::kW).template data<T>();
      const T* bias = ctx.has_input(DeformConvRule::kBias)
                          ? ctx.input(DeformConvRule::kBias).template data<T>()
                          : nullptr;
      T* y = ctx.output(0).template mutable_data<T>();
      const std::int64_t depth = in_channels / groups * window.taps();
      for (std::int64_t c = 0; c < out_channels; ++c) {
        const Sum* from = samples + c / (out_channels / groups) * depth;
        Sum sum = bias != nullptr ? common::widen(bias[c]) : Sum(0);
        for (std::int64_t k = 0; k < depth; ++k) sum += from[k] * common::widen(w[c * depth + k]);
        y[(image * out_channels + c) * out_pixels() + pixel] = common::narrow<T>(sum);
      }
    }
  };

  DeformConv(const sdk::CreateContext&, const sdk::Node& node) : attributes_(node), rule_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    rule_.check_weights(ctx);
    const sdk::Tensor x = ctx.input(DeformConvRule::kX), w = ctx.input(DeformConvRule::kW);
    const Window window =
        attributes_.resolve_convolution({x.dims().data() + 2, 2}, {w.dims().data() + 2, 2});
    rule_.set_dims(ctx, window.taps(), window.out[1], window.out[2]);
    ctx.set_workspace(static_cast<std::uint64_t>(x.dim(1) * window.taps()) * sizeof(Sum) *
                      ctx.threads().count());
    return {window, x.dim(0), x.dim(1), w.dim(0), rule_.groups, rule_.offset_groups};
  }

 private:
  WindowAttributes attributes_;
  DeformConvRule rule_;
};

template <class T>
sdk::KernelEntry entry(int since) {
  constexpr sdk::DataType kType = sdk::data_type_of<T>();
  return sdk::op("DeformConv")
      .name(std::string("cpu:DeformConv_") + sdk::type_name(kType))
      .since(since)
      .types("T", {kType})
      .template kernel<DeformConv<T>>();
}

}  // namespace

sdk::KernelList deform_conv_kernels() {
  return {entry<float>(19), entry<double>(19), entry<sdk::Half>(19), entry<sdk::BFloat16>(22)};
}

}  // namespace backplane::cpu
