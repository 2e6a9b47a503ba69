// Backplane SDK: operators, by which a kernel uses kernels of other operators. plugin_api/operators.h says how
// they are made, prepared and computed.
//
//   class SoftmaxOfProduct {
//    public:
//     struct Prepared {
//       sdk::OperatorPlan product, softmax;
//       std::uint64_t scores = 0, product_work = 0, softmax_work = 0;  // where they lie in the workspace
//       void compute(const sdk::ComputeContext& ctx) const {
//         const sdk::TensorAt at(product.output(0), ctx.workspace(), scores);
//         product.compute(ctx, {ctx.input(0), ctx.input(1)}, {at.get()}, product_work);
//         softmax.compute(ctx, {at.get()}, {ctx.output(0)}, softmax_work);
//       }
//     };
//     SoftmaxOfProduct(const sdk::CreateContext& ctx, const sdk::Node&)
//         : product_(ctx, sdk::OperatorDraft("MatMul", 13).input(DataType::Float).input(DataType::Float)),
//           softmax_(ctx, sdk::OperatorDraft("Softmax", 13).input(DataType::Float).attribute("axis", 1)) {}
//     Prepared prepare(sdk::PrepareContext& ctx) const {
//       Prepared made;
//       made.product = product_.prepare(ctx, {ctx.input(0), ctx.input(1)});
//       made.softmax = softmax_.prepare(ctx, {made.product.output(0)});
//       sdk::WorkspaceParts parts;
//       made.scores = parts.add(made.product.output(0).bytes());
//       made.product_work = parts.add(made.product);
//       made.softmax_work = parts.add(made.softmax);
//       ctx.set_workspace(parts.bytes());
//       ctx.set_output(0, DataType::Float, made.softmax.output(0).dims());
//       return made;
//     }
//    private:
//     sdk::Operator product_, softmax_;
//   };
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backplane/plugin/attribute.hpp"
#include "backplane/plugin/kernel.hpp"

namespace backplane::sdk {

/// The host's table; throws unsupported() on a host that has none.
inline const bp_operators_api& operators() {
  const void* table = host().get_interface(BP_OPERATORS_ID, BP_OPERATORS_VERSION);
  if (table == nullptr) unsupported("this host has no interface ", BP_OPERATORS_ID);
  return *static_cast<const bp_operators_api*>(table);
}

/// A tensor with the type and dims of another one, at some bytes of a memory: of a workspace, or an output.
class TensorAt {
 public:
  TensorAt(const Tensor& like, const Tensor& memory, std::uint64_t offset) : raw_(*like.raw()) {
    raw_.struct_size = sizeof(raw_);
    raw_.buffer = memory.raw()->buffer;
    raw_.offset = memory.raw()->offset + offset;
    raw_.host_ptr = memory.raw()->host_ptr == nullptr
                        ? nullptr
                        : static_cast<char*>(memory.raw()->host_ptr) + offset;
    raw_.memory = memory.raw()->memory;
    raw_.strides = nullptr;
  }
  /// Valid as long as this object, and what gave the dims.
  Tensor get() const { return Tensor(&raw_); }

 private:
  bp_tensor raw_;
};

/// A tensor that is only described, for shapes to prepare an operator with that no tensor has.
class TensorShape {
 public:
  TensorShape(DataType type, Dims dims) : dims_(std::move(dims)) {
    raw_.dtype = static_cast<bp_dtype>(type);
    raw_.rank = static_cast<std::int32_t>(dims_.size());
    raw_.bytes = (static_cast<std::uint64_t>(element_count(dims_)) *
                      static_cast<std::uint64_t>(element_bits(type)) +
                  7) /
                 8;
  }
  /// With elements in host memory, where they decide the shape.
  TensorShape& elements(const void* data) {
    raw_.host_ptr = const_cast<void*>(data);
    return *this;
  }
  Tensor get() {
    raw_.dims = dims_.data();
    return Tensor(&raw_);
  }

 private:
  Dims dims_;
  bp_tensor raw_ = abi_struct<bp_tensor>();
};

/// An operator made ready for shapes: see bp_operator_plan. Empty until it is assigned.
class OperatorPlan {
 public:
  OperatorPlan() = default;
  OperatorPlan(const bp_operators_api& api, const bp_operator_plan* raw) : api_(&api), raw_(raw) {}
  OperatorPlan(OperatorPlan&& other) noexcept
      : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  OperatorPlan& operator=(OperatorPlan&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~OperatorPlan() {
    if (raw_ != nullptr) api_->release(raw_);
  }

  /// Type, dims and bytes of an output, without memory.
  Tensor output(std::uint32_t index) const { return Tensor(raw_->outputs[index]); }
  std::uint64_t workspace_bytes() const { return raw_->workspace_bytes; }
  std::uint64_t workspace_alignment() const { return raw_->workspace_alignment; }
  /// The chosen kernel's name and variant.
  const char* kernel() const { return raw_->kernel; }

  /// Computes on tensors of the plan's shapes, at most 16 of each; Tensor(nullptr) for one that is left out, or
  /// a constant. The plan's own scratch memory begins `offset` bytes into ctx.workspace().
  void compute(const ComputeContext& ctx, std::initializer_list<Tensor> inputs,
               std::initializer_list<Tensor> outputs, std::uint64_t offset = 0) const {
    const bp_tensor* pointers[2][16];
    const std::initializer_list<Tensor> lists[2] = {inputs, outputs};
    for (int side = 0; side < 2; ++side) {
      if (lists[side].size() > 16)
        invalid("an operator of more than 16 tensors: use bp_operators_api");
      std::transform(lists[side].begin(), lists[side].end(), pointers[side],
                     [](const Tensor& tensor) { return tensor.raw(); });
    }
    bp_tensor scratch = abi_struct<bp_tensor>();
    scratch.dtype = BP_UINT8;
    scratch.bytes = workspace_bytes();
    const TensorAt work(Tensor(&scratch), ctx.workspace(), offset);
    bp_operator_args args = abi_struct<bp_operator_args>();
    args.inputs = pointers[0];
    args.outputs = pointers[1];
    args.input_count = static_cast<std::uint32_t>(inputs.size());
    args.output_count = static_cast<std::uint32_t>(outputs.size());
    args.workspace = scratch.bytes > 0 ? work.get().raw() : nullptr;
    args.threads = ctx.threads().raw();
    check(api_->compute(raw_, ctx.raw(), &args));
  }
  const bp_operator_plan* raw() const { return raw_; }

 private:
  const bp_operators_api* api_ = nullptr;
  const bp_operator_plan* raw_ = nullptr;
};

/// Places in one workspace, one after another.
class WorkspaceParts {
 public:
  /// The offset of a new part.
  std::uint64_t add(std::uint64_t bytes, std::uint64_t alignment = 64) {
    alignment_ = std::max(alignment_, alignment);
    const std::uint64_t offset = (bytes_ + alignment - 1) / alignment * alignment;
    bytes_ = offset + bytes;
    return offset;
  }
  /// The workspace of an operator's plan.
  std::uint64_t add(const OperatorPlan& plan) {
    return add(plan.workspace_bytes(), std::max<std::uint64_t>(plan.workspace_alignment(), 64));
  }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t alignment() const { return alignment_; }

 private:
  std::uint64_t bytes_ = 0;
  std::uint64_t alignment_ = 64;
};

/// What an operator is to be: see bp_operator_desc.
class OperatorDraft {
 public:
  /// `version` is that of the domain's operator set; 0: the newest that the host knows.
  explicit OperatorDraft(std::string op_type, int version = 0, std::string domain = "")
      : op_type_(std::move(op_type)), domain_(std::move(domain)), version_(version) {}
  OperatorDraft& name(std::string text) { return name_ = std::move(text), *this; }
  OperatorDraft& input(DataType type) { return input(tensor_type(type)); }
  /// By an ONNX type string; "" leaves the input out.
  OperatorDraft& input(std::string type) {
    types_.push_back(std::move(type));
    constants_.push_back(nullptr);
    return *this;
  }
  /// An input that never changes, borrowed as long as the operator: it may be packed.
  OperatorDraft& constant(const Value& tensor) {
    input(tensor.tensor().type());
    constants_.back() = tensor.raw();
    return *this;
  }
  template <class T>
  OperatorDraft& attribute(std::string attribute_name, T value) {
    if constexpr (std::is_integral_v<T>) {
      attributes_.emplace_back(std::move(attribute_name), static_cast<std::int64_t>(value));
    } else if constexpr (std::is_convertible_v<T, const char*>) {
      attributes_.emplace_back(std::move(attribute_name), std::string(value));
    } else {
      attributes_.emplace_back(std::move(attribute_name), std::move(value));
    }
    return *this;
  }
  /// One, unless said otherwise.
  OperatorDraft& outputs(std::uint32_t count) { return output_count_ = count, *this; }
  OperatorDraft& omit_output(std::uint32_t index) {
    omitted_ |= std::uint64_t{1} << index;
    return *this;
  }
  /// Served by the device that evaluates the host's constants, instead of the kernel's own.
  OperatorDraft& on_host() { return device_ = BP_OPERATOR_HOST_DEVICE, *this; }

 private:
  friend class Operator;
  std::string op_type_, domain_, name_;
  int version_;
  std::vector<std::string> types_;
  std::vector<const bp_value*> constants_;
  std::deque<Attribute> attributes_;
  std::uint32_t output_count_ = 1;
  std::uint64_t omitted_ = 0;
  std::int32_t device_ = BP_OPERATOR_OWN_DEVICE;
};

/// An operator, made in a kernel's constructor and kept in the kernel: see bp_operators_api.
class Operator {
 public:
  /// Throws unsupported() with the reasons when no kernel of the device takes it.
  Operator(const CreateContext& ctx, OperatorDraft draft) : api_(&operators()) {
    std::vector<const char*> types;
    for (const std::string& type : draft.types_) types.push_back(type.c_str());
    std::vector<const bp_attribute*> attributes;
    for (Attribute& attribute : draft.attributes_) attributes.push_back(attribute.raw());
    bp_operator_desc desc = abi_struct<bp_operator_desc>();
    desc.domain = draft.domain_.c_str();
    desc.op_type = draft.op_type_.c_str();
    desc.name = draft.name_.empty() ? nullptr : draft.name_.c_str();
    desc.attributes = attributes.data();
    desc.attribute_count = static_cast<std::uint32_t>(attributes.size());
    desc.input_types = types.data();
    desc.input_count = static_cast<std::uint32_t>(types.size());
    desc.constants = draft.constants_.data();
    desc.output_count = draft.output_count_;
    desc.omitted_outputs = draft.omitted_;
    desc.version = draft.version_;
    desc.device = draft.device_;
    check(api_->create(ctx.raw(), &desc, &raw_));
  }
  Operator(Operator&& other) noexcept
      : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  Operator& operator=(Operator&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Operator() {
    if (raw_ != nullptr) api_->destroy(raw_);
  }

  /// Ready for shapes: in a kernel's `prepare`. Inputs as compute() has them, without memory, but with elements
  /// where those decide the shape.
  OperatorPlan prepare(const PrepareContext& ctx, std::initializer_list<Tensor> inputs) const {
    std::vector<const bp_tensor*> tensors;
    for (const Tensor& input : inputs) tensors.push_back(input.raw());
    const bp_operator_plan* plan = nullptr;
    check(api_->prepare(raw_, ctx.threads().raw(), tensors.data(),
                        static_cast<std::uint32_t>(tensors.size()), &plan));
    return {*api_, plan};
  }

  /// Computes at once, into new values: for what is known in `compute` alone. Allocates. Value() for an input
  /// that is left out, or constant.
  std::vector<OwnedValue> call(const ComputeContext& ctx, std::initializer_list<Value> inputs,
                               std::uint32_t output_count = 1) const {
    std::vector<const bp_value*> values;
    for (const Value& input : inputs) values.push_back(input.raw());
    std::vector<const bp_value*> made(output_count);
    check(api_->call(raw_, ctx.raw(), values.data(), static_cast<std::uint32_t>(values.size()),
                     made.data(), output_count));
    std::vector<OwnedValue> outputs;
    for (const bp_value* value : made) outputs.emplace_back(value);
    return outputs;
  }

 private:
  const bp_operators_api* api_;
  bp_operator* raw_ = nullptr;
};

}  // namespace backplane::sdk
