// Custom operators that are one function: what its parameters mean. See custom_op.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "backplane/backplane.hpp"
#include "backplane/plugin.hpp"

namespace backplane {

/// A parameter of a function that is an input of the operator: a tensor of `T`, in host memory.
///
/// Lifetime: of the call, as that of all views of this file.
template <class T>
class In {
 public:
  explicit In(sdk::Value value) : value_(value) {}
  sdk::DimsView dims() const { return value_.tensor().dims(); }
  /// Elements; likewise in all classes here.
  std::size_t size() const { return static_cast<std::size_t>(value_.tensor().size()); }
  /// Row-major, dense.
  const T* data() const { return value_.tensor().data<T>(); }
  const T& operator[](std::size_t index) const { return data()[index]; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  /// To hand on to OpContext::call.
  sdk::Value value() const { return value_; }

 private:
  sdk::Value value_;
};

/// Likewise of strings.
template <>
class In<std::string> {
 public:
  explicit In(sdk::Value value) : value_(value) {}
  sdk::DimsView dims() const { return value_.tensor().dims(); }
  std::size_t size() const { return static_cast<std::size_t>(value_.tensor().size()); }
  /// As long as the call; an sdk::Error past the end.
  std::string_view operator[](std::size_t index) const { return value_.string_at(index); }
  sdk::Value value() const { return value_; }

 private:
  sdk::Value value_;
};

/// The last inputs, however many there are, all of one type.
template <class T>
class Ins {
 public:
  Ins(const sdk::ComputeContext& ctx, std::uint32_t first) : ctx_(&ctx), first_(first) {}
  std::size_t size() const { return ctx_->input_count() - first_; }
  In<T> operator[](std::size_t index) const {
    return In<T>(ctx_->input_value(first_ + static_cast<std::uint32_t>(index)));
  }

 private:
  const sdk::ComputeContext* ctx_;
  std::uint32_t first_;
};

/// An output of a size that is known from the shapes of the inputs: see FunctionOp::shape.
template <class T>
class Out {
 public:
  explicit Out(sdk::Value value) : value_(value) {}
  sdk::DimsView dims() const { return value_.tensor().dims(); }
  std::size_t size() const { return static_cast<std::size_t>(value_.tensor().size()); }
  /// Row-major, dense; not initialized, every element is to be written.
  T* data() const { return value_.tensor().mutable_data<T>(); }
  T& operator[](std::size_t index) const { return data()[index]; }
  T* begin() const { return data(); }
  T* end() const { return data() + size(); }

 private:
  sdk::Value value_;
};

/// Likewise of strings.
template <>
class Out<std::string> {
 public:
  explicit Out(sdk::Value value) : value_(value) {}
  sdk::DimsView dims() const { return value_.tensor().dims(); }
  std::size_t size() const { return static_cast<std::size_t>(value_.tensor().size()); }
  /// Copies `text`.
  void set(std::size_t index, std::string_view text) const { value_.set_string(index, text); }

 private:
  sdk::Value value_;
};

/// An output whose size the function finds out: it is allocated in the call, once.
template <class T>
class NewOut {
 public:
  NewOut(const sdk::ComputeContext& ctx, std::uint32_t index) : ctx_(&ctx), index_(index) {}
  /// Due in each call that succeeds, also for dims without elements; an sdk::Error where memory is short.
  Out<T> allocate(const sdk::Dims& dims) const {
    ctx_->alloc_output(index_, dims);
    return Out<T>(ctx_->output_value(index_));
  }

 private:
  const sdk::ComputeContext* ctx_;
  std::uint32_t index_;
};

/// An attribute: int64_t, int, bool, float, std::string, or a std::vector of int64_t, float or std::string; a tensor is
/// Attr<sdk::Value>. std::optional around one of these: empty where the node does not give it. Read once per node.
template <class T>
class Attr {
 public:
  explicit Attr(const T& value) : value_(&value) {}
  const T& get() const { return *value_; }
  operator const T&() const { return *value_; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_; }

 private:
  const T* value_;
};

/// What else a function may ask for, as a parameter of type `const OpContext&`.
class OpContext {
 public:
  OpContext(const sdk::ComputeContext& ctx, const std::vector<sdk::Operator>& operators)
      : ctx_(ctx), operators_(operators) {}

  /// The session's share of the thread pool: parallel_for and count.
  sdk::Threads threads() const { return ctx_.threads(); }
  /// True when the run is to end: return soon.
  bool cancelled() const { return ctx_.cancelled(); }
  /// To the environment's log; a level is BP_LOG_*.
  void log(std::int32_t level, std::string_view text) const {
    sdk::host().log(level, text.data(), text.size());
  }
  /// Memory for the call, counted by the host: an allocation each time. What has to cost nothing is a kernel class with
  /// a workspace. Null when there is none.
  struct Dealloc {
    void operator()(void* memory) const { sdk::host().dealloc(memory); }
  };
  template <class T>
  std::unique_ptr<T[], Dealloc> scratch(std::size_t count) const {
    static_assert(std::is_trivial_v<T>, "scratch memory is not initialized");
    return std::unique_ptr<T[], Dealloc>(
        static_cast<T*>(sdk::host().alloc(count * sizeof(T), alignof(std::max_align_t))));
  }
  /// Calls an operator that FunctionOp::uses named, by its place there; sdk::Value() for an input that is left out.
  std::vector<sdk::OwnedValue> call(std::size_t used, std::initializer_list<sdk::Value> inputs,
                                    std::uint32_t output_count = 1) const {
    return operators_.at(used).call(ctx_, inputs, output_count);
  }
  /// All that a kernel's `compute` gets; for the call.
  const sdk::ComputeContext& compute() const { return ctx_; }

 private:
  const sdk::ComputeContext& ctx_;
  const std::vector<sdk::Operator>& operators_;
};

/// The name of a parameter, and of an attribute its default: "x", {"alpha", 0.5f}.
struct ParamName {
  using Default =
      std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>,
                   std::vector<float>, std::vector<std::string>>;
  ParamName(const char* its_name) : name(its_name) {}
  ParamName(std::string its_name) : name(std::move(its_name)) {}
  template <class T>
  ParamName(std::string its_name, T value) : name(std::move(its_name)) {
    if constexpr (std::is_integral_v<T>) {
      default_value = static_cast<std::int64_t>(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      default_value = static_cast<float>(value);
    } else if constexpr (std::is_convertible_v<T, const char*>) {
      default_value = std::string(value);
    } else {
      default_value = std::move(value);
    }
  }
  std::string name;
  Default default_value;
};

namespace detail {

/// What an argument of the function is to the operator.
enum class OpParamKind {
  Input,
  OptionalInput,
  Inputs,
  Output,
  OptionalOutput,
  NewOutput,
  Attribute,
  Context
};

constexpr bool is_input(OpParamKind kind) { return kind <= OpParamKind::Inputs; }
constexpr bool is_output(OpParamKind kind) {
  return kind >= OpParamKind::Output && kind <= OpParamKind::NewOutput;
}

/// A parameter as schemas and shape rules see it.
struct OpParam {
  OpParamKind kind;
  sdk::DataType type = sdk::DataType::None;
  std::int32_t attribute_type = 0;
  bool attribute_optional = false;
  ParamName name{""};
};

/// What a call has for its parameters.
struct OpCall {
  const sdk::ComputeContext& ctx;
  const OpContext& context;
};

template <class T>
constexpr sdk::DataType op_type_of() {
  if constexpr (std::is_same_v<T, std::string>) {
    return sdk::DataType::String;
  } else {
    return sdk::data_type_of<T>();
  }
}

/// How a parameter of type P gets what it is called with. `Stored` is what a node's kernel keeps for it.
template <class P>
struct OpBinding {
  static_assert(!sizeof(P),
                "a function's parameters are In, Ins, Out, NewOut, Attr or const OpContext&");
};

/// For parameters that are all there in the call.
struct NothingStored {
  NothingStored() = default;
  NothingStored(const sdk::Node&, const OpParam&) {}
};

/// What the bindings of tensors share.
template <class T, OpParamKind kOf>
struct TensorBinding {
  using Stored = NothingStored;
  static OpParam describe() { return {kOf, op_type_of<T>(), 0, false, {""}}; }
  static constexpr OpParamKind kKind = kOf;
};

/// An input.
template <class T>
struct OpBinding<In<T>> : TensorBinding<T, OpParamKind::Input> {
  static In<T> bind(const OpCall& call, const NothingStored&, std::uint32_t index) {
    return In<T>(call.ctx.input_value(index));
  }
};
/// An optional input.
template <class T>
struct OpBinding<std::optional<In<T>>> : TensorBinding<T, OpParamKind::OptionalInput> {
  static std::optional<In<T>> bind(const OpCall& call, const NothingStored&, std::uint32_t index) {
    if (!call.ctx.has_input(index)) return std::nullopt;
    return In<T>(call.ctx.input_value(index));
  }
};
/// The last inputs.
template <class T>
struct OpBinding<Ins<T>> : TensorBinding<T, OpParamKind::Inputs> {
  static Ins<T> bind(const OpCall& call, const NothingStored&, std::uint32_t index) {
    return Ins<T>(call.ctx, index);
  }
};
/// An output.
template <class T>
struct OpBinding<Out<T>> : TensorBinding<T, OpParamKind::Output> {
  static Out<T> bind(const OpCall& call, const NothingStored&, std::uint32_t index) {
    return Out<T>(call.ctx.output_value(index));
  }
};
/// An optional output.
template <class T>
struct OpBinding<std::optional<Out<T>>> : TensorBinding<T, OpParamKind::OptionalOutput> {
  static std::optional<Out<T>> bind(const OpCall& call, const NothingStored&, std::uint32_t index) {
    if (!call.ctx.has_output(index)) return std::nullopt;
    return Out<T>(call.ctx.output_value(index));
  }
};
/// An output that the function sizes.
template <class T>
struct OpBinding<NewOut<T>> : TensorBinding<T, OpParamKind::NewOutput> {
  static NewOut<T> bind(const OpCall& call, const NothingStored&, std::uint32_t index) {
    return NewOut<T>(call.ctx, index);
  }
};
/// The context.
template <>
struct OpBinding<OpContext> {
  using Stored = NothingStored;
  static constexpr OpParamKind kKind = OpParamKind::Context;
  static OpParam describe() { return {kKind, sdk::DataType::None, 0, false, {""}}; }
  static const OpContext& bind(const OpCall& call, const NothingStored&, std::uint32_t) {
    return call.context;
  }
};

/// Reads attributes that become a T; `Held` is what a default of one is kept as.
template <class T>
struct AttributeReader {
  static_assert(!sizeof(T),
                "an attribute is an int64_t, int, bool, float, std::string, a vector of "
                "int64_t, float or std::string, or an sdk::Value");
};
#define BACKPLANE_ATTRIBUTE(type, number, held, expression)                            \
  template <>                                                                          \
  struct AttributeReader<type> {                                                       \
    using Held = held;                                                                 \
    static constexpr std::int32_t kType = number;                                      \
    static type read(const sdk::Node& node, const char* name) { return (expression); } \
  }
BACKPLANE_ATTRIBUTE(std::int64_t, BP_ATTRIBUTE_INT, std::int64_t, node.get_int(name, 0));
BACKPLANE_ATTRIBUTE(int, BP_ATTRIBUTE_INT, std::int64_t, static_cast<int>(node.get_int(name, 0)));
BACKPLANE_ATTRIBUTE(bool, BP_ATTRIBUTE_INT, std::int64_t, node.get_int(name, 0) != 0);
BACKPLANE_ATTRIBUTE(float, BP_ATTRIBUTE_FLOAT, float, node.get_float(name, 0));
BACKPLANE_ATTRIBUTE(std::string, BP_ATTRIBUTE_STRING, std::string, node.get_string(name, ""));
BACKPLANE_ATTRIBUTE(std::vector<std::int64_t>, BP_ATTRIBUTE_INTS, std::vector<std::int64_t>,
                    node.get_ints(name));
BACKPLANE_ATTRIBUTE(std::vector<float>, BP_ATTRIBUTE_FLOATS, std::vector<float>,
                    node.get_floats(name));
BACKPLANE_ATTRIBUTE(std::vector<std::string>, BP_ATTRIBUTE_STRINGS, std::vector<std::string>,
                    node.get_strings(name));
BACKPLANE_ATTRIBUTE(sdk::Value, BP_ATTRIBUTE_TENSOR, std::monostate, node.get_tensor(name));
#undef BACKPLANE_ATTRIBUTE

/// An attribute that the node or its default gives.
template <class T>
struct OpBinding<Attr<T>> {
  struct Stored {
    Stored(const sdk::Node& node, const OpParam& param)
        : value(read(node, param.name.name.c_str(), param.name.default_value)) {}
    T value;
  };
  static constexpr OpParamKind kKind = OpParamKind::Attribute;
  static OpParam describe() {
    return {kKind, sdk::DataType::None, AttributeReader<T>::kType, false, {""}};
  }
  static Attr<T> bind(const OpCall&, const Stored& stored, std::uint32_t) {
    return Attr<T>(stored.value);
  }
  static T read(const sdk::Node& node, const char* name, const ParamName::Default& otherwise) {
    using Held = typename AttributeReader<T>::Held;
    if constexpr (!std::is_same_v<Held, std::monostate>) {
      if (!node.has(name) && std::holds_alternative<Held>(otherwise))
        return static_cast<T>(std::get<Held>(otherwise));
    }
    if (!node.has(name)) sdk::invalid("the attribute '", name, "' is missing");
    return AttributeReader<T>::read(node, name);
  }
};
/// An attribute that may be missing.
template <class T>
struct OpBinding<Attr<std::optional<T>>> {
  struct Stored {
    Stored(const sdk::Node& node, const OpParam& param) {
      const char* name = param.name.name.c_str();
      if (node.has(name)) value = AttributeReader<T>::read(node, name);
    }
    std::optional<T> value;
  };
  static constexpr OpParamKind kKind = OpParamKind::Attribute;
  static OpParam describe() {
    return {kKind, sdk::DataType::None, AttributeReader<T>::kType, true, {""}};
  }
  static Attr<std::optional<T>> bind(const OpCall&, const Stored& stored, std::uint32_t) {
    return Attr<std::optional<T>>(stored.value);
  }
};

/// The parameters of a function or a lambda.
template <class F>
struct SignatureOf : SignatureOf<decltype(&F::operator())> {};
/// Their types, without const and references.
template <class... P>
struct Parameters {};
/// Of a function, and below of a lambda's operator().
template <class R, class... P>
struct SignatureOf<R (*)(P...)> {
  using Params = Parameters<std::decay_t<P>...>;
};
template <class R, class... P>
struct SignatureOf<R (*)(P...) noexcept> : SignatureOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) const> : SignatureOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) const noexcept> : SignatureOf<R (*)(P...)> {};

/// A node's kernel that calls a function.
class FunctionKernel {
 public:
  struct Prepared {
    const FunctionKernel* kernel;
    void compute(const sdk::ComputeContext& ctx) const { kernel->compute(ctx); }
  };
  FunctionKernel() = default;
  FunctionKernel(const FunctionKernel&) = delete;
  FunctionKernel& operator=(const FunctionKernel&) = delete;
  virtual ~FunctionKernel() = default;
  Prepared prepare(sdk::PrepareContext& ctx) const {
    prepare_outputs(ctx);
    return {this};
  }

 protected:
  virtual void prepare_outputs(sdk::PrepareContext& ctx) const = 0;
  virtual void compute(const sdk::ComputeContext& ctx) const = 0;
};

}  // namespace detail
}  // namespace backplane
