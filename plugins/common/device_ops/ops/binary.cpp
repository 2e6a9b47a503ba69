// Functions of two and more variables, which are broadcast: arithmetic, comparison, logic, bits.
// https://onnx.ai/onnx/operators/onnx__Add.html and the pages beside it.
#include <string_view>

#include "op_table.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/elementwise.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

/// Definitions that expressions over elements of a type need.
std::string functions_for(DataType type) {
  if (is_float(type)) return common::kScalarFunctions;
  return sdk::message("#define I VALUE(", type_code(type), ")\n", common::kIntegerFunctions);
}

/// All inputs broadcast to output 0.
void add_broadcast(sdk::PrepareContext& ctx, Work& work, DataType out,
                   const Expression& expression) {
  std::vector<DimsView> shapes;
  for (std::uint32_t i = 0; i < ctx.input_count(); ++i) shapes.push_back(ctx.input(i).dims());
  const Dims dims = common::broadcast_dims(shapes);
  ctx.set_output(0, out, dims);
  std::vector<View> views;
  for (std::uint32_t i = 0; i < ctx.input_count(); ++i) {
    const sdk::Tensor x = ctx.input(i);
    if (x.type() == out && x.dims().size() == dims.size() && x.size() == sdk::element_count(dims))
      ctx.allow_in_place(0, i);
    views.push_back(broadcast_view(input(i), x.type(), x.dims(), dims));
  }
  add_pointwise(work, dims, views, dense_view(output(0), out, dims), expression);
}

class Binary {
 public:
  Binary(const Device&, const sdk::Node& node)
      : row_(common::find_elementwise(common::kBinaryRows, node.op_type())),
        is_question_(row_ == nullptr) {
    if (is_question_) row_ = common::find_elementwise(common::kQuestionRows, node.op_type());
    if (node.since_version() < 7 && node.get_int("broadcast", 0) != 0)
      sdk::unsupported("the broadcast of ", node.op_type(), " before opset 7 is not handled");
  }

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const DataType type = ctx.input(0).type();
    const char* const text = is_float(type) ? row_->of_floats : row_->of_integers;
    if (text == nullptr)
      sdk::unsupported("the kernel has no ", row_->op_type, " of ", sdk::type_name(type));
    const std::string functions = type == DataType::Bool ? std::string() : functions_for(type);
    add_broadcast(ctx, work, is_question_ ? DataType::Bool : type, {text, functions, {}});
  }

 private:
  const common::ElementwiseRow* row_;
  bool is_question_;
};

/// Mod and BitShift, whose attribute chooses the expression.
class ChosenBinary {
 public:
  ChosenBinary(const Device&, const sdk::Node& node) {
    if (node.op_type() == "BitShift") {
      of_integers_ =
          node.get_string("direction", "") == "LEFT" ? "shift_left(v0, v1)" : "shift_right(v0, v1)";
      return;
    }
    const bool is_fmod = node.get_int("fmod", 0) != 0;
    of_floats_ = is_fmod ? "fmod(v0, v1)" : "floor_mod(v0, v1)";
    of_integers_ = is_fmod ? "remainder_of(v0, v1)" : "floor_remainder_of(v0, v1)";
  }
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const DataType type = ctx.input(0).type();
    add_broadcast(ctx, work, type,
                  {is_float(type) ? of_floats_ : of_integers_, functions_for(type), {}});
  }

 private:
  std::string of_floats_, of_integers_;
};

/// The exponent may have a type of its own.
class Pow {
 public:
  Pow(const Device&, const sdk::Node& node) {
    const sdk::ValueInfo exponent = node.input(1);
    if (!exponent.is_constant() || exponent.type() != DataType::Float) return;
    const sdk::Tensor tensor = exponent.constant();
    is_square_ =
        tensor.size() == 1 && tensor.data<float>() != nullptr && *tensor.data<float>() == 2;
  }
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const DataType base = ctx.input(0).type(), exponent = ctx.input(1).type();
    if (is_float(base)) {
      add_broadcast(ctx, work, base, {is_square_ ? "v0 * v0" : "pow((REAL)v0, (REAL)v1)", "", {}});
    } else if (is_float(exponent)) {
      work.device().require(exponent);
      const std::string real = work.device().has_double() ? "double" : "float";
      add_broadcast(
          ctx, work, base,
          {sdk::message("(VALUE(", type_code(base), "))pow((", real, ")v0, (", real, ")v1)"),
           "",
           {}});
    } else {
      add_broadcast(ctx, work, base, {"power_of(v0, (i64)v1)", functions_for(base), {}});
    }
  }

 private:
  bool is_square_ = false;
};

/// Sum, Mean, Max and Min of any number of inputs, added up from the left.
class Variadic {
 public:
  Variadic(const Device&, const sdk::Node& node)
      : kind_(node.op_type()), is_extreme_(kind_ == "Max" || kind_ == "Min") {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const DataType type = ctx.input(0).type();
    if (ctx.input_count() > 16)
      sdk::unsupported(kind_, " of ", ctx.input_count(), " inputs; the kernel takes 16");
    std::string text = "v0";
    for (std::uint32_t i = 1; i < ctx.input_count(); ++i) {
      const std::string next = common::operand_name(i);
      const char* const function = kind_ == "Max" ? "greater_of(" : "less_of(";
      text = is_extreme_ ? sdk::message(function, text, ", ", next, ")")
                         : sdk::message(text, " + ", next);
    }
    if (kind_ == "Mean") text = sdk::message("(", text, ") / LIT(", ctx.input_count(), ".0)");
    std::string functions = common::kScalarFunctions;
    if (!is_float(type)) {
      functions = sdk::message("#define I VALUE(", type_code(type), ")\n",
                               "FUNCTION I greater_of(I a, I b) { return a > b ? a : b; }\n"
                               "FUNCTION I less_of(I a, I b) { return a < b ? a : b; }\n");
    }
    add_broadcast(ctx, work, type, {text, functions, {}});
  }

 private:
  std::string kind_;
  bool is_extreme_;
};

/// Where(condition, x, y).
class Where {
 public:
  Where(const Device&, const sdk::Node&) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    add_broadcast(ctx, work, ctx.input(1).type(), {"v0 ? v1 : v2", "", {}});
  }
};

/// A tree of element-wise nodes that a rewrite put together: see rewrite/chains.cpp. It computes in float; operands are
/// of any type, the output of that in "type".
class FusedPointwise {
 public:
  FusedPointwise(const Device&, const sdk::Node& node)
      : dims_(node),
        type_(static_cast<DataType>(node.get_int("type", BP_FLOAT))),
        expression_{node.get_string("result", ""),
                    common::kScalarFunctions,
                    {},
                    node.get_string("statements", "")} {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const Dims dims = dims_.of(ctx, static_cast<std::uint32_t>(ctx.input_count()));
    ctx.set_output(0, type_, dims);
    std::vector<View> views;
    for (std::uint32_t i = 0; i < ctx.input_count(); ++i) {
      const sdk::Tensor x = ctx.input(i);
      if (x.type() == type_ && x.dims().size() == dims.size() &&
          x.size() == sdk::element_count(dims))
        ctx.allow_in_place(0, i);
      views.push_back(broadcast_view(input(i), x.type(), x.dims(), dims));
    }
    add_pointwise(work, dims, views, dense_view(output(0), type_, dims), expression_);
  }

 private:
  MadeDims dims_;
  DataType type_;
  Expression expression_;
};

}  // namespace

KernelList binary_kernels() {
  KernelList kernels;
  const auto add = [&](const common::ElementwiseRow& row, const char* param,
                       const common::TypeList& types) {
    kernels.push_back(device_kernel<Binary>(
        sdk::op(row.op_type).name(kernel_name("pointwise")).types(param, types)));
  };
  for (const common::ElementwiseRow& row : common::kBinaryRows)
    add(row, "T", row.of_floats == nullptr ? common::integer_types() : number_types());
  for (const common::ElementwiseRow& row : common::kQuestionRows) {
    const bool is_logic = row.of_floats == nullptr;
    add(row, "T",
        is_logic                                   ? common::TypeList{DataType::Bool}
        : std::string_view(row.op_type) == "Equal" ? element_types()
                                                   : number_types());
  }
  for (const char* const op_type : {"Mod", "BitShift"}) {
    const bool is_mod = std::string_view(op_type) == "Mod";
    kernels.push_back(device_kernel<ChosenBinary>(
        sdk::op(op_type)
            .name(kernel_name("pointwise"))
            .types("T", is_mod ? number_types() : common::integer_types())));
  }
  kernels.push_back(device_kernel<Pow>(
      sdk::op("Pow").name(kernel_name("pointwise")).since(7, 11).types("T", number_types())));
  kernels.push_back(device_kernel<Pow>(sdk::op("Pow")
                                           .name(kernel_name("pointwise"))
                                           .since(12)
                                           .types("T", number_types())
                                           .types("T1", number_types())));
  for (const char* const op_type : {"Sum", "Mean"}) {
    kernels.push_back(device_kernel<Variadic>(
        sdk::op(op_type).name(kernel_name("pointwise")).since(8).types("T", float_types())));
  }
  for (const char* const op_type : {"Max", "Min"}) {
    kernels.push_back(device_kernel<Variadic>(
        sdk::op(op_type).name(kernel_name("pointwise")).since(8).types("T", number_types())));
  }
  kernels.push_back(device_kernel<FusedPointwise>(
      sdk::op("FusedPointwise", private_domain()).name(kernel_name("fused pointwise"))));
  kernels.push_back(device_kernel<Where>(
      sdk::op("Where").name(kernel_name("pointwise")).types("T", element_types())));
  return kernels;
}

}  // namespace backplane::device_ops
