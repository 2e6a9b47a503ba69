// QuantizeLinear, DequantizeLinear, MatMulInteger, QLinearMatMul, ConvInteger,
// QLinearConv: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html and the pages beside it. Sums are
// exact, in 32 bits.
#include "op_table.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/saturation.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/device_ops/window.hpp"

namespace backplane::device_ops {
namespace {

/// A scale or zero point seen in a walk over x: for the tensor, along an axis, or in blocks.
View parameter_view(const MemoryRef& memory, const sdk::Tensor& parameter, const sdk::Tensor& x,
                    std::int64_t axis, std::int64_t block) {
  View view{memory, parameter.type(), Dims(x.dims().size(), 0)};
  if (parameter.size() == 1) return view;
  if (block > 0) sdk::unsupported("quantisation in blocks is not handled");
  const auto at = static_cast<std::size_t>(normalize_axis(axis, x.rank()));
  if (parameter.rank() != 1 || parameter.size() != x.dims()[at])
    sdk::invalid("a scale of dims ", to_string(parameter.dims()), " for axis ", at, " of ",
                 to_string(x.dims()));
  view.strides[at] = 1;
  return view;
}

/// Of elements that the kernels below take as integers of 32 bits.
const char* integer_code(DataType type) {
  if (is_float(type) || sdk::element_bytes(type) > 4 || type == DataType::UInt32)
    sdk::unsupported("elements of type ", sdk::type_name(type), " as integers are not handled");
  return type_code(type);
}

class Quantize {
 public:
  Quantize(const Device&, const sdk::Node& node)
      : axis_(node.get_int("axis", 1)),
        block_(node.get_int("block_size", 0)),
        type_(static_cast<DataType>(node.get_int("output_dtype", BP_UINT8))) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), zero = ctx.input(2);
    const DataType type = zero.present()            ? zero.type()
                          : type_ == DataType::None ? DataType::UInt8
                                                    : type_;
    if (sdk::element_bytes(type) != 1 && sdk::element_bytes(type) != 2)
      sdk::unsupported("quantisation to ", sdk::type_name(type), " is not handled");
    type_code(type);
    ctx.set_output(0, type, x.dims());
    std::vector<View> views{dense_view(input(0), x.type(), x.dims()),
                            parameter_view(input(1), ctx.input(1), x, axis_, block_)};
    if (zero.present()) views.push_back(parameter_view(input(2), zero, x, axis_, block_));
    Expression expression;
    expression.functions = saturation_text(type);
    expression.text =
        sdk::message("saturate((float)v0 / (float)v1, ", zero.present() ? "v2" : "0", ")");
    add_pointwise(work, x.dims(), views, dense_view(output(0), type, x.dims()), expression);
  }

 private:
  std::int64_t axis_, block_;
  DataType type_;
};

class Dequantize {
 public:
  Dequantize(const Device&, const sdk::Node& node)
      : axis_(node.get_int("axis", 1)), block_(node.get_int("block_size", 0)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), scale = ctx.input(1), zero = ctx.input(2);
    integer_code(x.type());
    ctx.set_output(0, scale.type(), x.dims());
    std::vector<View> views{dense_view(input(0), x.type(), x.dims()),
                            parameter_view(input(1), scale, x, axis_, block_)};
    if (zero.present()) views.push_back(parameter_view(input(2), zero, x, axis_, block_));
    add_pointwise(
        work, x.dims(), views, dense_view(output(0), scale.type(), x.dims()),
        {zero.present() ? "(float)((i32)v0 - (i32)v2) * (float)v1" : "(float)v0 * (float)v1",
         "",
         {}});
  }

 private:
  std::int64_t axis_, block_;
};

/// Places of the inputs of the four integer products; -1: the operator has no such input.
struct ProductInputs {
  int a = 0, b = 1, a_zero = -1, b_zero = -1, a_scale = -1, b_scale = -1, y_scale = -1, y_zero = -1,
      bias = -1;
};

constexpr ProductInputs kInteger{0, 1, 2, 3, -1, -1, -1, -1, -1};
constexpr ProductInputs kMatMul{0, 3, 2, 5, 1, 4, 6, 7, -1};
constexpr ProductInputs kConv{0, 3, 2, 5, 1, 4, 6, 7, 8};

/// Adds the parameters of a product to a walk: a scale or zero point of one element stands for all, one of
/// several goes by `index`, which is "0" where there may be none.
void add_parameter(sdk::PrepareContext& ctx, Walk& walk, const char* name, int place,
                   const char* index) {
  const sdk::Tensor parameter =
      ctx.input(place < 0 ? 0xFFFFFFFFu : static_cast<std::uint32_t>(place));
  if (!parameter.present()) {
    walk.define(name, "0");
    return;
  }
  if (parameter.size() != 1 && (parameter.rank() != 1 || std::string(index) == "0"))
    sdk::unsupported("scales or zero points of dims ", to_string(parameter.dims()),
                     " of an integer product are not handled");
  const std::string memory = sdk::message("memory_", name);
  walk.in(memory, input(static_cast<std::uint32_t>(place)), parameter.type());
  walk.define(name, sdk::message("LOAD(", type_code(parameter.type()), ", ", memory, ", ",
                                 parameter.size() == 1 ? "0" : index, ")"));
}

/// The sum as it is, or scaled to the quantised output.
std::string finish_text(sdk::PrepareContext& ctx, Walk& walk, const ProductInputs& places,
                        const char* filter, DataType out) {
  if (places.y_scale < 0) return "sum";
  add_parameter(ctx, walk, "A_SCALE", places.a_scale, "0");
  add_parameter(ctx, walk, "B_SCALE", places.b_scale, filter);
  add_parameter(ctx, walk, "Y_SCALE", places.y_scale, "0");
  add_parameter(ctx, walk, "Y_ZERO", places.y_zero, "0");
  walk.functions += saturation_text(out);
  return "saturate((float)sum * ((float)A_SCALE * (float)B_SCALE / (float)Y_SCALE), Y_ZERO)";
}

class IntegerMatMul {
 public:
  IntegerMatMul(const Device&, const sdk::Node& node)
      : places_(node.op_type() == "MatMulInteger" ? kInteger : kMatMul) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(static_cast<std::uint32_t>(places_.b));
    if (a.rank() < 2 || b.rank() < 2)
      sdk::unsupported("integer products of ", to_string(a.dims()), " and ", to_string(b.dims()),
                       " are not handled");
    const std::int64_t rows = a.dim(a.rank() - 2), depth = a.dim(a.rank() - 1),
                       columns = b.dim(b.rank() - 1);
    if (b.dim(b.rank() - 2) != depth)
      sdk::invalid("a product of ", to_string(a.dims()), " and ", to_string(b.dims()));
    const Dims a_batch(a.dims().begin(), a.dims().end() - 2),
        b_batch(b.dims().begin(), b.dims().end() - 2);
    Dims dims = common::broadcast_dims({a_batch, b_batch});
    const std::int64_t batch = sdk::element_count(dims);
    const bool a_repeats = sdk::element_count(a_batch) == 1,
               b_repeats = sdk::element_count(b_batch) == 1;
    if ((!a_repeats && sdk::element_count(a_batch) != batch) ||
        (!b_repeats && sdk::element_count(b_batch) != batch))
      sdk::unsupported("a partly repeated batch of integer products is not handled");
    dims.insert(dims.end(), {rows, columns});
    const DataType out = places_.y_zero < 0
                             ? DataType::Int32
                             : ctx.input(static_cast<std::uint32_t>(places_.y_zero)).type();
    ctx.set_output(0, out, dims);
    Walk walk(Dims{batch, rows, columns});
    walk.in("a", input(0), a.type());
    walk.in("b", input(static_cast<std::uint32_t>(places_.b)), b.type()).out("y", output(0), out);
    walk.number("rows", rows).number("columns", columns).number("depth", depth);
    walk.define("TA", integer_code(a.type())).define("TB", integer_code(b.type()));
    walk.define("TY", type_code(out));
    add_parameter(ctx, walk, "A_ZERO", places_.a_zero, "i1");
    add_parameter(ctx, walk, "B_ZERO", places_.b_zero, "i0");
    const std::string finish = finish_text(ctx, walk, places_, "i0", out);
    walk.body = sdk::message(
        a_repeats ? "" : "  a += i2 * rows * depth;\n",
        b_repeats ? "" : "  b += i2 * depth * columns;\n",
        "  i32 sum = 0, a_zero = A_ZERO, b_zero = B_ZERO;\n  for (i64 k = 0; k < depth; ++k)\n",
        "    sum += ((i32)LOAD(TA, a, i1 * depth + k) - a_zero) * ((i32)LOAD(TB, b, k * columns + "
        "i0) "
        "- b_zero);\n  STORE(TY, y, (i2 * rows + i1) * columns + i0, ",
        finish, ");");
    walk.add_to(work);
  }

 private:
  ProductInputs places_;
};

constexpr char kConvBody[] = R"kernel(
  i64 plane = i2 / out_0, oz = i2 % out_0;
  i64 image = plane / filters, filter = plane % filters;
  i64 points = in_0 * in_1 * in_2, taps = k_0 * k_1 * k_2;
  x += (image * channels + filter / group_filters * group_channels) * points;
  w += filter * group_channels * taps;
  i32 sum = 0, a_zero = A_ZERO, b_zero = B_ZERO;
  for (i64 kz = 0; kz < k_0; ++kz) {
    i64 z = oz * s_0 - b_0 + kz * d_0;
    if (z < 0 || z >= in_0) continue;
    for (i64 ky = 0; ky < k_1; ++ky) {
      i64 v = i1 * s_1 - b_1 + ky * d_1;
      if (v < 0 || v >= in_1) continue;
      for (i64 kx = 0; kx < k_2; ++kx) {
        i64 u = i0 * s_2 - b_2 + kx * d_2;
        if (u < 0 || u >= in_2) continue;
        i64 from = (z * in_1 + v) * in_2 + u, tap = (kz * k_1 + ky) * k_2 + kx;
        for (i64 c = 0; c < group_channels; ++c)
          sum += ((i32)LOAD(TA, x, c * points + from) - a_zero) *
                 ((i32)LOAD(TB, w, c * taps + tap) - b_zero);
      }
    }
  }
  sum += BIAS;
)kernel";

class IntegerConv {
 public:
  IntegerConv(const Device&, const sdk::Node& node)
      : places_(node.op_type() == "ConvInteger" ? kInteger : kConv),
        attributes_(node),
        groups_(node.get_int("group", 1)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const auto weights = static_cast<std::uint32_t>(places_.b);
    const sdk::Tensor x = ctx.input(0), w = ctx.input(weights);
    const Window window = attributes_.resolve_convolution(x, w, groups_);
    const DataType out = places_.y_zero < 0
                             ? DataType::Int32
                             : ctx.input(static_cast<std::uint32_t>(places_.y_zero)).type();
    ctx.set_output(0, out, output_dims(x.dims(), w.dim(0), window));
    Walk walk(Dims{x.dim(0) * w.dim(0) * window.out[0], window.out[1], window.out[2]});
    walk.in("x", input(0), x.type()).in("w", input(weights), w.type()).out("y", output(0), out);
    add_numbers(walk, window);
    walk.number("filters", w.dim(0)).number("channels", x.dim(1));
    walk.number("group_filters", w.dim(0) / groups_).number("group_channels", w.dim(1));
    walk.define("TA", integer_code(x.type())).define("TB", integer_code(w.type()));
    walk.define("TY", type_code(out));
    add_parameter(ctx, walk, "A_ZERO", places_.a_zero, "0");
    add_parameter(ctx, walk, "B_ZERO", places_.b_zero, "filter");
    add_parameter(ctx, walk, "BIAS", places_.bias, "filter");
    const std::string finish = finish_text(ctx, walk, places_, "filter", out);
    walk.body =
        sdk::message(kConvBody, "  STORE(TY, y, (i2 * out_1 + i1) * out_2 + i0, ", finish, ");");
    walk.add_to(work);
  }

 private:
  ProductInputs places_;
  WindowAttributes attributes_;
  std::int64_t groups_;
};

}  // namespace

KernelList quantize_kernels() {
  return {
      device_kernel<Quantize>(sdk::op("QuantizeLinear").name(kernel_name("quantize"))),
      device_kernel<Dequantize>(sdk::op("DequantizeLinear").name(kernel_name("dequantize"))),
      device_kernel<IntegerMatMul>(sdk::op("MatMulInteger").name(kernel_name("integer matmul"))),
      device_kernel<IntegerMatMul>(sdk::op("QLinearMatMul").name(kernel_name("integer matmul"))),
      device_kernel<IntegerConv>(sdk::op("ConvInteger").name(kernel_name("integer conv"))),
      device_kernel<IntegerConv>(sdk::op("QLinearConv").name(kernel_name("integer conv"))),
  };
}

}  // namespace backplane::device_ops
