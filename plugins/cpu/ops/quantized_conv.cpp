// backplane.cpu::QuantizedConv, which a rewrite makes of a Conv between DequantizeLinear and QuantizeLinear:
// inputs x (bytes, [batch, spatial ..., channels], or channels first with x_channels_first), W (as Conv's,
// constant: int8 of zero point 0 or uint8 of zero point 128), scale and shift [output channels] (constant);
// attributes of Conv, x_type, x_zero and those of QuantizedResult.
// y = clamp(round(sum (x - x_zero) * (W - W's zero point) * scale + shift) + zero, least, most).
#include "plugins/cpu/dense/conv_u8.hpp"
#include "plugins/cpu/dense/finish_attributes.hpp"
#include "plugins/cpu/device.hpp"

namespace backplane::cpu {
namespace {

class QuantizedConv {
 public:
  static constexpr std::uint32_t kX = 0, kW = 1, kScale = 2, kShift = 3;

  /// Packs weights for products or for transforms.
  struct Packer {
    const QuantizedConv* kernel;
    bool transformed;

    void pack(const sdk::PackContext& ctx) const { kernel->pack(ctx, transformed); }
  };

  struct Prepared {
    ConvU8 conv;
    FinishU8 finish;
    std::uint8_t zero;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      ConvArgsU8 args;
      args.x = static_cast<const std::uint8_t*>(ctx.input(kX).bytes_data());
      args.zero = zero;
      args.packed = ctx.packed(0).bytes_data();
      args.finish = finish;
      args.y = ctx.output(0).mutable_data<char>();
      conv.run(args, ctx.workspace().mutable_data<char>(), ctx.threads());
    }
  };

  QuantizedConv(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node), groups_(node.get_int("group", 1)), result_(node), isa_(isa_of(ctx)) {
    x_.is_signed = is_signed_input(node, "x");
    x_.channels_first = node.get_int("x_channels_first", 0) != 0;
    x_.zero = static_cast<std::int32_t>(node.get_int("x_zero", 0));
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kX);
    const sdk::Tensor w = ctx.input(kW);
    const ConvShape shape = conv_shape(attributes_, groups_, x.dims(), w.dims(), x_.channels_first);
    const sdk::Dims dims = output_dims(shape, x.dims().size(), false);
    ctx.set_output(0, result_.type, dims);
    const bool transformed = ConvU8::transforms_pay(shape, x_, isa_);
    Prepared prepared{ConvU8(shape, x_, isa_, ctx.threads().count(), transformed), result_.finish,
                      x_.zero_byte()};
    const ConvU8& conv = prepared.conv;
    const std::string key =
        sdk::message("conv u8 ", kernels_key(isa_), " ", conv.variant(), " groups ", groups_,
                     " zero ", x_.zero, " signed ", x_.is_signed, " dims ",
                     sdk::to_string(w.dims()), " ", sdk::type_name(w.type()));
    ctx.request_pack(key, {kW, kScale, kShift}, conv.packed_bytes(),
                     transformed ? &by_transforms_ : &by_products_);
    ctx.set_workspace(conv.workspace_bytes());
    ctx.set_variant(conv.variant());
    const std::int64_t macs =
        sdk::element_count(dims) * (shape.in_channels / shape.groups) * shape.window.taps();
    ctx.set_cost(static_cast<std::uint64_t>(2 * macs), x.bytes() + w.bytes());
    return prepared;
  }

 private:
  void pack(const sdk::PackContext& ctx, bool transformed) const {
    const sdk::Tensor w = ctx.source(0);
    ConvShape shape;
    shape.in_channels = w.dim(1) * groups_;
    shape.out_channels = w.dim(0);
    shape.groups = groups_;
    shape.window = attributes_.covered({w.dims().data() + 2, w.dims().size() - 2});
    const ConvU8 conv(shape, x_, isa_, 1, transformed);
    conv.pack(w, ctx.source(1).data<float>(), ctx.source(2).data<float>(),
              ctx.target().mutable_data<char>(), ctx.threads());
  }

  WindowAttributes attributes_;
  std::int64_t groups_;
  BytesX x_;
  QuantizedResult result_;
  Isa isa_;
  Packer by_products_{this, false};
  Packer by_transforms_{this, true};
};

}  // namespace

sdk::KernelList quantized_conv_kernels() {
  return {
      sdk::op("QuantizedConv", "backplane.cpu").name("cpu:quantized_conv").kernel<QuantizedConv>()};
}

}  // namespace backplane::cpu
