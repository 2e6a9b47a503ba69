// Custom operators of the program itself, for C++17: of functions, and of kernel classes as libraries have them.
//
//   backplane::CustomOpDomain ops("my.domain");
//   ops.Function("Scale", [](In<float> x, Attr<float> by, Out<float> y) {
//     for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * *by;
//   }, {"x", {"by", 2.0f}, "y"});
//   options.add_custom_ops(ops);
//
// Not part of backplane.hpp: it brings the plugin SDK with it. A domain called "" is ONNX's own: its functions and
// kernels are for operators that ONNX has, and the session's option "replace_ops" puts them before the providers'.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "backplane/host/function_op.hpp"

namespace backplane {

/// An operator that is a function, or one of several functions for different types. What is not said here has the
/// usual value; every function returns the object.
class FunctionOp {
 public:
  /// Gives the dims of each Out (a NewOut is left out) for a node and the dims of its inputs. A dim of -1 is not
  /// known yet. Without a rule, outputs have the dims of the first input.
  using ShapeRule = std::function<std::vector<sdk::Dims>(const sdk::Node& node,
                                                         const std::vector<sdk::Dims>& inputs)>;

  FunctionOp& shape(ShapeRule rule) { return rule_ = std::move(rule), *this; }
  FunctionOp& doc(std::string text) { return doc_ = std::move(text), *this; }
  /// The version of the domain from which on the operator is like this; a domain of ONNX's own: the versions of the
  /// standard operator that it computes.
  FunctionOp& since(int first, int last = std::numeric_limits<int>::max()) {
    first_ = first;
    last_ = last;
    return *this;
  }
  /// The provider on whose devices it stands in; the host copies what they have. Without one: the provider by which
  /// the host evaluates constants.
  FunctionOp& provider(std::string name) { return provider_ = std::move(name), *this; }
  /// Among kernels that take a node, the highest wins.
  FunctionOp& priority(int value) { return priority_ = value, *this; }
  /// The output may be written over the input.
  FunctionOp& in_place(std::uint32_t output, std::uint32_t input) {
    in_place_.emplace_back(output, input);
    return *this;
  }
  /// Two calls on the same values may differ: never folded.
  FunctionOp& not_deterministic() { return flags_ |= BP_KERNEL_NOT_DETERMINISTIC, *this; }
  /// The function is called by one thread at a time for a node.
  FunctionOp& not_concurrent() { return flags_ |= BP_KERNEL_NOT_CONCURRENT, *this; }
  /// Names an operator for OpContext::call, in order.
  FunctionOp& uses(sdk::OperatorDraft draft) { return used_.push_back(std::move(draft)), *this; }

 private:
  friend class CustomOpDomain;
  template <class F, class... P>
  friend class BoundFunction;
  using Make = std::function<std::unique_ptr<detail::FunctionKernel>(
      std::shared_ptr<const FunctionOp>, const sdk::CreateContext&, const sdk::Node&)>;

  bool takes(const sdk::Node& node) const;
  void check_node(const sdk::Node& node) const;
  std::vector<sdk::Dims> output_dims(const sdk::Node& node,
                                     const std::vector<sdk::Dims>& inputs) const;
  void infer(sdk::InferContext& ctx) const;
  void prepare(const sdk::Node& node, sdk::PrepareContext& ctx) const;
  /// The parameters of one side, in order.
  template <class Pick>
  std::vector<const detail::OpParam*> params(Pick pick) const {
    std::vector<const detail::OpParam*> picked;
    for (const detail::OpParam& param : params_) {
      if (pick(param.kind)) picked.push_back(&param);
    }
    return picked;
  }

  std::string op_type_, doc_, provider_;
  std::vector<detail::OpParam> params_;
  ShapeRule rule_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> in_place_;
  std::vector<sdk::OperatorDraft> used_;
  Make make_;
  int first_ = 1, last_ = std::numeric_limits<int>::max();
  int priority_ = 0;
  std::uint32_t flags_ = 0;
};

/// A function of type F with parameters P, for one node.
template <class F, class... P>
class BoundFunction final : public detail::FunctionKernel {
 public:
  BoundFunction(std::shared_ptr<const FunctionOp> op, std::shared_ptr<const F> function,
                const sdk::CreateContext& ctx, const sdk::Node& node)
      : BoundFunction(std::move(op), std::move(function), ctx, node,
                      std::index_sequence_for<P...>()) {}

 private:
  template <std::size_t... kAt>
  BoundFunction(std::shared_ptr<const FunctionOp> op, std::shared_ptr<const F> function,
                const sdk::CreateContext& ctx, const sdk::Node& node, std::index_sequence<kAt...>)
      : op_(std::move(op)),
        function_(std::move(function)),
        node_(node),
        stored_{typename detail::OpBinding<P>::Stored(node, op_->params_[kAt])...} {
    for (const sdk::OperatorDraft& draft : op_->used_) operators_.emplace_back(ctx, draft);
  }

  void prepare_outputs(sdk::PrepareContext& ctx) const override { op_->prepare(node_, ctx); }

  void compute(const sdk::ComputeContext& ctx) const override {
    try {
      call(ctx, std::index_sequence_for<P...>());
    } catch (const Error& error) {  // the host interface's, which the SDK does not know
      throw sdk::Error(error.code(), error.what());
    }
  }

  template <std::size_t... kAt>
  void call(const sdk::ComputeContext& ctx, std::index_sequence<kAt...>) const {
    const OpContext context(ctx, operators_);
    const detail::OpCall call{ctx, context};
    (*function_)(detail::OpBinding<P>::bind(call, std::get<kAt>(stored_), place_of(kAt))...);
  }

  /// Its place among the inputs, or among the outputs.
  static constexpr std::uint32_t place_of(std::size_t index) {
    constexpr std::array<detail::OpParamKind, sizeof...(P)> kKinds{detail::OpBinding<P>::kKind...};
    std::uint32_t place = 0;
    for (std::size_t i = 0; i < index; ++i) {
      const bool same = detail::is_input(kKinds[index]) ? detail::is_input(kKinds[i])
                                                        : detail::is_output(kKinds[i]);
      place += same ? 1 : 0;
    }
    return place;
  }

  std::shared_ptr<const FunctionOp> op_;
  std::shared_ptr<const F> function_;
  sdk::Node node_;  // valid until the kernel is destroyed
  std::tuple<typename detail::OpBinding<P>::Stored...> stored_;
  std::vector<sdk::Operator> operators_;
};

/// Custom operators of this process. Filled, then given to options: from then on nothing can be added.
///
/// Lifetime: what sessions need of it lives as long as they do.
/// Threads:  one at a time; functions and kernels are called from any.
class CustomOpDomain {
 public:
  /// `name` is for messages; without it, the domain's.
  explicit CustomOpDomain(std::string domain, std::string name = "");

  /// An operator by its schema, as a library has one. Its domain is the schema's own.
  CustomOpDomain& schema(sdk::OpSchema schema);
  /// A kernel for an operator of any domain, for devices of the provider; "" is the one by which the host evaluates
  /// constants.
  CustomOpDomain& kernel(sdk::KernelEntry kernel, const std::string& provider = "");
  /// An operator that is one function. Its parameters say what it has: In<T>, std::optional<In<T>>, and last Ins<T> for
  /// inputs; Out<T>, std::optional<Out<T>>, NewOut<T> for outputs; Attr<T>; and `const OpContext&`. `names` go with the
  /// parameters, the context left out; without them inputs are called x0, x1 ..., outputs y0 ..., attributes a0 ....
  /// Another function under the same name is the same operator for other types, with the same names.
  /// What it throws ends the run: sdk::failed(...), backplane::Error, or any std::exception.
  /// (Not in the house's spelling of functions: so that it reads as users know it.)
  template <class F>
  FunctionOp& Function(const std::string& op_type, F function,
                       std::initializer_list<ParamName> names = {}) {
    return add(bind(op_type, std::move(function), typename detail::SignatureOf<F>::Params()),
               names);
  }

  /// What options.add_custom_ops takes.
  operator const bp_plugin*() const;

 private:
  struct Store;

  Store& open_store();
  FunctionOp& add(std::shared_ptr<FunctionOp> op, std::initializer_list<ParamName> names);
  static void name_params(FunctionOp& op, std::initializer_list<ParamName> names);
  static const char* letter_of(detail::OpParamKind kind);
  static void check_default(const FunctionOp& op, const detail::OpParam& param);
  [[noreturn]] static void refuse(const FunctionOp& op, const std::string& why);
  template <class F, class... P>
  static std::shared_ptr<FunctionOp> bind(const std::string& op_type, F function,
                                          detail::Parameters<P...>) {
    auto op = std::make_shared<FunctionOp>();
    op->op_type_ = op_type;
    op->params_ = {detail::OpBinding<P>::describe()...};
    op->make_ = [shared = std::make_shared<const F>(std::move(function))](
                    std::shared_ptr<const FunctionOp> its, const sdk::CreateContext& ctx,
                    const sdk::Node& node) -> std::unique_ptr<detail::FunctionKernel> {
      return std::make_unique<BoundFunction<F, P...>>(std::move(its), shared, ctx, node);
    };
    return op;
  }

  std::shared_ptr<Store> store_;
};

/// What sessions keep of a domain.
struct CustomOpDomain::Store {
  Store(std::string its_domain, std::string its_name)
      : domain(std::move(its_domain)), name(its_name.empty() ? domain : std::move(its_name)) {
    if (name.empty()) name = "ai.onnx";
  }

  const bp_plugin* seal(const std::shared_ptr<Store>& self) {
    if (sealed) return &raw;
    this_store = self;
    for (const std::shared_ptr<FunctionOp>& op : functions) {
      if (!domain.empty() && schema_versions[op->op_type_].insert(op->first_).second)
        schemas.push_back(schema_of(same_as(*op)));
      kernels[op->provider_].push_back(kernel_of(op));
    }
    for (sdk::OpSchema& schema : schemas) schema_pointers.push_back(schema.raw());
    raw.abi_minor_built = BP_ABI_MINOR;
    raw.name = name.c_str();
    raw.vendor = "";
    raw.version = "1";
    raw.self = this;
    raw.schemas = schema_pointers.data();
    raw.schema_count = static_cast<std::uint32_t>(schema_pointers.size());
    raw.init = [](void* store, const bp_host_api* api) -> bp_status* {
      sdk::host_table = api;
      return sdk::guarded([&] { live().keep(static_cast<Store*>(store)->this_store.lock()); });
    };
    // The host's table stays: other domains of the process use it, and it is valid for ever.
    raw.shutdown = [](void* store) { live().drop(static_cast<Store*>(store)); };
    raw.kernels_for = [](void* store, const char* provider, void* sink_ctx,
                         bp_kernel_sink sink) -> bp_status* {
      const auto& all = static_cast<const Store*>(store)->kernels;
      const auto list = all.find(provider);
      return list == all.end() ? nullptr : sdk::show_kernels(list->second, sink_ctx, sink);
    };
    sealed = true;
    return &raw;
  }

  /// The domains that the host works with; never destroyed, since it may do so until the process ends.
  struct Live {
    void keep(std::shared_ptr<Store> store) {
      const std::lock_guard<std::mutex> lock(mutex);
      stores.insert(std::move(store));
    }
    void drop(Store* store) {
      const std::shared_ptr<Store> last =
          store->this_store.lock();  // may be the end of it: outside of the lock
      const std::lock_guard<std::mutex> lock(mutex);
      stores.erase(last);
    }
    std::mutex mutex;
    std::set<std::shared_ptr<Store>> stores;
  };
  static Live& live() {
    static auto* const all = new Live;
    return *all;
  }

  /// All functions of the operator and version, which must look alike.
  std::vector<std::shared_ptr<const FunctionOp>> same_as(const FunctionOp& op) const {
    std::vector<std::shared_ptr<const FunctionOp>> same;
    for (const std::shared_ptr<FunctionOp>& other : functions) {
      if (other->op_type_ != op.op_type_ || other->first_ != op.first_) continue;
      bool alike = other->params_.size() == op.params_.size();
      for (std::size_t i = 0; alike && i < op.params_.size(); ++i) {
        const detail::OpParam &a = other->params_[i], &b = op.params_[i];
        alike = a.kind == b.kind && a.name.name == b.name.name &&
                a.attribute_type == b.attribute_type &&
                a.attribute_optional == b.attribute_optional;
      }
      if (!alike)
        throw Error(BACKPLANE_INVALID_ARGUMENT, "functions for '" + domain + "::" + op.op_type_ +
                                                    "' differ in more than their element types");
      same.push_back(other);
    }
    return same;
  }

  static std::string type_param(const detail::OpParam& param) { return "T_" + param.name.name; }

  sdk::OpSchema schema_of(const std::vector<std::shared_ptr<const FunctionOp>>& overloads) const {
    const FunctionOp& op = *overloads.front();
    sdk::OpSchema schema = sdk::OpSchema(domain, op.op_type_, op.first_)
                               .doc(op.doc_)
                               .infer([overloads](sdk::InferContext& ctx) {
                                 for (const auto& overload : overloads) {
                                   if (overload->takes(ctx.node())) return overload->infer(ctx);
                                 }
                                 sdk::invalid("no function is there for the types of its inputs");
                               });
    for (std::size_t i = 0; i < op.params_.size(); ++i) {
      const detail::OpParam& param = op.params_[i];
      if (param.type != sdk::DataType::None) add_type_param(schema, param, types_of(overloads, i));
      add_param(schema, param);
    }
    return schema;
  }

  /// The types that the overloads have for their parameter `index`, each once.
  static std::vector<sdk::DataType> types_of(
      const std::vector<std::shared_ptr<const FunctionOp>>& overloads, std::size_t index) {
    std::vector<sdk::DataType> types;
    for (const auto& overload : overloads) {
      const sdk::DataType type = overload->params_[index].type;
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
    return types;
  }

  static void add_type_param(sdk::OpSchema& schema, const detail::OpParam& param,
                             const std::vector<sdk::DataType>& types) {
    std::move(schema).type_param(type_param(param), types);
  }

  static void add_param(sdk::OpSchema& schema, const detail::OpParam& param) {
    const std::string& text = param.name.name;
    switch (param.kind) {
      case detail::OpParamKind::Input:
        std::move(schema).input(text, type_param(param));
        break;
      case detail::OpParamKind::OptionalInput:
        std::move(schema).input(text, type_param(param), BP_PARAM_OPTIONAL);
        break;
      case detail::OpParamKind::Inputs:
        std::move(schema).variadic_input(text, type_param(param), 0);
        break;
      case detail::OpParamKind::Output:
      case detail::OpParamKind::NewOutput:
        std::move(schema).output(text, type_param(param));
        break;
      case detail::OpParamKind::OptionalOutput:
        std::move(schema).output(text, type_param(param), BP_PARAM_OPTIONAL);
        break;
      case detail::OpParamKind::Attribute:
        add_attribute(schema, param);
        break;
      case detail::OpParamKind::Context:
        break;
    }
  }

  static void add_attribute(sdk::OpSchema& schema, const detail::OpParam& param) {
    std::visit(
        [&](const auto& value) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
            std::move(schema).attribute(param.name.name, param.attribute_type,
                                        !param.attribute_optional);
          } else {
            std::move(schema).attribute(sdk::Attribute(param.name.name, value));
          }
        },
        param.name.default_value);
  }

  sdk::KernelEntry kernel_of(const std::shared_ptr<FunctionOp>& op) const {
    sdk::KernelBuilder builder = sdk::op(op->op_type_, domain);
    builder.name((domain.empty() ? name : domain) + ":" + op->op_type_)
        .priority(op->priority_)
        .flags(op->flags_);
    // A schema of our own is for one version, until the next one of the name.
    builder.since(op->first_, domain.empty() ? op->last_ : op->first_);
    std::uint32_t inputs = 0, outputs = 0;
    for (const detail::OpParam& param : op->params_) {
      if (param.kind == detail::OpParamKind::NewOutput) builder.flags(BP_KERNEL_DATA_DEPENDENT);
      if (!domain.empty() && param.type != sdk::DataType::None)
        builder.types(type_param(param), {param.type});
      if (domain.empty() && detail::is_input(param.kind))
        builder.input_types(static_cast<int>(inputs), {param.type});
      inputs += detail::is_input(param.kind) ? 1 : 0;
      outputs += detail::is_output(param.kind) ? 1 : 0;
    }
    if (!op->provider_.empty()) {  // whose devices may have memory of their own
      if (inputs > 0) builder.roles({BP_INPUT_HOST_DATA});
      if (outputs > 0) builder.output_roles({BP_OUTPUT_HOST});
    }
    const std::shared_ptr<const FunctionOp> shared = op;
    return builder.kernel_of([shared](const sdk::CreateContext& ctx, const sdk::Node& node) {
      shared->check_node(node);
      return shared->make_(shared, ctx, node);
    });
  }

  std::string domain, name;
  bool sealed = false;
  std::vector<std::shared_ptr<FunctionOp>> functions;
  std::map<std::string, std::set<int>> schema_versions;
  std::deque<sdk::OpSchema> schemas;
  std::vector<const bp_op_schema*> schema_pointers;
  std::map<std::string, sdk::KernelList> kernels;  ///< by provider
  std::weak_ptr<Store> this_store;
  bp_plugin raw = sdk::abi_struct<bp_plugin>();
};

inline CustomOpDomain::CustomOpDomain(std::string domain, std::string name)
    : store_(std::make_shared<Store>(std::move(domain), std::move(name))) {}

inline CustomOpDomain& CustomOpDomain::schema(sdk::OpSchema schema) {
  open_store().schemas.push_back(std::move(schema));
  return *this;
}

inline CustomOpDomain& CustomOpDomain::kernel(sdk::KernelEntry kernel,
                                              const std::string& provider) {
  open_store().kernels[provider].push_back(std::move(kernel));
  return *this;
}

inline CustomOpDomain::operator const bp_plugin*() const { return store_->seal(store_); }

inline CustomOpDomain::Store& CustomOpDomain::open_store() {
  if (!store_->sealed) return *store_;
  throw Error(BACKPLANE_INVALID_ARGUMENT,
              "the domain '" + store_->domain + "' is in use already: nothing can be added to it");
}

inline FunctionOp& CustomOpDomain::add(std::shared_ptr<FunctionOp> op,
                                       std::initializer_list<ParamName> names) {
  name_params(*op, names);
  Store& store = open_store();
  store.functions.push_back(std::move(op));
  return *store.functions.back();
}

inline void CustomOpDomain::name_params(FunctionOp& op, std::initializer_list<ParamName> names) {
  std::map<std::string, std::uint32_t> counts;  // by letter
  const ParamName* name = names.begin();
  for (detail::OpParam& param : op.params_) {
    if (param.kind == detail::OpParamKind::Context) continue;
    if (name != names.end()) {
      param.name = *name++;
    } else if (names.size() == 0) {
      const std::string letter = letter_of(param.kind);
      param.name = letter + std::to_string(counts[letter]++);
    } else {
      refuse(op, "it has more parameters than names");
    }
    check_default(op, param);
  }
  if (name != names.end()) refuse(op, "it has fewer parameters than names");
}

inline const char* CustomOpDomain::letter_of(detail::OpParamKind kind) {
  if (kind == detail::OpParamKind::Attribute) return "a";
  return detail::is_input(kind) ? "x" : "y";
}

inline void CustomOpDomain::check_default(const FunctionOp& op, const detail::OpParam& param) {
  if (std::holds_alternative<std::monostate>(param.name.default_value)) return;
  if (param.kind != detail::OpParamKind::Attribute || param.attribute_optional)
    refuse(op, "'" + param.name.name + "' cannot have a default");
  sdk::Attribute given = std::visit(
      [&](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
          return sdk::Attribute(param.name.name, std::int64_t{0});
        } else {
          return sdk::Attribute(param.name.name, value);
        }
      },
      param.name.default_value);
  if (given.raw()->type != param.attribute_type)
    refuse(op, "the default of '" + param.name.name + "' is of another type than the attribute");
}

inline void CustomOpDomain::refuse(const FunctionOp& op, const std::string& why) {
  throw Error(BACKPLANE_INVALID_ARGUMENT, "function '" + op.op_type_ + "': " + why);
}

inline bool FunctionOp::takes(const sdk::Node& node) const {
  const auto inputs = params(detail::is_input);
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const std::size_t at = std::min(i, inputs.size() - 1);
    if (inputs.empty() || (at < i && inputs[at]->kind != detail::OpParamKind::Inputs)) return false;
    const sdk::ValueInfo value = node.input(i);
    if (value && value.type() != sdk::DataType::None && value.type() != inputs[at]->type)
      return false;
  }
  return true;
}

inline void FunctionOp::check_node(const sdk::Node& node) const {
  const auto inputs = params(detail::is_input), outputs = params(detail::is_output);
  if (!takes(node) || node.output_count() > outputs.size())
    sdk::unsupported("the function has no parameters for all of the node's inputs and outputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->kind == detail::OpParamKind::Input && !node.input(i))
      sdk::unsupported("the function needs the input '", inputs[i]->name.name, "'");
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i]->kind != detail::OpParamKind::OptionalOutput && !node.output(i))
      sdk::unsupported("the function writes the output '", outputs[i]->name.name,
                       "', which the node leaves out");
  }
}

inline std::vector<sdk::Dims> FunctionOp::output_dims(const sdk::Node& node,
                                                      const std::vector<sdk::Dims>& inputs) const {
  const auto sized = params([](detail::OpParamKind kind) {
    return kind == detail::OpParamKind::Output || kind == detail::OpParamKind::OptionalOutput;
  });
  if (sized.empty()) return {};
  if (!rule_) {
    if (inputs.empty()) sdk::invalid("an operator without inputs needs a shape rule");
    return std::vector<sdk::Dims>(sized.size(), inputs.front());
  }
  std::vector<sdk::Dims> dims = rule_(node, inputs);
  if (dims.size() != sized.size())
    sdk::invalid("its shape rule gives ", dims.size(), " shapes for ", sized.size(), " outputs");
  return dims;
}

inline void FunctionOp::infer(sdk::InferContext& ctx) const {
  const sdk::Node node = ctx.node();
  std::vector<sdk::Dims> inputs;
  bool ranks_known = true;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const sdk::ValueInfo value = node.input(i);
    ranks_known = ranks_known && (!value || value.rank() >= 0);
    inputs.emplace_back();
    if (value && value.rank() >= 0) inputs.back().assign(value.dims().begin(), value.dims().end());
  }
  const std::vector<sdk::Dims> dims =
      ranks_known ? output_dims(node, inputs) : std::vector<sdk::Dims>();
  const auto outputs = params(detail::is_output);
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < node.output_count(); ++i) {
    const bool is_sized = outputs.at(i)->kind != detail::OpParamKind::NewOutput;
    if (!is_sized || !ranks_known) {
      ctx.set_output_type(i, outputs[i]->type);
    } else if (!rule_ && node.input(0).type() == outputs[i]->type) {
      ctx.set_output_like(i, node.input(0));  // with its symbols
    } else {
      ctx.set_output(i, outputs[i]->type, dims[next]);
    }
    next += is_sized ? 1 : 0;
  }
}

inline void FunctionOp::prepare(const sdk::Node& node, sdk::PrepareContext& ctx) const {
  std::vector<sdk::Dims> inputs;
  for (std::uint32_t i = 0; i < ctx.input_count(); ++i) {
    inputs.emplace_back();
    const sdk::Tensor tensor = ctx.input(i);
    if (tensor.present()) inputs.back().assign(tensor.dims().begin(), tensor.dims().end());
  }
  const std::vector<sdk::Dims> dims = output_dims(node, inputs);
  const auto outputs = params(detail::is_output);
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < ctx.output_count(); ++i) {
    if (outputs.at(i)->kind == detail::OpParamKind::NewOutput) {
      ctx.set_output_unknown(i, outputs[i]->type, -1);
    } else {
      if (ctx.output_wanted(i)) ctx.set_output(i, outputs[i]->type, dims[next]);
      ++next;
    }
  }
  for (const auto& [output, input] : in_place_) ctx.allow_in_place(output, input);
}

}  // namespace backplane
