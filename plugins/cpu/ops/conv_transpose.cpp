// ConvTranspose: https://onnx.ai/onnx/operators/onnx__ConvTranspose.html
#include "plugins/cpu/dense/conv_transposed.hpp"
#include "plugins/cpu/dense/plain_product.hpp"
#include "plugins/cpu/device.hpp"

namespace backplane::cpu {
namespace {

constexpr uint32_t kTransposedX = 0, kTransposedW = 1, kTransposedBias = 2;

/// Reads and checks the dims of x, W and B.
ConvShape transposed_shape(const TransposedAttributes& attributes, int64_t groups,
                           const sdk::PrepareContext& ctx) {
  const sdk::DimsView x = ctx.input(kTransposedX).dims();
  const sdk::DimsView w = ctx.input(kTransposedW).dims();
  if (x.size() < 3) sdk::invalid("ConvTranspose: X has rank ", x.size(), ", at least 3 is needed");
  if (w.size() != x.size()) {
    sdk::invalid("ConvTranspose: W has rank ", w.size(), ", X has rank ", x.size());
  }
  if (groups < 1 || x[1] != w[0] || x[1] % groups != 0) {
    sdk::invalid("ConvTranspose: X has ", x[1], " channels, W dims ", sdk::to_string(w), " and ",
                 groups,
                 " groups; W's first dimension must be the channels, and the groups divide it");
  }
  const std::size_t spatial = x.size() - 2;
  ConvShape shape;
  shape.window = attributes.resolve({x.data() + 2, spatial}, {w.data() + 2, spatial});
  shape.batch = x[0];
  shape.in_channels = x[1];
  shape.out_channels = w[1] * groups;
  shape.groups = groups;
  const sdk::Tensor bias = ctx.input(kTransposedBias);
  if (bias.present() && (bias.rank() != 1 || bias.dim(0) != shape.out_channels)) {
    sdk::invalid("ConvTranspose: B has dims ", sdk::to_string(bias.dims()), ", expected [",
                 shape.out_channels, "]");
  }
  return shape;
}

sdk::Dims output_dims(const ConvShape& shape, std::size_t rank) {
  sdk::Dims dims{shape.batch, shape.out_channels};
  for (std::size_t axis = 5 - rank; axis < 3; ++axis) dims.push_back(shape.window.out[axis]);
  return dims;
}

class ConvTranspose {
 public:
  struct Prepared {
    TransposedConv conv;
    bool packed;

    void compute(const sdk::ComputeContext& ctx) const {
      auto* y = ctx.output(0).mutable_data<float>();
      if (ctx.output(0).size() == 0) return;
      const float* bias =
          ctx.has_input(kTransposedBias) ? ctx.input(kTransposedBias).data<float>() : nullptr;
      char* workspace = ctx.workspace().mutable_data<char>();
      const float* weights = nullptr;
      if (packed) {
        weights = ctx.packed(0).data<float>();
      } else {
        auto* own = reinterpret_cast<float*>(workspace + conv.workspace_bytes());
        conv.pack(ctx.input(kTransposedW).data<float>(), own, own + conv.packed_floats(),
                  ctx.threads());
        weights = own;
      }
      conv.run(ctx.input(kTransposedX).data<float>(), weights, bias, y, workspace, ctx.threads());
    }
  };

  ConvTranspose(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node), groups_(node.get_int("group", 1)), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kTransposedX);
    const ConvShape shape = transposed_shape(attributes_, groups_, ctx);
    const sdk::Dims dims = output_dims(shape, static_cast<std::size_t>(x.rank()));
    ctx.set_output(0, sdk::DataType::Float, dims);
    Prepared prepared{TransposedConv(shape, isa_, ctx.threads().count()),
                      ctx.input_constant(kTransposedW)};
    const TransposedConv& conv = prepared.conv;
    const int64_t own = conv.packed_floats() + conv.pack_floats();
    if (prepared.packed) {
      const std::string key =
          sdk::message("conv transposed f32 isa ", static_cast<int>(isa_), " groups ", groups_,
                       " dims ", sdk::to_string(ctx.input(kTransposedW).dims()), " strides ",
                       sdk::to_string(attributes_.strides), " dilations ",
                       sdk::to_string(attributes_.dilations));
      ctx.request_pack(key, {kTransposedW}, static_cast<uint64_t>(conv.packed_floats()) * 4, this);
    }
    ctx.set_workspace(conv.workspace_bytes() +
                      (prepared.packed ? 0 : static_cast<uint64_t>(own) * 4));
    ctx.set_variant(prepared.packed ? "packed" : "packing");
    const int64_t macs = x.size() * shape.out_channels / shape.groups * shape.window.taps();
    ctx.set_cost(2 * static_cast<uint64_t>(macs), x.bytes() + ctx.input(kTransposedW).bytes());
    return prepared;
  }

  /// Packs a constant W.
  void pack(const sdk::PackContext& ctx) const {
    const sdk::DimsView w = ctx.source(0).dims();
    const std::size_t spatial = w.size() - 2;
    // The images' extents do not matter for packing, nor do the attributes that say where they end.
    ConvShape shape;
    shape.in_channels = w[0];
    shape.out_channels = w[1] * groups_;
    shape.groups = groups_;
    for (std::size_t axis = 0; axis < spatial; ++axis) {
      const std::size_t to = axis + kSpatialAxes - spatial;
      shape.window.kernel[to] = w[axis + 2];
      if (!attributes_.strides.empty()) shape.window.stride[to] = attributes_.strides[axis];
      if (!attributes_.dilations.empty()) shape.window.dilation[to] = attributes_.dilations[axis];
    }
    const TransposedConv conv(shape, isa_, 1);
    std::vector<float> beside(static_cast<std::size_t>(conv.pack_floats()));
    conv.pack(ctx.source(0).data<float>(), ctx.target().mutable_data<float>(), beside.data(),
              ctx.threads());
  }

 private:
  TransposedAttributes attributes_;
  int64_t groups_;
  Isa isa_;
};

/// Other element types: plain loops over the output, sums in double for double and in float for the
/// 16-bit types.
template <class T>
class PlainConvTranspose {
 public:
  struct Prepared {
    ConvShape shape;

    void compute(const sdk::ComputeContext& ctx) const {
      const T* x = ctx.input(kTransposedX).data<T>();
      const T* w = ctx.input(kTransposedW).data<T>();
      const T* bias =
          ctx.has_input(kTransposedBias) ? ctx.input(kTransposedBias).data<T>() : nullptr;
      T* y = ctx.output(0).mutable_data<T>();
      ctx.threads().parallel_for(
          static_cast<uint64_t>(shape.batch * shape.out_channels), 1,
          [&](uint64_t begin, uint64_t end, uint32_t) {
            for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
              const int64_t channel = i % shape.out_channels;
              const SumOf<T> start = bias != nullptr ? to_sum(bias[channel]) : SumOf<T>(0);
              plane(x, w, start, i / shape.out_channels, channel,
                    y + i * shape.window.out_pixels());
            }
          });
    }

    void plane(const T* x, const T* w, SumOf<T> start, int64_t image, int64_t channel, T* y) const {
      const Window& window = shape.window;
      const int64_t columns = shape.out_channels / shape.groups;
      const int64_t depth = shape.in_channels / shape.groups;
      const int64_t first = channel / columns * depth;  // the group's first input channel
      const T* images = x + (image * shape.in_channels + first) * window.in_pixels();
      const T* filter = w + (first * columns + channel % columns) * window.taps();
      for (int64_t pixel = 0; pixel < window.out_pixels(); ++pixel) {
        const std::array<int64_t, 3> o{pixel / (window.out[2] * window.out[1]),
                                       pixel / window.out[2] % window.out[1],
                                       pixel % window.out[2]};
        SumOf<T> sum = start;
        for (int64_t tap = 0; tap < window.taps(); ++tap) {
          const std::array<int64_t, 3> k{tap / (window.kernel[2] * window.kernel[1]),
                                         tap / window.kernel[2] % window.kernel[1],
                                         tap % window.kernel[2]};
          int64_t at = 0;
          bool inside = true;
          for (std::size_t axis = 0; axis < 3; ++axis) {
            const int64_t place =
                o[axis] + window.pad_begin[axis] - k[axis] * window.dilation[axis];
            const int64_t i = place / window.stride[axis];
            inside =
                inside && place >= 0 && place % window.stride[axis] == 0 && i < window.in[axis];
            at = at * window.in[axis] + i;
          }
          if (!inside) continue;
          for (int64_t c = 0; c < depth; ++c) {
            sum += to_sum(images[c * window.in_pixels() + at]) *
                   to_sum(filter[c * columns * window.taps() + tap]);
          }
        }
        y[pixel] = from_sum<T>(sum);
      }
    }
  };

  PlainConvTranspose(const sdk::CreateContext&, const sdk::Node& node)
      : attributes_(node), groups_(node.get_int("group", 1)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kTransposedX);
    Prepared prepared{transposed_shape(attributes_, groups_, ctx)};
    ctx.set_output(0, x.type(), output_dims(prepared.shape, static_cast<std::size_t>(x.rank())));
    ctx.set_variant("plain");
    return prepared;
  }

 private:
  TransposedAttributes attributes_;
  int64_t groups_;
};

template <class T>
sdk::KernelEntry plain_transposed(int since) {
  constexpr sdk::DataType kType = sdk::data_type_of<T>();
  return sdk::op("ConvTranspose")
      .name(std::string("cpu:conv_transpose_") + sdk::type_name(kType))
      .since(since)
      .types("T", {kType})
      .template kernel<PlainConvTranspose<T>>();
}

}  // namespace

sdk::KernelList conv_transpose_kernels() {
  return {sdk::op("ConvTranspose")
              .name("cpu:conv_transpose")
              .types("T", {sdk::DataType::Float})
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<ConvTranspose>(),
          plain_transposed<double>(1), plain_transposed<sdk::Half>(1),
          plain_transposed<sdk::BFloat16>(22)};
}

}  // namespace backplane::cpu
