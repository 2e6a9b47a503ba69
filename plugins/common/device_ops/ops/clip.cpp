// Clip: https://onnx.ai/onnx/operators/onnx__Clip.html
#include "op_table.hpp"
#include "plugins/common/device_ops/pointwise.hpp"

namespace backplane::device_ops {
namespace {

/// The bounds are attributes before opset 11 and scalar inputs since.
class Clip {
 public:
  Clip(const Device&, const sdk::Node& node) {
    if (node.since_version() >= 11) return;
    has_low_ = node.has("min");
    has_high_ = node.has("max");
    parameters_ = {static_cast<double>(node.get_float("min", 0)),
                   static_cast<double>(node.get_float("max", 0))};
  }

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    std::vector<View> views{dense_view(input(0), x.type(), x.dims())};
    std::string low = has_low_ ? "(V)p0" : "", high = has_high_ ? "(V)p1" : "";
    for (std::uint32_t i = 1; i < 3; ++i) {
      const sdk::Tensor bound = ctx.input(i);
      if (!bound.present()) continue;
      if (bound.size() != 1) sdk::invalid("Clip with a bound of dims ", to_string(bound.dims()));
      (i == 1 ? low : high) = common::operand_name(views.size());
      views.push_back({input(i), bound.type(), Dims(x.dims().size(), 0)});
    }
    // The upper bound wins where the bounds cross.
    std::string text = "v0";
    if (!low.empty()) text = sdk::message("(v0 < ", low, " ? ", low, " : v0)");
    if (!high.empty()) text = sdk::message("(", text, " > ", high, " ? ", high, " : ", text, ")");
    add_pointwise(
        work, x.dims(), views, dense_view(output(0), x.type(), x.dims()),
        {text, sdk::message("#define V VALUE(", type_code(x.type()), ")\n"), parameters_});
  }

 private:
  bool has_low_ = false, has_high_ = false;
  std::vector<double> parameters_;
};

}  // namespace

KernelList clip_kernels() {
  return {
      device_kernel<Clip>(
          sdk::op("Clip").name(kernel_name("pointwise")).since(1, 10).types("T", float_types())),
      device_kernel<Clip>(
          sdk::op("Clip").name(kernel_name("pointwise")).since(11).types("T", number_types())),
  };
}

}  // namespace backplane::device_ops
