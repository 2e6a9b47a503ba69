// Backplane SDK: kernels.
//
// A kernel is a class with a constructor and `prepare`; what `prepare` returns has `compute`:
//
//   class Scale {
//    public:
//     struct Prepared {
//       float factor;
//       void compute(const sdk::ComputeContext& ctx) const;   // runs often: allocates nothing, takes no lock
//     };
//     Scale(const sdk::CreateContext& ctx, const sdk::Node& node);   // reads attributes; may throw unsupported()
//     Prepared prepare(sdk::PrepareContext& ctx) const;              // checks shapes, says what the outputs are
//   };
//
//   sdk::KernelList scale_kernels() {
//     return {sdk::op("Scale", "my.domain").name("cpu:scale").types("T", {DataType::Float}).kernel<Scale>()};
//   }
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backplane/plugin/graph.hpp"

namespace backplane::sdk {

/// The session's share of the thread pool: see bp_host_api::parallel_for.
class Threads {
 public:
  explicit Threads(bp_threads* raw) : raw_(raw) {}
  /// At least 1.
  unsigned count() const { return host().thread_count(raw_); }
  /// Calls body(begin, end, worker) over [0, n), in parts of at least `grain` where possible, and returns when all is done.
  /// `worker` is less than count(). `body` must not throw, and must not loop in parallel itself.
  template <class Body>
  void parallel_for(std::uint64_t n, std::uint64_t grain, const Body& body) const {
    host().parallel_for(
        raw_, n, grain,
        [](void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
          (*static_cast<const Body*>(argument))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
  bp_threads* raw() const { return raw_; }

 private:
  bp_threads* raw_;
};

/// What a kernel's constructor gets besides the node.
class CreateContext {
 public:
  explicit CreateContext(const bp_create_ctx* raw) : raw_(raw) {}
  /// The plugin's own device; nullptr for a guest.
  template <class Device>
  Device* device() const {
    return reinterpret_cast<Device*>(raw_->device);
  }
  Threads threads() const { return Threads(raw_->threads); }
  /// Results must not change from run to run.
  bool deterministic() const { return (raw_->flags & BP_CREATE_DETERMINISTIC) != 0; }
  const bp_create_ctx* raw() const { return raw_; }

 private:
  const bp_create_ctx* raw_;
};

/// What a packing function gets: see bp_pack_ctx.
class PackContext {
 public:
  explicit PackContext(const bp_pack_ctx* raw) : raw_(raw) {}
  /// By its place in the request's list of inputs; plain, in host memory, until `pack` returns.
  Tensor source(std::size_t index) const { return Tensor(raw_->sources[index]); }
  std::size_t source_count() const { return static_cast<std::size_t>(raw_->source_count); }
  /// Memory of the device, all of which is to be filled.
  Tensor target() const { return Tensor(raw_->target); }
  /// The device's, drained after the call; nullptr where it has none.
  bp_stream* stream() const { return raw_->stream; }
  Threads threads() const { return Threads(raw_->threads); }

 private:
  const bp_pack_ctx* raw_;
};

/// What `prepare` gets and tells: see bp_prepare_api.
class PrepareContext {
 public:
  explicit PrepareContext(bp_prepare_ctx* raw) : raw_(raw) {}
  std::uint32_t input_count() const { return raw_->input_count; }
  std::uint32_t output_count() const { return raw_->output_count; }
  /// Absent inputs, those past the end too, have present() false.
  __attribute__((visibility("hidden"))) Tensor input(std::uint32_t index) const {
    static const bp_tensor kAbsent = abi_struct<bp_tensor>();
    return Tensor(index < raw_->input_count ? raw_->inputs[index]->tensor : &kAbsent);
  }
  /// Of an input that may be no tensor; `index` less than input_count().
  Value input_value(std::uint32_t index) const { return Value(raw_->inputs[index]); }
  /// Its elements are the same in every run: request_pack may name it.
  bool input_constant(std::uint32_t index) const {
    return index < raw_->input_count && raw_->api->input_constant(raw_, index) != 0;
  }
  /// False for an output that the node leaves out: nothing need be said of it.
  bool output_wanted(std::uint32_t index) const {
    return index < raw_->output_count && raw_->api->output_wanted(raw_, index) != 0;
  }
  Threads threads() const { return Threads(raw_->threads); }
  /// As CreateContext's.
  bool deterministic() const { return (raw_->flags & BP_CREATE_DETERMINISTIC) != 0; }

  // What follows throws an Error where the host refuses an argument: let it pass.

  /// Dims are in elements, none negative.
  void set_output(std::uint32_t output, DataType type, DimsView dims) {
    check(raw_->api->set_output(raw_, output, static_cast<bp_dtype>(type),
                                static_cast<std::int32_t>(dims.size()), dims.data()));
  }
  /// `compute` calls alloc_output for it; `rank` -1: not known either. Needs BP_KERNEL_DATA_DEPENDENT.
  void set_output_unknown(std::uint32_t output, DataType type, int rank) {
    check(raw_->api->set_output_unknown(raw_, output, static_cast<bp_dtype>(type), rank));
  }
  /// A sequence, optional or map, by ONNX's type string: "seq(tensor(float))".
  void set_output_type(std::uint32_t output, const char* type) {
    check(raw_->api->set_output_type(raw_, output, type));
  }
  /// After set_output: the format that a rewrite promised for the value, and the bytes that it takes.
  void set_format(std::uint32_t output, std::uint32_t format, std::uint64_t bytes,
                  std::uint64_t alignment = 64) {
    check(raw_->api->set_format(raw_, output, format, bytes, alignment));
  }
  /// The output may lie in the input's memory; `compute` must be right either way.
  void allow_in_place(std::uint32_t output, std::uint32_t input) {
    check(raw_->api->allow_in_place(raw_, output, input));
  }
  /// The output is the input from byte `offset` on, with `strides` in elements, one for each axis of the output (nullptr: dense).
  /// Where it is not granted, `compute` copies.
  void set_view(std::uint32_t output, std::uint32_t input, std::uint64_t offset = 0,
                const std::int64_t* strides = nullptr) {
    check(raw_->api->set_view(raw_, output, input, offset, strides));
  }
  /// The input is to be made inside the output, from its byte `offset` on, with `strides` in elements, one for each axis of the
  /// input (nullptr: dense). Where that was not arranged, ComputeContext::input_inside is false and `compute` copies.
  void set_inside(std::uint32_t input, std::uint32_t output, std::uint64_t offset,
                  const std::int64_t* strides = nullptr) {
    check(raw_->api->set_inside(raw_, input, output, offset, strides));
  }
  /// `compute` heeds Tensor::strides of the input, which is dense where this was not called; likewise the output's below.
  void allow_strided_input(std::uint32_t input) {
    check(raw_->api->allow_strided_input(raw_, input));
  }
  void allow_strided_output(std::uint32_t output) {
    check(raw_->api->allow_strided_output(raw_, output));
  }
  /// `compute` reads no element of it, but a packed form: it may have no memory on the device.
  void ignore_input(std::uint32_t input) { check(raw_->api->ignore_input(raw_, input)); }
  /// Scratch memory of the device's for each `compute`: ComputeContext::workspace, with anything in it.
  void set_workspace(std::uint64_t bytes, std::uint64_t alignment = 64) {
    check(raw_->api->set_workspace(raw_, bytes, alignment));
  }
  /// The algorithm that was chosen, for explanations and profiles: "winograd 4x4". Copied.
  void set_variant(const std::string& text) { check(raw_->api->set_variant(raw_, text.c_str())); }
  /// Of one `compute`: operations and bytes; 0 is unknown.
  void set_cost(std::uint64_t flops, std::uint64_t bytes_moved) {
    bp_cost cost = abi_struct<bp_cost>();
    cost.flops = flops;
    cost.bytes_moved = bytes_moved;
    check(raw_->api->set_cost(raw_, &cost));
  }

  /// Asks for a packed constant of `bytes` bytes, made by `Packer::pack(const PackContext&) const` of the node's constant
  /// `inputs`; `packer` must live as long as the kernel. All that shapes the result is in `key`. The result is
  /// ctx.packed(index) in `compute`.
  template <class Packer>
  std::uint32_t request_pack(const std::string& key, std::initializer_list<std::uint32_t> inputs,
                             std::uint64_t bytes, const Packer* packer,
                             std::uint64_t alignment = 64) {
    bp_pack_request request = abi_struct<bp_pack_request>();
    request.key = key.c_str();
    request.inputs = inputs.begin();
    request.input_count = static_cast<std::uint32_t>(inputs.size());
    request.bytes = bytes;
    request.alignment = alignment;
    request.self = const_cast<void*>(static_cast<const void*>(packer));
    request.pack = [](void* self, const bp_pack_ctx* ctx) {
      return guarded([&] { static_cast<const Packer*>(self)->pack(PackContext(ctx)); });
    };
    std::uint32_t index = 0;
    check(raw_->api->request_pack(raw_, &request, &index));
    return index;
  }
  bp_prepare_ctx* raw() const { return raw_; }

 private:
  bp_prepare_ctx* raw_;
};

/// What `compute` gets: see bp_kctx.
class ComputeContext {
 public:
  explicit ComputeContext(const bp_kctx* raw) : raw_(raw) {}
  std::uint32_t input_count() const { return raw_->input_count; }
  std::uint32_t output_count() const { return raw_->output_count; }
  /// Inputs and outputs that the node has; for optional ones ask has_input first.
  Tensor input(std::uint32_t index) const { return Tensor(raw_->inputs[index]->tensor); }
  Tensor output(std::uint32_t index) const { return Tensor(raw_->outputs[index]->tensor); }
  /// False also for an index past the end.
  bool has_input(std::uint32_t index) const {
    return index < raw_->input_count && raw_->inputs[index]->kind != BP_VALUE_ABSENT;
  }
  bool has_output(std::uint32_t index) const {
    return index < raw_->output_count && raw_->outputs[index]->kind != BP_VALUE_ABSENT;
  }
  /// Where it may be no tensor; `index` less than the count.
  Value input_value(std::uint32_t index) const { return Value(raw_->inputs[index]); }
  Value output_value(std::uint32_t index) const { return Value(raw_->outputs[index]); }
  /// By the index that request_pack gave; as many as were asked for.
  Tensor packed(std::uint32_t index) const { return Tensor(raw_->packed[index]); }
  std::uint32_t packed_count() const { return raw_->packed_count; }
  /// What set_workspace asked for; shared with nothing during the call.
  Tensor workspace() const { return Tensor(raw_->workspace); }
  /// The input already lies where set_inside wanted it: there is nothing to copy.
  bool input_inside(std::uint32_t index) const {
    return (raw_->input_state[index] & BP_INPUT_INSIDE) != 0;
  }
  /// Where the work goes; nullptr on a device without streams.
  bp_stream* stream() const { return raw_->stream; }
  Threads threads() const { return Threads(raw_->threads); }
  /// The run is to end: throw Error(BP_CANCELLED, ...) soon.
  bool cancelled() const { return raw_->api->cancelled(raw_) != 0; }
  /// Gives memory to an output whose size was unknown, once in each call that succeeds. The tensor is valid until `compute`
  /// returns; an Error where the rank is not what `prepare` said or memory is short.
  Tensor alloc_output(std::uint32_t index, DimsView dims) const {
    const bp_tensor* tensor = nullptr;
    check(raw_->api->alloc_output(raw_, index, static_cast<std::int32_t>(dims.size()), dims.data(),
                                  &tensor));
    return Tensor(tensor);
  }
  /// A handle of the device's own API (BP_NATIVE_*), that of a tensor's memory for BP_NATIVE_BUFFER; 0 in host memory, an
  /// Error where the provider shows no such handle. Borrowed until `compute` returns.
  std::uint64_t native(std::int32_t kind, const bp_tensor* tensor = nullptr) const {
    std::uint64_t handle = 0;
    check(raw_->api->native(raw_, kind, tensor, &handle));
    return handle;
  }
  const bp_kctx* raw() const { return raw_; }

 private:
  const bp_kctx* raw_;
};

/// The strings and arrays behind a bp_kernel_def, which points into them.
struct KernelStorage {
  struct Constraint {
    std::string param;
    std::vector<std::string> types;
    std::vector<const char*> type_pointers;
    bp_type_constraint raw;
  };
  std::string domain, op_type, name;
  std::vector<std::unique_ptr<Constraint>> constraints;
  std::vector<const bp_type_constraint*> constraint_pointers;
  std::vector<std::int32_t> input_roles, output_roles;
  std::shared_ptr<void> self;
  bp_kernel_def def = abi_struct<bp_kernel_def>();
};

/// An entry of a kernel registry.
using KernelEntry = std::shared_ptr<const KernelStorage>;
using KernelList = std::vector<KernelEntry>;

/// Builds an entry: op("Softmax").since(13).types("T", {...}).kernel<Softmax>().
class KernelBuilder {
 public:
  KernelBuilder(std::string op_type, std::string domain)
      : storage_(std::make_shared<KernelStorage>()) {
    storage_->op_type = std::move(op_type);
    storage_->domain = std::move(domain);
    storage_->def.since_min = 1;
    storage_->def.since_max = std::numeric_limits<std::int32_t>::max();
  }
  /// The name shown to users.
  KernelBuilder& name(std::string text) { return storage_->name = std::move(text), *this; }
  /// The since-versions of the schema that the kernel implements, first to last.
  KernelBuilder& since(int first, int last = std::numeric_limits<std::int32_t>::max()) {
    storage_->def.since_min = first;
    storage_->def.since_max = last;
    return *this;
  }
  /// Among kernels that take the node the highest wins, and the later one of equals; 0 by default.
  KernelBuilder& priority(int value) { return storage_->def.priority = value, *this; }
  /// BP_KERNEL_* flags.
  KernelBuilder& flags(std::uint32_t bits) { return storage_->def.flags |= bits, *this; }
  /// The types of a type parameter of the schema, in the versions that have it: see bp_type_constraint.
  KernelBuilder& types(const std::string& param, std::initializer_list<DataType> allowed) {
    std::vector<std::string> texts;
    for (const DataType type : allowed) texts.push_back(tensor_type(type));
    return type_strings(param, std::move(texts));
  }
  KernelBuilder& types(const std::string& param, const std::vector<DataType>& allowed) {
    std::vector<std::string> texts;
    for (const DataType type : allowed) texts.push_back(tensor_type(type));
    return type_strings(param, std::move(texts));
  }
  /// With ONNX type strings, for sequences, optionals and maps.
  KernelBuilder& type_strings(const std::string& param, std::vector<std::string> allowed) {
    add_constraint(param, -1, std::move(allowed));
    return *this;
  }
  /// Types of one input, for operators of domains without a schema (rewrites).
  KernelBuilder& input_types(int input, std::initializer_list<DataType> allowed) {
    std::vector<std::string> texts;
    for (const DataType type : allowed) texts.push_back(tensor_type(type));
    add_constraint("", input, std::move(texts));
    return *this;
  }
  /// BP_INPUT_* of each input; inputs past the end are like the last.
  KernelBuilder& roles(std::initializer_list<std::int32_t> input_roles) {
    return storage_->input_roles = input_roles, *this;
  }
  /// BP_OUTPUT_* of each output, likewise.
  KernelBuilder& output_roles(std::initializer_list<std::int32_t> roles) {
    return storage_->output_roles = roles, *this;
  }
  /// Looks closer before a node is placed: returns where the kernel takes it, throws unsupported(reason) where not.
  KernelBuilder& match(void (*function)(const Node& node)) {
    match_ = function;
    return *this;
  }
  /// What a node that `match` takes is expected to cost, of what is known before it is placed: read with
  /// `placement=cost`. `function` fills what it knows, exec_ns in nanoseconds, and leaves the rest 0.
  KernelBuilder& cost(void (*function)(const Node& node, bp_cost& cost)) {
    cost_ = function;
    return *this;
  }

  /// The entry, for a kernel class as described at the top of this file.
  template <class Kernel>
  KernelEntry kernel() {
    return entry_of<Kernel>(
        [](void*, const bp_create_ctx* ctx, const bp_node* node, bp_kernel** out) {
          return guarded([&] {
            *out = reinterpret_cast<bp_kernel*>(new Kernel(CreateContext(ctx), Node(node)));
          });
        });
  }
  /// The entry, for kernels that `make(ctx, node)` gives as a std::unique_ptr, where a class alone does not say what
  /// they do. `make` lives as long as the entry.
  template <class Make>
  KernelEntry kernel_of(Make make) {
    using Pointer =
        decltype(make(std::declval<const CreateContext&>(), std::declval<const Node&>()));
    hooks().make = std::make_shared<Make>(std::move(make));
    return entry_of<typename Pointer::element_type>(
        [](void* self, const bp_create_ctx* ctx, const bp_node* node, bp_kernel** out) {
          return guarded([&] {
            const auto* maker = static_cast<const Make*>(static_cast<Hooks*>(self)->make.get());
            *out = reinterpret_cast<bp_kernel*>((*maker)(CreateContext(ctx), Node(node)).release());
          });
        });
  }

 private:
  using Create = bp_status* (*)(void* self, const bp_create_ctx* ctx, const bp_node* node,
                                bp_kernel** out);
  /// What the def's `self` is, where there is anything to keep.
  struct Hooks {
    void (*match)(const Node&) = nullptr;
    void (*cost)(const Node&, bp_cost&) = nullptr;
    std::shared_ptr<void> make;
  };
  Hooks& hooks() {
    if (storage_->self == nullptr) {
      storage_->self = std::make_shared<Hooks>();
      storage_->def.self = storage_->self.get();
    }
    return *static_cast<Hooks*>(storage_->self.get());
  }

  template <class Kernel>
  KernelEntry entry_of(Create create) {
    using Prepared = std::decay_t<decltype(std::declval<const Kernel&>().prepare(
        std::declval<PrepareContext&>()))>;
    bp_kernel_def& def = storage_->def;
    def.create = create;
    def.destroy = [](bp_kernel* kernel) { delete reinterpret_cast<Kernel*>(kernel); };
    def.prepare = [](bp_kernel* kernel, bp_prepare_ctx* ctx, bp_prepared** out) {
      return guarded([&] {
        PrepareContext context(ctx);
        *out = reinterpret_cast<bp_prepared*>(
            new Prepared(reinterpret_cast<const Kernel*>(kernel)->prepare(context)));
      });
    };
    def.release = [](bp_prepared* prepared) { delete reinterpret_cast<Prepared*>(prepared); };
    def.compute = [](const bp_prepared* prepared, const bp_kctx* ctx) {
      return guarded(
          [&] { reinterpret_cast<const Prepared*>(prepared)->compute(ComputeContext(ctx)); });
    };
    return finish();
  }

  void add_constraint(const std::string& param, int input, std::vector<std::string> types) {
    auto constraint = std::make_unique<KernelStorage::Constraint>();
    constraint->param = param;
    constraint->types = std::move(types);
    for (const std::string& type : constraint->types)
      constraint->type_pointers.push_back(type.c_str());
    constraint->raw = abi_struct<bp_type_constraint>();
    constraint->raw.param = param.empty() ? nullptr : constraint->param.c_str();
    constraint->raw.input = input;
    constraint->raw.output = -1;
    constraint->raw.types = constraint->type_pointers.data();
    constraint->raw.type_count = constraint->type_pointers.size();
    storage_->constraint_pointers.push_back(&constraint->raw);
    storage_->constraints.push_back(std::move(constraint));
  }

  KernelEntry finish() {
    KernelStorage& storage = *storage_;
    bp_kernel_def& def = storage.def;
    if (storage.name.empty()) storage.name = storage.op_type;
    def.domain = storage.domain.c_str();
    def.op_type = storage.op_type.c_str();
    def.name = storage.name.c_str();
    def.constraints = storage.constraint_pointers.data();
    def.constraint_count = static_cast<std::uint32_t>(storage.constraint_pointers.size());
    if (host_table != nullptr && host().abi_minor < 1)
      std::replace(storage.input_roles.begin(), storage.input_roles.end(), BP_INPUT_WEIGHT,
                   BP_INPUT_DATA);
    def.input_roles = storage.input_roles.data();
    def.input_role_count = static_cast<std::uint32_t>(storage.input_roles.size());
    def.output_roles = storage.output_roles.data();
    def.output_role_count = static_cast<std::uint32_t>(storage.output_roles.size());
    if (match_ != nullptr || cost_ != nullptr) {
      hooks().match = match_;
      hooks().cost = cost_;
      def.match = [](void* self, bp_device*, const bp_node* node, bp_cost* cost) {
        return guarded([&] {
          const auto* known = static_cast<const Hooks*>(self);
          if (known->match != nullptr) known->match(Node(node));
          if (known->cost != nullptr && cost != nullptr) known->cost(Node(node), *cost);
        });
      };
    }
    return storage_;
  }

  std::shared_ptr<KernelStorage> storage_;
  void (*match_)(const Node&) = nullptr;
  void (*cost_)(const Node&, bp_cost&) = nullptr;
};

/// Starts an entry for an operator.
inline KernelBuilder op(std::string op_type, std::string domain = "") {
  return KernelBuilder(std::move(op_type), std::move(domain));
}

/// Shows a list to the host.
inline bp_status* show_kernels(const KernelList& kernels, void* sink_ctx, bp_kernel_sink sink) {
  for (const KernelEntry& kernel : kernels) {
    if (bp_status* status = sink(sink_ctx, &kernel->def)) return status;
  }
  return nullptr;
}

}  // namespace backplane::sdk
