// Cast, CastLike, BitCast: https://onnx.ai/onnx/operators/onnx__Cast.html
#include "op_table.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

void add_cast(sdk::PrepareContext& ctx, Work& work, DataType to) {
  const sdk::Tensor x = ctx.input(0);
  work.device().require(to);
  ctx.set_output(0, to, x.dims());
  if (to == x.type()) {
    ctx.set_view(0, 0);
    work.add_copy(input(0), output(0), x.bytes());
    return;
  }
  Expression expression{sdk::message("(VALUE(", type_code(to), "))v0"), "", {}};
  if (to == DataType::Bool) expression.text = "v0 != 0";
  if (x.type() == DataType::Double && is_half(to))
    expression = {"round_to_odd(v0)", common::kRoundToOdd, {}};
  add_pointwise(work, x.dims(), {dense_view(input(0), x.type(), x.dims())},
                dense_view(output(0), to, x.dims()), expression);
}

class Cast {
 public:
  Cast(const Device&, const sdk::Node& node)
      : to_(static_cast<DataType>(node.get_int("to", BP_NONE))) {
    type_code(to_);  // refuses what kernels lack
  }
  void prepare(sdk::PrepareContext& ctx, Work& work) const { add_cast(ctx, work, to_); }

 private:
  DataType to_;
};

class CastLike {
 public:
  CastLike(const Device&, const sdk::Node&) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    add_cast(ctx, work, ctx.input(1).type());
  }
};

class BitCast {
 public:
  BitCast(const Device&, const sdk::Node& node)
      : to_(static_cast<DataType>(node.get_int("to", BP_NONE))) {
    type_code(to_);
  }
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    if (sdk::element_bytes(x.type()) != sdk::element_bytes(to_))
      sdk::invalid("BitCast of ", sdk::type_name(x.type()), " to ", sdk::type_name(to_),
                   ", which has another size");
    ctx.set_output(0, to_, x.dims());
    ctx.set_view(0, 0);
    work.add_copy(input(0), output(0), x.bytes());
  }

 private:
  DataType to_;
};

}  // namespace

KernelList cast_kernels() {
  return {
      device_kernel<Cast>(sdk::op("Cast")
                              .name(kernel_name("cast"))
                              .since(6)
                              .types("T1", element_types())
                              .types("T2", element_types())),
      device_kernel<CastLike>(sdk::op("CastLike")
                                  .name(kernel_name("cast"))
                                  .types("T1", element_types())
                                  .types("T2", element_types())
                                  .roles({BP_INPUT_DATA, BP_INPUT_SHAPE_ONLY})),
      device_kernel<BitCast>(sdk::op("BitCast")
                                 .name(kernel_name("bitcast"))
                                 .types("T1", element_types())
                                 .types("T2", element_types())),
  };
}

}  // namespace backplane::device_ops
