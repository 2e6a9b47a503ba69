// DeformConv: https://onnx.ai/onnx/operators/onnx__DeformConv.html
#include <cmath>

#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/conv_geometry.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

constexpr std::uint32_t kDeformX = 0, kDeformW = 1, kOffset = 2, kDeformBias = 3, kDeformMask = 4;

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
      const T* x = ctx.input(kDeformX).template data<T>();
      const T* offset = ctx.input(kOffset).template data<T>();
      const T* mask =
          ctx.has_input(kDeformMask) ? ctx.input(kDeformMask).template data<T>() : nullptr;
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
      const T* w = ctx.input(kDeformW).template data<T>();
      const T* bias =
          ctx.has_input(kDeformBias) ? ctx.input(kDeformBias).template data<T>() : nullptr;
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

  DeformConv(const sdk::CreateContext&, const sdk::Node& node)
      : attributes_(node),
        groups_(node.get_int("group", 1)),
        offset_groups_(node.get_int("offset_group", 1)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kDeformX);
    const sdk::Tensor w = ctx.input(kDeformW);
    if (x.rank() != 4 || w.rank() != 4) {
      sdk::unsupported("DeformConv: X has rank ", x.rank(), " and W rank ", w.rank(),
                       "; images of two spatial axes (rank 4) are handled");
    }
    if (groups_ < 1 || offset_groups_ < 1 || x.dim(1) != w.dim(1) * groups_ ||
        w.dim(0) % groups_ != 0 || x.dim(1) % offset_groups_ != 0) {
      sdk::invalid("DeformConv: X has dims ", sdk::to_string(x.dims()), " and W ",
                   sdk::to_string(w.dims()), ", which do not fit group ", groups_,
                   " and offset_group ", offset_groups_);
    }
    Prepared prepared{
        attributes_.resolve_convolution({x.dims().data() + 2, 2}, {w.dims().data() + 2, 2}),
        x.dim(0),
        x.dim(1),
        w.dim(0),
        groups_,
        offset_groups_};
    const Window& window = prepared.window;
    const std::int64_t maps = offset_groups_ * window.taps();
    check(ctx, kOffset, "offset", {x.dim(0), 2 * maps, window.out[1], window.out[2]});
    check(ctx, kDeformMask, "mask", {x.dim(0), maps, window.out[1], window.out[2]});
    check(ctx, kDeformBias, "B", {w.dim(0)});
    ctx.set_output(0, x.type(), sdk::Dims{x.dim(0), w.dim(0), window.out[1], window.out[2]});
    ctx.set_workspace(static_cast<std::uint64_t>(x.dim(1) * window.taps()) * sizeof(Sum) *
                      ctx.threads().count());
    return prepared;
  }

 private:
  static void check(const sdk::PrepareContext& ctx, std::uint32_t index, const char* name,
                    const sdk::Dims& wanted) {
    const sdk::Tensor tensor = ctx.input(index);
    if (!tensor.present() || sdk::to_string(tensor.dims()) == sdk::to_string(wanted)) return;
    sdk::invalid("DeformConv: ", name, " has dims ", sdk::to_string(tensor.dims()), ", expected ",
                 sdk::to_string(wanted));
  }

  WindowAttributes attributes_;
  std::int64_t groups_, offset_groups_;
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
