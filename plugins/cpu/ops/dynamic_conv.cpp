// backplane.cpu::DynamicConv, which a rewrite makes of a ConvInteger of one group: inputs x (uint8 or int8, [batch,
// spatial ..., channels], or channels first with x_channels_first), W (constant bytes, as ConvInteger's), and those that
// may be left out: x_scale (one float), w_scale (floats, one or one for each output channel), x_zero (as x, one), w_zero
// (constant, as W, one or one for each output channel), bias (float) and addend (int32), as many elements as output
// channels, residual (as y); attributes of Conv, floats, and those of an activation.
// sums = sum (x - x_zero) * (W - w_zero) + addend; y, channels last, are the sums, or where `floats` is set
// y = activation(float(sums) * (x_scale * w_scale) + bias + residual).
#include "plugins/cpu/dense/dynamic_conv.hpp"

#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/device.hpp"

namespace backplane::cpu {
namespace {

class DynamicConvNode {
 public:
  static constexpr std::uint32_t kX = 0, kW = 1, kXScale = 2, kWScale = 3, kXZero = 4, kWZero = 5,
                                 kBias = 6, kResidual = 7, kAddend = 8;

  struct Prepared {
    DynamicConv conv;
    Activation activation;
    std::int64_t channels;
    bool floats;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      DynamicConvArgs args;
      args.x = static_cast<const std::uint8_t*>(ctx.input(kX).bytes_data());
      if (ctx.has_input(kXZero)) args.x_zero = Bytes(ctx.input(kXZero)).at(0);
      args.packed = ctx.packed(0).bytes_data();
      if (ctx.has_input(kAddend)) args.addend = ctx.input(kAddend).data<std::int32_t>();
      if (floats) set_floats(ctx, args.finish);
      args.y = ctx.output(0).mutable_data<char>();
      conv.run(args, ctx.workspace().mutable_data<char>(), ctx.threads());
    }

    void set_floats(const sdk::ComputeContext& ctx, FinishSums& finish) const {
      static constexpr float kOne = 1;
      finish.floats = true;
      SumsToFloats& to = finish.to_floats;
      if (ctx.has_input(kXScale)) to.factor = *ctx.input(kXScale).data<float>();
      to.scale = ctx.has_input(kWScale) ? ctx.input(kWScale).data<float>() : &kOne;
      to.scale_step = ctx.has_input(kWScale) && ctx.input(kWScale).size() > 1 ? 1 : 0;
      if (ctx.has_input(kBias)) to.bias = ctx.input(kBias).data<float>();
      if (ctx.has_input(kResidual)) to.residual = ctx.input(kResidual).data<float>();
      to.residual_stride = channels;
      to.activation = activation;
    }
  };

  DynamicConvNode(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node),
        channels_first_(node.get_int("x_channels_first", 0) != 0),
        floats_(node.get_int("floats", 0) != 0),
        activation_(read_activation(node)),
        isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kX);
    const sdk::Tensor w = ctx.input(kW);
    const ConvShape shape = conv_shape(attributes_, 1, x.dims(), w.dims(), channels_first_);
    const sdk::Dims dims = output_dims(shape, x.dims().size(), false);
    check_shapes(ctx, shape.out_channels, dims);
    ctx.set_output(0, floats_ ? sdk::DataType::Float : sdk::DataType::Int32, dims);
    Prepared prepared{DynamicConv(shape, x.type() == sdk::DataType::Int8, channels_first_, isa_,
                                  ctx.threads().count()),
                      activation_, shape.out_channels, floats_};
    const DynamicConv& conv = prepared.conv;
    const bool has_zero = ctx.input(kWZero).present();
    const std::string key =
        sdk::message("dynamic conv ", kernels_key(isa_), " ", conv.variant(), " dims ",
                     sdk::to_string(w.dims()), " ", sdk::type_name(w.type()), " zeros ", has_zero);
    if (has_zero) {
      ctx.request_pack(key, {kW, kWZero}, conv.packed_bytes(), this);
    } else {
      ctx.request_pack(key, {kW}, conv.packed_bytes(), this);
    }
    ctx.set_workspace(conv.workspace_bytes());
    // Not in place of the residual: sums stand in y before it is added.
    ctx.set_variant(conv.variant());
    const std::int64_t macs = sdk::element_count(dims) * shape.in_channels * shape.window.taps();
    ctx.set_cost(static_cast<std::uint64_t>(2 * macs), x.bytes() + w.bytes());
    return prepared;
  }

  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor w = ctx.source(0);
    ConvShape shape;
    shape.in_channels = w.dim(1);
    shape.out_channels = w.dim(0);
    shape.window = attributes_.covered({w.dims().data() + 2, w.dims().size() - 2});
    const DynamicConv conv(shape, false, channels_first_, isa_, 1);
    const auto pack = [&](const sdk::Tensor* zeros) {
      conv.pack(w, zeros, ctx.target().mutable_data<char>(), ctx.threads());
    };
    if (ctx.source_count() == 1) return pack(nullptr);
    const sdk::Tensor zeros = ctx.source(1);
    pack(&zeros);
  }

 private:
  static void check_shapes(const sdk::PrepareContext& ctx, std::int64_t channels,
                           const sdk::Dims& out) {
    const auto check = [&](const char* what, std::uint32_t input, bool single, bool by_channel) {
      const sdk::Tensor tensor = ctx.input(input);
      if (!tensor.present() || (single && tensor.size() == 1) ||
          (by_channel && tensor.size() == channels))
        return;
      sdk::invalid(what, " has dims ", sdk::to_string(tensor.dims()), ", for ", channels,
                   " output channels");
    };
    check("x's scale", kXScale, true, false);
    check("w's scale", kWScale, true, true);
    check("x's zero point", kXZero, true, false);
    check("w's zero point", kWZero, true, true);
    check("the bias", kBias, false, true);
    check("what is added to the sums", kAddend, false, true);
    const sdk::Tensor residual = ctx.input(kResidual);
    if (residual.present() && sdk::to_string(residual.dims()) != sdk::to_string(out)) {
      sdk::invalid("the residual has dims ", sdk::to_string(residual.dims()), ", the result ",
                   sdk::to_string(out));
    }
  }

  WindowAttributes attributes_;
  bool channels_first_;
  bool floats_;
  Activation activation_;
  Isa isa_;
};

}  // namespace

sdk::KernelList dynamic_conv_kernels() {
  return {
      sdk::op("DynamicConv", "backplane.cpu").name("cpu:dynamic_conv").kernel<DynamicConvNode>()};
}

}  // namespace backplane::cpu
