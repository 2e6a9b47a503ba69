// Conv: https://onnx.ai/onnx/operators/onnx__Conv.html
// and backplane.cpu::Conv, its channels-last form that a rewrite makes: inputs x [batch, spatial ...,
// channels], W as Conv's (constant), bias, residual (as y), scale [output channels] (constant, multiplies
// W); attributes of Conv, x_channels_first, y_channels_first (of the residual, too), activation.
// y = activation(conv(x, W * scale) + bias + residual).
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/conv_f32.hpp"
#include "plugins/cpu/dense/image_tensor.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr uint32_t kX = 0, kW = 1, kBias = 2, kResidual = 3, kScale = 4;

void check_vector(const char* what, const sdk::Tensor& tensor, int64_t count) {
  if (tensor.present() && (tensor.rank() != 1 || tensor.dim(0) != count)) {
    sdk::invalid("Conv: ", what, " has dims ", sdk::to_string(tensor.dims()), ", expected [", count,
                 "]");
  }
}

/// float: both forms.
class ConvKernel {
 public:
  struct Prepared {
    ConvShape shape;
    ConvF32 conv;
    bool x_first;  // x comes channels first
    bool y_first;  // y goes channels first, and the residual comes so
    bool packed;   // W is packed already
    uint64_t x_bytes, residual_bytes, y_bytes,
        w_bytes;  // parts of the workspace; the method's own part follows
    Isa isa;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor x = ctx.input(kX);
      const sdk::Tensor y = ctx.output(0);
      if (y.size() == 0) return;
      const sdk::Threads threads = ctx.threads();
      char* workspace = ctx.workspace().mutable_data<char>();
      const Window& window = shape.window;
      ConvArgs args;
      args.x = x.data<float>();
      args.x_channels_first = x_first;
      if (!x_first) {
        args.x_strides = image_strides(x);
      } else if (!conv.takes_channels_first()) {
        args.x_channels_first = false;
        args.x_strides = ImageStrides::dense(window.in, shape.in_channels);
        if (x_bytes > 0) {
          auto* copy = reinterpret_cast<float*>(workspace);
          transpose_planes(isa, args.x, copy, shape.batch, shape.in_channels, window.in_pixels(), 4,
                           threads);
          args.x = copy;
        }
      }
      args.bias = ctx.has_input(kBias) ? ctx.input(kBias).data<float>() : nullptr;
      args.residual = ctx.has_input(kResidual) ? ctx.input(kResidual).data<float>() : nullptr;
      workspace += x_bytes;
      if (residual_bytes > 0) {
        auto* copy = reinterpret_cast<float*>(workspace);
        transpose_planes(isa, args.residual, copy, shape.batch, shape.out_channels,
                         window.out_pixels(), 4, threads);
        args.residual = copy;
      }
      workspace += residual_bytes;
      auto* y_copy = reinterpret_cast<float*>(workspace);
      workspace += y_bytes;
      args.y = y_bytes > 0 ? y_copy : y.mutable_data<float>();
      args.y_strides =
          y_first ? ImageStrides::dense(window.out, shape.out_channels) : image_strides(y);
      if (packed) {
        args.packed = ctx.packed(0).data<float>();
      } else {
        auto* weights = reinterpret_cast<float*>(workspace);
        const float* scales = ctx.has_input(kScale) ? ctx.input(kScale).data<float>() : nullptr;
        conv.pack(ctx.input(kW).data<float>(), scales, weights, threads);
        args.packed = weights;
      }
      conv.run(args, workspace + w_bytes, threads);
      if (y_bytes > 0) {
        transpose_planes(isa, y_copy, y.mutable_data<float>(), shape.batch, window.out_pixels(),
                         shape.out_channels, 4, threads);
      }
    }
  };

  ConvKernel(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node),
        groups_(node.get_int("group", 1)),
        last_(node.domain() != ""),
        x_first_(!last_ || node.get_int("x_channels_first", 0) != 0),
        y_first_(!last_ || node.get_int("y_channels_first", 0) != 0),
        activation_(read_activation(node)),
        rounds_(products_of(ctx) == ProductPrecision::kBFloat),
        isa_(isa_of(ctx)) {
    const sdk::ValueInfo w = node.input(kW);
    if (w && w.is_static() && w.rank() >= 3) w_dims_.assign(w.dims().begin(), w.dims().end());
    for (std::size_t i = 0; i < packers_.size(); ++i)
      packers_[i] = {this, static_cast<ConvMethod>(i)};
  }
  ConvKernel(const ConvKernel&) = delete;
  ConvKernel& operator=(const ConvKernel&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kX);
    const ConvShape shape =
        conv_shape(attributes_, groups_, x.dims(), ctx.input(kW).dims(), x_first_);
    const sdk::Dims dims = output_dims(shape, x.dims().size(), y_first_);
    check_vector("B", ctx.input(kBias), shape.out_channels);
    check_vector("scale", ctx.input(kScale), shape.out_channels);
    const bool residual = ctx.input(kResidual).present();
    if (residual && sdk::to_string(ctx.input(kResidual).dims()) != sdk::to_string(dims)) {
      sdk::invalid("Conv: the residual has dims ", sdk::to_string(ctx.input(kResidual).dims()),
                   ", the result ", sdk::to_string(dims));
    }
    ctx.set_output(0, sdk::DataType::Float, dims);
    const unsigned threads = ctx.threads().count();
    const ConvMethod method = choose_conv_method(shape, x_first_ && y_first_,
                                                 rounds_ && ctx.input_constant(kW), isa_, threads);
    Prepared prepared{shape,    ConvF32(shape, activation_, method, isa_, threads),
                      x_first_, y_first_,
                      false,    0,
                      0,        0,
                      0,        isa_};
    const ConvF32& conv = prepared.conv;
    // A single channel lies as it does in the other order.
    if (x_first_ && !conv.takes_channels_first() && shape.in_channels > 1)
      prepared.x_bytes = align64(static_cast<uint64_t>(x.size()) * 4);
    if (y_first_ && !conv.has_planes() && shape.out_channels > 1) {
      prepared.y_bytes = align64(static_cast<uint64_t>(sdk::element_count(dims)) * 4);
      if (residual) prepared.residual_bytes = prepared.y_bytes;
    }
    prepared.packed = request_weights(ctx, conv, method);
    if (!prepared.packed)
      prepared.w_bytes = align64(static_cast<uint64_t>(conv.packed_floats()) * 4);
    ctx.set_workspace(prepared.x_bytes + prepared.residual_bytes + prepared.y_bytes +
                      prepared.w_bytes + conv.workspace_bytes());
    if (!x_first_) ctx.allow_strided_input(kX);
    if (!y_first_) ctx.allow_strided_output(0);
    if (residual && prepared.y_bytes == 0 && conv.takes_residual_in_place())
      ctx.allow_in_place(0, kResidual);
    ctx.set_variant(conv.variant());
    const auto macs = static_cast<uint64_t>(
        sdk::element_count(dims) * (shape.in_channels / shape.groups) * shape.window.taps());
    ctx.set_cost(2 * macs, x.bytes() + ctx.input(kW).bytes());
    return prepared;
  }

 private:
  /// Packs the weights in the form of one method.
  struct Packer {
    const ConvKernel* kernel = nullptr;
    ConvMethod method = ConvMethod::kDirect;

    void pack(const sdk::PackContext& ctx) const {
      const float* scales = ctx.source_count() > 1 ? ctx.source(1).data<float>() : nullptr;
      const sdk::Dims& dims = kernel->w_dims_;
      ConvShape shape;
      shape.in_channels = dims[1] * kernel->groups_;
      shape.out_channels = dims[0];
      shape.groups = kernel->groups_;
      shape.window = kernel->attributes_.covered({dims.data() + 2, dims.size() - 2});
      const ConvF32 conv(shape, Activation{}, method, kernel->isa_, 1);
      conv.pack(ctx.source(0).data<float>(), scales, ctx.target().mutable_data<float>(),
                ctx.threads());
    }
  };

  bool request_weights(sdk::PrepareContext& ctx, const ConvF32& conv, ConvMethod method) const {
    const bool scaled = ctx.input(kScale).present();
    if (w_dims_.empty() || !ctx.input_constant(kW) || (scaled && !ctx.input_constant(kScale)))
      return false;
    const std::string key =
        sdk::message("conv f32 method ", static_cast<int>(method), " isa ", static_cast<int>(isa_),
                     " groups ", groups_, " dims ", sdk::to_string(w_dims_), " scaled ", scaled);
    const Packer* packer = &packers_[static_cast<std::size_t>(method)];
    const auto bytes = static_cast<uint64_t>(conv.packed_floats()) * 4;
    if (scaled) {
      ctx.request_pack(key, {kW, kScale}, bytes, packer);
    } else {
      ctx.request_pack(key, {kW}, bytes, packer);
    }
    ctx.ignore_input(kW);
    return true;
  }

  WindowAttributes attributes_;
  int64_t groups_;
  bool last_;
  bool x_first_;
  bool y_first_;
  Activation activation_;
  bool rounds_;
  Isa isa_;
  sdk::Dims w_dims_;  // empty unless known
  std::array<Packer, kConvMethods> packers_;
};

/// Other element types: plain loops, sums in double for double and in float for the 16-bit types.
template <class T>
class PlainConv {
 public:
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

  struct Prepared {
    ConvShape shape;

    void compute(const sdk::ComputeContext& ctx) const {
      const T* x = ctx.input(kX).data<T>();
      const T* w = ctx.input(kW).data<T>();
      const T* bias = ctx.has_input(kBias) ? ctx.input(kBias).data<T>() : nullptr;
      T* y = ctx.output(0).mutable_data<T>();
      const int64_t planes = shape.batch * shape.out_channels;
      ctx.threads().parallel_for(
          static_cast<uint64_t>(planes), 1, [&](uint64_t begin, uint64_t end, uint32_t) {
            for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
              const int64_t channel = i % shape.out_channels;
              const Sum start = bias != nullptr ? load(bias[channel]) : Sum(0);
              plane(x, w, start, i / shape.out_channels, channel,
                    y + i * shape.window.out_pixels());
            }
          });
    }

    static Sum load(T value) {
      if constexpr (common::kIsHalfType<T>) {
        return common::to_float(value);
      } else {
        return value;
      }
    }

    static void store(Sum value, T& to) {
      if constexpr (std::is_same_v<T, sdk::Half>) {
        to = common::to_half(value);
      } else if constexpr (std::is_same_v<T, sdk::BFloat16>) {
        to = common::to_bfloat16(value);
      } else {
        to = value;
      }
    }

    void plane(const T* x, const T* w, Sum start, int64_t image, int64_t channel, T* y) const {
      const Window& window = shape.window;
      const int64_t depth = shape.in_channels / shape.groups;
      const int64_t group = channel / (shape.out_channels / shape.groups);
      const T* images = x + (image * shape.in_channels + group * depth) * window.in_pixels();
      const T* filter = w + channel * depth * window.taps();
      for (int64_t pixel = 0; pixel < window.out_pixels(); ++pixel) {
        const int64_t ox = pixel % window.out[2];
        const int64_t oy = pixel / window.out[2] % window.out[1];
        const int64_t oz = pixel / (window.out[2] * window.out[1]);
        Sum sum = start;
        for (int64_t tap = 0; tap < window.taps(); ++tap) {
          const int64_t kx = tap % window.kernel[2];
          const int64_t ky = tap / window.kernel[2] % window.kernel[1];
          const int64_t kz = tap / (window.kernel[2] * window.kernel[1]);
          const int64_t px = ox * window.stride[2] + kx * window.dilation[2] - window.pad_begin[2];
          const int64_t py = oy * window.stride[1] + ky * window.dilation[1] - window.pad_begin[1];
          const int64_t pz = oz * window.stride[0] + kz * window.dilation[0] - window.pad_begin[0];
          if (px < 0 || px >= window.in[2] || py < 0 || py >= window.in[1] || pz < 0 ||
              pz >= window.in[0])
            continue;
          const T* from = images + (pz * window.in[1] + py) * window.in[2] + px;
          for (int64_t c = 0; c < depth; ++c) {
            sum += load(from[c * window.in_pixels()]) * load(filter[c * window.taps() + tap]);
          }
        }
        store(sum, y[pixel]);
      }
    }
  };

  PlainConv(const sdk::CreateContext&, const sdk::Node& node)
      : attributes_(node), groups_(node.get_int("group", 1)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kX);
    Prepared prepared{conv_shape(attributes_, groups_, x.dims(), ctx.input(kW).dims(), true)};
    check_vector("B", ctx.input(kBias), prepared.shape.out_channels);
    const sdk::Dims dims = output_dims(prepared.shape, x.dims().size(), true);
    ctx.set_output(0, x.type(), dims);
    ctx.set_variant("plain");
    return prepared;
  }

 private:
  WindowAttributes attributes_;
  int64_t groups_;
};

}  // namespace

sdk::KernelList conv_kernels() {
  using sdk::DataType;
  return {
      sdk::op("Conv")
          .name("cpu:conv")
          .types("T", {DataType::Float})
          .flags(BP_KERNEL_WIDENS_HALF)
          .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})
          .kernel<ConvKernel>(),
      sdk::op("Conv")
          .name("cpu:conv_f64")
          .types("T", {DataType::Double})
          .kernel<PlainConv<double>>(),
      sdk::op("Conv")
          .name("cpu:conv_f16")
          .types("T", {DataType::Float16})
          .kernel<PlainConv<sdk::Half>>(),
      sdk::op("Conv")
          .name("cpu:conv_bf16")
          .since(22)
          .types("T", {DataType::BFloat16})
          .kernel<PlainConv<sdk::BFloat16>>(),
      sdk::op("Conv", "backplane.cpu")
          .name("cpu:conv_last")
          .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})
          .kernel<ConvKernel>(),
  };
}

}  // namespace backplane::cpu
