// Functions of one variable: https://onnx.ai/onnx/operators/ (one page an operator).
#include <string_view>

#include "op_table.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/elementwise.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

void add_unary(sdk::PrepareContext& ctx, Work& work, DataType out, const Expression& expression) {
  const sdk::Tensor x = ctx.input(0);
  ctx.set_output(0, out, x.dims());
  if (out == x.type()) ctx.allow_in_place(0, 0);
  add_pointwise(work, x.dims(), {dense_view(input(0), x.type(), x.dims())},
                dense_view(output(0), out, x.dims()), expression);
}

class Unary {
 public:
  Unary(const Device&, const sdk::Node& node)
      : row_(*common::find_elementwise(common::kUnaryRows, node.op_type())) {
    for (const common::ElementwiseParameter& parameter : row_.parameters) {
      if (parameter.name == nullptr) break;
      parameters_.push_back(node.has(parameter.name)
                                ? static_cast<double>(node.get_float(parameter.name, 0))
                                : parameter.otherwise);
    }
  }

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const DataType type = ctx.input(0).type();
    const char* const text = is_float(type) ? row_.of_floats : row_.of_integers;
    if (text == nullptr)
      sdk::unsupported("the kernel has no ", row_.op_type, " of ", sdk::type_name(type));
    add_unary(ctx, work, type, {text, common::kScalarFunctions, parameters_});
  }

 private:
  const common::ElementwiseRow& row_;
  std::vector<double> parameters_;
};

/// exp(x) where ONNX allows a choice of formulas.
class Gelu {
 public:
  Gelu(const Device&, const sdk::Node& node)
      : is_tanh_(node.get_string("approximate", "none") == "tanh") {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    add_unary(ctx, work, ctx.input(0).type(),
              {is_tanh_ ? "gelu_tanh_of(v0)" : "gelu_of(v0)", common::kScalarFunctions, {}});
  }

 private:
  bool is_tanh_;
};

/// IsNaN, IsInf and Not: the output is bool.
class Question {
 public:
  Question(const Device&, const sdk::Node& node) {
    if (node.op_type() == "IsNaN") text_ = "IS_NAN(v0)";
    if (node.op_type() == "Not") text_ = "!v0";
    if (node.op_type() == "IsInf") {
      const bool below = node.get_int("detect_negative", 1) != 0;
      const bool above = node.get_int("detect_positive", 1) != 0;
      text_ = below && above ? "IS_INF(v0)"
              : below        ? "IS_INF(v0) && v0 < 0"
              : above        ? "IS_INF(v0) && v0 > 0"
                             : "0";
    }
  }
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    add_unary(ctx, work, DataType::Bool, {text_, "", {}});
  }

 private:
  std::string text_;
};

}  // namespace

KernelList unary_kernels() {
  KernelList kernels;
  for (const common::ElementwiseRow& row : common::kUnaryRows) {
    const common::TypeList types = row.of_floats == nullptr     ? common::integer_types()
                                   : row.of_integers == nullptr ? float_types()
                                                                : number_types();
    kernels.push_back(device_kernel<Unary>(
        sdk::op(row.op_type).name(kernel_name("pointwise")).types("T", types)));
  }
  kernels.push_back(device_kernel<Gelu>(
      sdk::op("Gelu").name(kernel_name("pointwise")).types("T", float_types())));
  kernels.push_back(device_kernel<Question>(
      sdk::op("IsNaN").name(kernel_name("pointwise")).types("T1", float_types())));
  kernels.push_back(device_kernel<Question>(
      sdk::op("IsInf").name(kernel_name("pointwise")).types("T1", float_types())));
  kernels.push_back(device_kernel<Question>(
      sdk::op("Not").name(kernel_name("pointwise")).types("T", {DataType::Bool})));
  return kernels;
}

}  // namespace backplane::device_ops
