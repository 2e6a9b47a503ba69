// com.microsoft::DynamicQuantizeLSTM: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// Constant weights stay bytes. X is rounded to bytes by one range, the states of each step by one of their own; sums are exact,
// and all else is the LSTM of floats. Weights that are fed are the operator's body.
#include "plugins/cpu/dense/recurrent_node.hpp"
#include "plugins/cpu/device.hpp"

namespace backplane::cpu {
namespace {

class DynamicQuantizeLstm : RecurrentInput {
 public:
  struct Prepared {
    Recurrent<float, std::uint8_t> layer;
    bool is_empty;  // no sequences, of any number of steps

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.has_input(kLengths)) check_lengths(ctx.input(kLengths), layer.steps());
      if (is_empty) return;
      const auto input = [&](std::uint32_t index) {
        return ctx.has_input(index) ? ctx.input(index).data<float>() : nullptr;
      };
      const auto output = [&](std::uint32_t index) {
        return ctx.has_output(index) ? ctx.output(index).mutable_data<float>() : nullptr;
      };
      RecurrentArgs<float> args = recurrent_args<float>(ctx, Cell::kLstm, input, output);
      args.w_packed = ctx.packed(0).data<float>();
      args.r_packed = ctx.packed(1).data<float>();
      layer.run(args, ctx.workspace().mutable_data<char>(), ctx.threads());
    }
  };

  DynamicQuantizeLstm(const sdk::CreateContext& ctx, const sdk::Node& node)
      : shape_(recurrent_shape(node, Cell::kLstm)), isa_(isa_of(ctx)), w_{this, kW}, r_{this, kR} {
    for (const std::uint32_t input : {kW, kWScale, kWZero, kR, kRScale, kRZero}) {
      const sdk::ValueInfo value = node.input(input);
      if (!value || !value.is_constant())
        sdk::unsupported("DynamicQuantizeLSTM: input ", input, " is no constant");
      if (sdk::element_count(value.dims()) == 0)
        sdk::unsupported("DynamicQuantizeLSTM: input ", input, " has no elements");
    }
  }
  DynamicQuantizeLstm(const DynamicQuantizeLstm&) = delete;
  DynamicQuantizeLstm& operator=(const DynamicQuantizeLstm&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor r = ctx.input(kR);
    if (r.rank() != 3) sdk::invalid("R has rank ", r.rank(), ", expected 3");
    RecurrentShape shape = shape_;
    set_recurrent_dims(ctx, r.dim(1), shape);
    const std::int64_t columns = shape.gates() * shape.hidden;
    check_recurrent_dims(ctx, kW, "W", {shape.directions, shape.input, columns});
    check_recurrent_dims(ctx, kR, "R", {shape.directions, shape.hidden, columns});
    check_parameter(ctx, kWScale, "W_scale", shape);
    check_parameter(ctx, kWZero, "W_zero_point", shape);
    check_parameter(ctx, kRScale, "R_scale", shape);
    check_parameter(ctx, kRZero, "R_zero_point", shape);
    Prepared p{{shape, isa_, ctx.threads().count()}, shape.batch == 0};
    request(ctx, w_, kWScale, kWZero, p.layer.w_size());
    request(ctx, r_, kRScale, kRZero, p.layer.r_size());
    if (!p.is_empty) ctx.set_workspace(p.layer.workspace_bytes());
    ctx.set_cost(shape.operations(), r.bytes());
    return p;
  }

 private:
  static constexpr std::uint32_t kWScale = 8, kWZero = 9, kRScale = 10, kRZero = 11;

  /// W or R: [directions, depth, columns], of scales and zero points [directions] or [directions, columns].
  struct Packer {
    const DynamicQuantizeLstm* kernel;
    std::uint32_t input;

    void pack(const sdk::PackContext& ctx) const {
      const sdk::Tensor source = ctx.source(0);
      const std::int64_t directions = source.dim(0);
      RecurrentShape shape = kernel->shape_;
      shape.input = source.dim(1);
      shape.hidden = source.dim(2) / shape.gates();
      ByteLines lines;
      lines.data = Bytes(source);
      lines.scales = ctx.source(1).data<float>();
      lines.scale_count = ctx.source(1).size() / directions;
      lines.zeros = Bytes(ctx.source(2));
      lines.zero_count = ctx.source(2).size() / directions;
      const Recurrent<float, std::uint8_t> layer(shape, kernel->isa_, 1);
      auto* to = ctx.target().mutable_data<float>();
      if (input == kW) {
        layer.pack_w(lines, to, ctx.threads());
      } else {
        layer.pack_r(lines, to, ctx.threads());
      }
    }
  };

  static void check_parameter(const sdk::PrepareContext& ctx, std::uint32_t index, const char* name,
                              const RecurrentShape& shape) {
    const std::int64_t columns = shape.gates() * shape.hidden;
    if (ctx.input(index).rank() == 1) {
      check_recurrent_dims(ctx, index, name, {shape.directions});
    } else {
      check_recurrent_dims(ctx, index, name, {shape.directions, columns});
    }
  }

  void request(sdk::PrepareContext& ctx, const Packer& packer, std::uint32_t scale,
               std::uint32_t zero, std::int64_t size) const {
    const std::uint32_t input = packer.input;
    const auto words = [&](std::uint32_t index) {
      return sdk::message(sdk::type_name(ctx.input(index).type()), " ",
                          sdk::to_string(ctx.input(index).dims()));
    };
    const std::string key =
        sdk::message("lines of bytes ", kernels_key(isa_), " input ", input, " ", words(input),
                     " scales ", words(scale), " zeros ", words(zero));
    ctx.request_pack(key, {input, scale, zero}, static_cast<std::uint64_t>(size) * sizeof(float),
                     &packer);
    for (const std::uint32_t one : {input, scale, zero}) ctx.ignore_input(one);
  }

  RecurrentShape shape_;
  Isa isa_;
  Packer w_, r_;
};

}  // namespace

sdk::KernelList dynamic_quantize_lstm_kernels() {
  return {sdk::op("DynamicQuantizeLSTM", "com.microsoft")
              .name("cpu:dynamic_quantize_lstm")
              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_WEIGHT, BP_INPUT_DATA, BP_INPUT_DATA,
                      BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_WEIGHT,
                      BP_INPUT_WEIGHT, BP_INPUT_WEIGHT})
              .kernel<DynamicQuantizeLstm>()};
}

}  // namespace backplane::cpu
