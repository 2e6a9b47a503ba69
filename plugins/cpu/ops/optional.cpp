// Optional, OptionalGetElement, OptionalHasElement: https://onnx.ai/onnx/operators/onnx__Optional.html and the others
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"
#include "plugins/cpu/kernels/value_type.hpp"

namespace backplane::cpu {
namespace {

/// Holds the input; empty without one, of the type that the attribute names.
class Optional {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.has_input(0)) ctx.output_value(0).append(ctx.input_value(0));
    }
  };

  Optional(const sdk::CreateContext&, const sdk::Node& node) {
    if (node.input(0)) {
      type_ = node.input(0).type_string();
    } else if (const bp_attribute* type = node.attribute("type");
               type != nullptr && type->type == BP_ATTRIBUTE_TYPE) {
      type_ = type->types[0];
    }
    if (type_.empty()) sdk::unsupported("Optional without an input or a type");
    type_ = "optional(" + type_ + ")";
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output_type(0, type_.c_str());
    return {};
  }

 private:
  std::string type_;
};

/// From opset 18 on the input may also be a plain tensor or sequence, which is then handed on.
class OptionalGetElement {
 public:
  struct Prepared {
    bool dense;  // a tensor of known dims

    void compute(const sdk::ComputeContext& ctx) const {
      if (dense) return copy_all(ctx, 0, 0);
      sdk::Value value = ctx.input_value(0);
      if (value.kind() == BP_VALUE_OPTIONAL) {
        if (value.sequence_size() == 0) sdk::failed("OptionalGetElement: the optional is empty");
        value = value.sequence_at(0);
      }
      if (value.kind() == BP_VALUE_TENSOR) return copy_to_new_output(ctx, value, 0);
      for (std::uint64_t i = 0; i < value.sequence_size(); ++i)
        ctx.output_value(0).append(value.sequence_at(i));
    }
  };

  OptionalGetElement(const sdk::CreateContext&, const sdk::Node& node)
      : type_(node.input(0).type_string()) {
    constexpr std::string_view kOptional = "optional(";
    if (type_.rfind(kOptional, 0) == 0)
      type_ = type_.substr(kOptional.size(), type_.size() - kOptional.size() - 1);
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    if (ctx.input_value(0).kind() == BP_VALUE_TENSOR) {
      ctx.set_output(0, input.type(), input.dims());
      if (input.type() != sdk::DataType::String) ctx.set_view(0, 0);
      return {true};
    }
    if (type_.rfind("seq(", 0) == 0) {
      ctx.set_output_type(0, type_.c_str());
    } else {
      ctx.set_output_unknown(0, element_type_of(type_), -1);
    }
    return {false};
  }

 private:
  std::string type_;
};

class OptionalHasElement {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      bool holds = ctx.has_input(0);
      if (holds && ctx.input_value(0).kind() == BP_VALUE_OPTIONAL)
        holds = ctx.input_value(0).sequence_size() > 0;
      *ctx.output(0).mutable_data<bool>() = holds;
    }
  };

  OptionalHasElement(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Bool, sdk::DimsView());
    return {};
  }
};

}  // namespace

sdk::KernelList optional_kernels() {
  return {
      sdk::op("Optional").name("cpu:optional").kernel<Optional>(),
      sdk::op("OptionalGetElement")
          .name("cpu:optional_get_element")
          .flags(BP_KERNEL_DATA_DEPENDENT)
          .kernel<OptionalGetElement>(),
      sdk::op("OptionalHasElement").name("cpu:optional_has_element").kernel<OptionalHasElement>()};
}

}  // namespace backplane::cpu
