// Add, Sub, Mul, Div, Mod, PRelu: https://onnx.ai/onnx/operators/onnx__Add.html and the pages beside it.
#include <string>
#include <string_view>

#include "backplane/plugin.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/binary_plan.hpp"

namespace backplane::cpu {
namespace {

/// Before opset 7 a slope of PRelu that is not one number belongs to axis 1.
sdk::Dims legacy_slope_dims(sdk::DimsView x, sdk::DimsView slope) {
  sdk::Dims dims(slope.begin(), slope.end());
  if (sdk::element_count(slope) != 1 && slope.size() == 1 && x.size() > 2) {
    dims.insert(dims.end(), x.size() - 2, 1);
  }
  return dims;
}

/// Says which inputs the output may be written over: those of its shape and type.
void allow_in_place(sdk::PrepareContext& ctx, sdk::DataType type, const sdk::Dims& out,
                    std::uint32_t input_count) {
  for (std::uint32_t k = 0; k < input_count; ++k) {
    const sdk::DimsView dims = ctx.input(k).dims();
    if (ctx.input(k).type() == type && sdk::Dims(dims.begin(), dims.end()) == out) {
      ctx.allow_in_place(0, k);
    }
  }
}

/// y = a op b with broadcasting.
class BinaryMath {
 public:
  struct Prepared {
    BroadcastRows rows;
    void compute(const sdk::ComputeContext& ctx) const {
      rows.run(ctx.input(0).bytes_data(), ctx.input(1).bytes_data(),
               ctx.output(0).mutable_data<char>(), ctx.threads());
    }
  };

  BinaryMath(const sdk::CreateContext& ctx, const sdk::Node& node)
      : op_(op_of(node)),
        isa_(isa_of(ctx)),
        legacy_(node),
        legacy_node_(node.since_version() < 7) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(0);
    const sdk::Tensor b = ctx.input(1);
    const bool slope = op_ == BinaryOp::kPRelu;
    const sdk::Dims second = slope ? (legacy_node_ ? legacy_slope_dims(a.dims(), b.dims())
                                                   : sdk::Dims(b.dims().begin(), b.dims().end()))
                                   : legacy_.second_dims(a.dims(), b.dims());
    const sdk::Dims out = common::broadcast_dims({a.dims(), second});
    if (slope && !common::broadcasts_to(second, a.dims())) {
      sdk::invalid("the slope's shape ", to_string(b.dims()), " does not broadcast to ",
                   to_string(a.dims()));
    }
    ctx.set_output(0, a.type(), out);
    allow_in_place(ctx, a.type(), out, 2);
    return {plan_binary(op_, a.type(), isa_, a.dims(), second, out)};
  }

 private:
  static BinaryOp op_of(const sdk::Node& node) {
    const std::string_view op = node.op_type();
    if (op == "Add") return BinaryOp::kAdd;
    if (op == "Sub") return BinaryOp::kSub;
    if (op == "Mul") return BinaryOp::kMul;
    if (op == "Div") return BinaryOp::kDiv;
    if (op == "PRelu") return BinaryOp::kPRelu;
    return node.get_int("fmod", 0) != 0 ? BinaryOp::kFMod : BinaryOp::kMod;
  }

  BinaryOp op_;
  Isa isa_;
  LegacyBroadcast legacy_;
  bool legacy_node_;
};

/// Max, Min, Sum, Mean of any number of inputs: the first two into the output, then one after the other.
class VariadicMath {
 public:
  struct Prepared {
    std::vector<BroadcastRows> steps;
    BroadcastRows scale;  // Mean
    std::int64_t scale_value[1] = {0};
    std::uint64_t copy_bytes = 0;  // one input alone
    bool scaled = false;

    void compute(const sdk::ComputeContext& ctx) const {
      char* y = ctx.output(0).mutable_data<char>();
      const char* first = ctx.input(0).data<char>();
      if (steps.empty()) {
        if (y != first && copy_bytes > 0) std::memcpy(y, first, copy_bytes);
        return;
      }
      for (std::size_t k = 0; k < steps.size(); ++k) {
        const auto input = static_cast<std::uint32_t>(k + 1);
        steps[k].run(k == 0 ? first : y, ctx.input(input).bytes_data(), y, ctx.threads());
      }
      if (scaled) scale.run(y, scale_value, y, ctx.threads());
    }
  };

  VariadicMath(const sdk::CreateContext& ctx, const sdk::Node& node)
      : op_(op_of(node.op_type())), isa_(isa_of(ctx)), mean_(node.is("Mean")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const std::uint32_t count = ctx.input_count();
    const sdk::DataType type = ctx.input(0).type();
    std::vector<sdk::DimsView> shapes;
    for (std::uint32_t k = 0; k < count; ++k) shapes.push_back(ctx.input(k).dims());
    const sdk::Dims out = common::broadcast_dims(shapes);
    ctx.set_output(0, type, out);
    // The first step writes the output while later inputs are still to be read.
    allow_in_place(ctx, type, out, std::min<std::uint32_t>(count, 2));
    Prepared prepared;
    if (count == 1) prepared.copy_bytes = byte_count(type, out);
    for (std::uint32_t k = 1; k < count; ++k) {
      const sdk::DimsView so_far = k == 1 ? shapes[0] : sdk::DimsView(out);
      prepared.steps.push_back(plan_binary(op_, type, isa_, so_far, shapes[k], out));
    }
    if (mean_ && count > 1) set_scale(prepared, type, out, count);
    return prepared;
  }

 private:
  static BinaryOp op_of(std::string_view op) {
    if (op == "Max") return BinaryOp::kMax;
    if (op == "Min") return BinaryOp::kMin;
    return BinaryOp::kAdd;
  }

  static std::uint64_t byte_count(sdk::DataType type, const sdk::Dims& dims) {
    return static_cast<std::uint64_t>(sdk::element_count(dims) * sdk::element_bytes(type));
  }

  void set_scale(Prepared& prepared, sdk::DataType type, const sdk::Dims& out,
                 std::uint32_t count) const {
    prepared.scaled = true;
    prepared.scale = plan_binary(BinaryOp::kDiv, type, isa_, out, sdk::DimsView(), out);
    common::with_float(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T divisor = common::narrow<T>(static_cast<common::Wide<T>>(count));
      std::memcpy(prepared.scale_value, &divisor, sizeof(divisor));
    });
  }

  BinaryOp op_;
  Isa isa_;
  bool mean_;
};

}  // namespace

sdk::KernelList binary_math_kernels() {
  sdk::KernelList list;
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Mod", "PRelu"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", common::number_types())
                       .flags(BP_KERNEL_WIDENS_HALF)
                       .kernel<BinaryMath>());
  }
  for (const char* op : {"Max", "Min", "Sum", "Mean"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", common::number_types())
                       .flags(BP_KERNEL_WIDENS_HALF)
                       .kernel<VariadicMath>());
  }
  return list;
}

}  // namespace backplane::cpu
