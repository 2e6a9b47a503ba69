// ConvTranspose: https://onnx.ai/onnx/operators/onnx__ConvTranspose.html
// and backplane.cpu::ConvTranspose, its channels-last form that a rewrite makes: inputs x [batch, spatial ...,
// channels], W as ConvTranspose's (constant), bias, none, scale [output channels] (constant, multiplies W);
// attributes of ConvTranspose, activation. y = activation(conv_transpose(x, W * scale) + bias).
#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/conv_transposed.hpp"
#include "plugins/cpu/dense/image_tensor.hpp"
#include "plugins/cpu/dense/plain_product.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr uint32_t kTransposedX = 0, kTransposedW = 1, kTransposedBias = 2, kTransposedScale = 4;

/// Reads and checks the dims of x, W and B.
ConvShape transposed_shape(const TransposedAttributes& attributes, int64_t groups, bool last,
                           const sdk::PrepareContext& ctx) {
  const sdk::DimsView x = ctx.input(kTransposedX).dims();
  const sdk::DimsView w = ctx.input(kTransposedW).dims();
  if (x.size() < 3) sdk::invalid("ConvTranspose: X has rank ", x.size(), ", at least 3 is needed");
  if (w.size() != x.size()) {
    sdk::invalid("ConvTranspose: W has rank ", w.size(), ", X has rank ", x.size());
  }
  const int64_t channels = last ? x.back() : x[1];
  if (groups < 1 || channels != w[0] || channels % groups != 0) {
    sdk::invalid("ConvTranspose: X has ", channels, " channels, W dims ", sdk::to_string(w),
                 " and ", groups,
                 " groups; W's first dimension must be the channels, and the groups divide it");
  }
  const std::size_t spatial = x.size() - 2;
  ConvShape shape;
  shape.window = attributes.resolve({x.data() + (last ? 1 : 2), spatial}, {w.data() + 2, spatial});
  shape.batch = x[0];
  shape.in_channels = channels;
  shape.out_channels = w[1] * groups;
  shape.groups = groups;
  const sdk::Tensor bias = ctx.input(kTransposedBias);
  if (bias.present() && (bias.rank() != 1 || bias.dim(0) != shape.out_channels)) {
    sdk::invalid("ConvTranspose: B has dims ", sdk::to_string(bias.dims()), ", expected [",
                 shape.out_channels, "]");
  }
  return shape;
}

/// float: both forms.
class ConvTranspose {
 public:
  struct Prepared {
    TransposedConv conv;
    ConvShape shape;
    bool last;                           // x and y are channels last
    bool packed;                         // W is packed already
    uint64_t x_bytes, y_bytes, w_bytes;  // parts of the workspace; the method's own part follows
    Isa isa;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor x = ctx.input(kTransposedX);
      const sdk::Tensor y = ctx.output(0);
      if (y.size() == 0) return;
      const sdk::Threads threads = ctx.threads();
      char* workspace = ctx.workspace().mutable_data<char>();
      const Window& window = shape.window;
      ConvArgs args;
      args.bias =
          ctx.has_input(kTransposedBias) ? ctx.input(kTransposedBias).data<float>() : nullptr;
      if (last) {
        args.x = x.data<float>();
        args.x_strides = image_strides(x);
        args.y = y.mutable_data<float>();
        args.y_strides = image_strides(y);
      } else {
        auto* copy = reinterpret_cast<float*>(workspace);
        transpose_planes(isa, x.data<float>(), copy, shape.batch, shape.in_channels,
                         window.in_pixels(), 4, threads);
        args.x = copy;
        args.x_strides = ImageStrides::dense(window.in, shape.in_channels);
        args.y = reinterpret_cast<float*>(workspace + x_bytes);
        args.y_strides = ImageStrides::dense(window.out, shape.out_channels);
      }
      if (packed) {
        args.packed = ctx.packed(0).data<float>();
      } else {
        auto* own = reinterpret_cast<float*>(workspace + x_bytes + y_bytes);
        const float* scales =
            ctx.has_input(kTransposedScale) ? ctx.input(kTransposedScale).data<float>() : nullptr;
        conv.pack(ctx.input(kTransposedW).data<float>(), scales, own, own + conv.packed_floats(),
                  threads);
        args.packed = own;
      }
      conv.run(args, workspace + x_bytes + y_bytes + w_bytes, threads);
      if (!last) {
        transpose_planes(isa, args.y, y.mutable_data<float>(), shape.batch, window.out_pixels(),
                         shape.out_channels, 4, threads);
      }
    }
  };

  ConvTranspose(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node),
        groups_(node.get_int("group", 1)),
        last_(node.domain() != ""),
        activation_(read_activation(node)),
        rounds_(products_of(ctx) == ProductPrecision::kBFloat),
        isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kTransposedX);
    const ConvShape shape = transposed_shape(attributes_, groups_, last_, ctx);
    const sdk::Tensor scale = ctx.input(kTransposedScale);
    const bool constant = ctx.input_constant(kTransposedW) &&
                          (!scale.present() || ctx.input_constant(kTransposedScale));
    const bool rounds = constant && rounds_of(shape);
    const sdk::Dims dims = output_dims(shape, static_cast<std::size_t>(x.rank()), !last_);
    ctx.set_output(0, sdk::DataType::Float, dims);
    Prepared prepared{TransposedConv(shape, activation_, rounds, isa_, ctx.threads().count()),
                      shape,
                      last_,
                      false,
                      0,
                      0,
                      0,
                      isa_};
    const TransposedConv& conv = prepared.conv;
    prepared.packed = constant;
    if (constant) request_weights(ctx, conv, rounds);
    if (!last_) {
      prepared.x_bytes = align64(static_cast<uint64_t>(x.size()) * 4);
      prepared.y_bytes = align64(static_cast<uint64_t>(sdk::element_count(dims)) * 4);
    }
    if (!prepared.packed)
      prepared.w_bytes =
          align64(static_cast<uint64_t>(conv.packed_floats() + conv.pack_floats()) * 4);
    ctx.set_workspace(prepared.x_bytes + prepared.y_bytes + prepared.w_bytes +
                      conv.workspace_bytes());
    if (last_) {
      ctx.allow_strided_input(kTransposedX);
      ctx.allow_strided_output(0);
    }
    ctx.set_variant(rounds ? "rounded to bfloat16" : prepared.packed ? "packed" : "packing");
    const int64_t macs = x.size() * shape.out_channels / shape.groups * shape.window.taps();
    ctx.set_cost(2 * static_cast<uint64_t>(macs), x.bytes() + ctx.input(kTransposedW).bytes());
    return prepared;
  }

  /// Packs a constant W.
  void pack(const sdk::PackContext& ctx) const {
    const float* scales = ctx.source_count() > 1 ? ctx.source(1).data<float>() : nullptr;
    const ConvShape shape = packed_shape(ctx.source(0).dims());
    const TransposedConv conv(shape, Activation{}, rounds_of(shape), isa_, 1);
    std::vector<float> beside(static_cast<std::size_t>(conv.pack_floats()));
    conv.pack(ctx.source(0).data<float>(), scales, ctx.target().mutable_data<float>(),
              beside.data(), ctx.threads());
  }

 private:
  /// Of constant weights.
  bool rounds_of(const ConvShape& shape) const { return rounds_ && PairImage::applies(shape); }

  void request_weights(sdk::PrepareContext& ctx, const TransposedConv& conv, bool rounds) const {
    const sdk::Tensor scale = ctx.input(kTransposedScale);
    const std::string key =
        sdk::message("conv transposed ", rounds ? "bf16" : "f32", " isa ", static_cast<int>(isa_),
                     " groups ", groups_, " dims ", sdk::to_string(ctx.input(kTransposedW).dims()),
                     " strides ", sdk::to_string(attributes_.strides), " dilations ",
                     sdk::to_string(attributes_.dilations), " scaled ", scale.present());
    const auto bytes = static_cast<uint64_t>(conv.packed_floats()) * 4;
    if (scale.present()) {
      ctx.request_pack(key, {kTransposedW, kTransposedScale}, bytes, this);
    } else {
      ctx.request_pack(key, {kTransposedW}, bytes, this);
    }
    ctx.ignore_input(kTransposedW);
  }

  /// The images' extents do not matter for packing, nor do the attributes that say where they end.
  ConvShape packed_shape(sdk::DimsView w) const {
    const std::size_t spatial = w.size() - 2;
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
    return shape;
  }

  TransposedAttributes attributes_;
  int64_t groups_;
  bool last_;
  Activation activation_;
  bool rounds_;
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
    Prepared prepared{transposed_shape(attributes_, groups_, false, ctx)};
    ctx.set_output(0, x.type(),
                   output_dims(prepared.shape, static_cast<std::size_t>(x.rank()), true));
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
              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})
              .kernel<ConvTranspose>(),
          sdk::op("ConvTranspose", "backplane.cpu")
              .name("cpu:conv_transpose_last")
              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})
              .kernel<ConvTranspose>(),
          plain_transposed<double>(1), plain_transposed<sdk::Half>(1),
          plain_transposed<sdk::BFloat16>(22)};
}

}  // namespace backplane::cpu
