#include "tools/backplane/check/bare_kernel.hpp"

#include <algorithm>
#include <cstring>

#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

/// What a bp_prepare_ctx of this host points back to: it is the first member.
struct PrepareCall {
  Grown<bp_prepare_ctx> ctx;
  PrepareRecord record;
  bool fails = false;
  std::string mistake;
};

PrepareCall& call_of(const bp_prepare_ctx* ctx) {
  return *reinterpret_cast<PrepareCall*>(const_cast<bp_prepare_ctx*>(ctx));
}

int role_at(const std::int32_t* roles, std::uint32_t count, std::size_t index) {
  if (count == 0 || roles == nullptr) return 0;
  return roles[std::min<std::size_t>(index, count - 1)];
}

/// Values over tensors, with the pointer array that the ABI wants.
struct Values {
  std::deque<Grown<bp_tensor>> tensors;
  std::deque<Grown<bp_value>> values;
  std::vector<const bp_value*> pointers;

  bp_tensor& add(const Grown<bp_tensor>& tensor) {
    tensors.push_back(tensor);
    Grown<bp_value>& value = values.emplace_back();
    value.base.kind = tensor.base.dtype == BP_NONE ? BP_VALUE_ABSENT : BP_VALUE_TENSOR;
    value.base.tensor = &tensors.back().base;
    pointers.push_back(&value.base);
    return tensors.back().base;
  }
};

OutputPlan* plan_of(bp_prepare_ctx* ctx, std::uint32_t output) {
  std::vector<OutputPlan>& plans = call_of(ctx).record.outputs;
  if (output >= plans.size()) return nullptr;
  plans[output].is_said = true;
  return &plans[output];
}

/// What `prepare` must not ask for, whatever the node is.
bp_status* mistaken(const bp_prepare_ctx* ctx, const std::string& what) {
  call_of(ctx).mistake = what;
  return refuse(BP_INVALID_ARGUMENT, what);
}

bp_status* no_such(const bp_prepare_ctx* ctx, const char* what, std::uint32_t index) {
  return mistaken(ctx, text("there is no ", what, " ", index));
}

bp_status* refused_on_purpose() {
  return refuse(BP_OUT_OF_MEMORY, "the suite refuses this on purpose");
}

bp_status* set_output(bp_prepare_ctx* ctx, std::uint32_t output, bp_dtype dtype, std::int32_t rank,
                      const std::int64_t* dims) {
  if (call_of(ctx).fails) return refused_on_purpose();
  OutputPlan* plan = plan_of(ctx, output);
  if (plan == nullptr) return no_such(ctx, "output", output);
  if (rank < 0 || (rank > 0 && std::any_of(dims, dims + rank, [](auto dim) { return dim < 0; })))
    return mistaken(ctx, "set_output takes no unknown dims");
  plan->dtype = dtype;
  plan->dims.clear();
  if (rank > 0) plan->dims.assign(dims, dims + rank);
  plan->is_other = element_bytes(dtype) == 0;
  return nullptr;
}

bp_status* set_output_unknown(bp_prepare_ctx* ctx, std::uint32_t output, bp_dtype dtype,
                              std::int32_t rank) {
  if (call_of(ctx).fails) return refused_on_purpose();
  OutputPlan* plan = plan_of(ctx, output);
  if (plan == nullptr) return no_such(ctx, "output", output);
  plan->is_unknown = true;
  plan->dtype = dtype;
  plan->rank = rank;
  plan->is_other = element_bytes(dtype) == 0;
  return nullptr;
}

bp_status* set_other(bp_prepare_ctx* ctx, std::uint32_t output) {
  OutputPlan* plan = plan_of(ctx, output);
  if (plan == nullptr) return no_such(ctx, "output", output);
  plan->is_other = true;
  return nullptr;
}

bp_status* allow_in_place(bp_prepare_ctx* ctx, std::uint32_t output, std::uint32_t input) {
  OutputPlan* plan = plan_of(ctx, output);
  if (plan == nullptr) return no_such(ctx, "output", output);
  if (input >= ctx->input_count) return no_such(ctx, "input", input);
  if (output == 0) plan->in_place_of = static_cast<int>(input);
  return nullptr;
}

bp_status* request_pack(bp_prepare_ctx* ctx, const bp_pack_request* request, std::uint32_t* index) {
  PrepareRecord& record = call_of(ctx).record;
  PrepareRecord::Pack pack;
  pack.inputs.assign(request->inputs, request->inputs + request->input_count);
  for (const std::uint32_t input : pack.inputs) {
    if (input >= record.inputs.size() || !record.inputs[input].is_constant)
      return mistaken(ctx, text("input ", input, " is no constant"));
  }
  pack.bytes = request->bytes;
  pack.self = request->self;
  pack.pack = request->pack;
  record.packs.push_back(std::move(pack));
  *index = static_cast<std::uint32_t>(record.packs.size() - 1);
  return nullptr;
}

bp_status* known_input(const bp_prepare_ctx* ctx, std::uint32_t input) {
  return input < ctx->input_count ? nullptr : no_such(ctx, "input", input);
}

Grown<bp_prepare_api> prepare_table() {
  Grown<bp_prepare_api> grown;
  bp_prepare_api& api = grown.base;
  api.output_wanted = [](const bp_prepare_ctx* ctx, std::uint32_t output) -> std::uint32_t {
    return output < call_of(ctx).record.outputs.size() ? 1 : 0;
  };
  api.input_constant = [](const bp_prepare_ctx* ctx, std::uint32_t input) -> std::uint32_t {
    const auto& inputs = call_of(ctx).record.inputs;
    return input < inputs.size() && inputs[input].is_constant ? 1 : 0;
  };
  api.set_output = set_output;
  api.set_output_unknown = set_output_unknown;
  api.set_output_type = [](bp_prepare_ctx* ctx, std::uint32_t output, const char*) {
    return set_other(ctx, output);
  };
  api.set_format = [](bp_prepare_ctx* ctx, std::uint32_t output, std::uint32_t, std::uint64_t,
                      std::uint64_t) { return set_other(ctx, output); };
  api.allow_in_place = allow_in_place;
  // Views and inputs inside outputs are wishes, and this host grants none: compute copies.
  api.set_view = [](bp_prepare_ctx* ctx, std::uint32_t, std::uint32_t input, std::uint64_t,
                    const std::int64_t*) { return known_input(ctx, input); };
  api.set_inside = [](bp_prepare_ctx* ctx, std::uint32_t input, std::uint32_t, std::uint64_t,
                      const std::int64_t*) { return known_input(ctx, input); };
  api.allow_strided_input = [](bp_prepare_ctx* ctx, std::uint32_t input) {
    return known_input(ctx, input);
  };
  api.allow_strided_output = [](bp_prepare_ctx*, std::uint32_t) -> bp_status* { return nullptr; };
  api.set_workspace = [](bp_prepare_ctx* ctx, std::uint64_t bytes,
                         std::uint64_t alignment) -> bp_status* {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
      return mistaken(ctx, text("an alignment of ", alignment, " is no power of two"));
    call_of(ctx).record.workspace_bytes = bytes;
    return nullptr;
  };
  api.request_pack = request_pack;
  api.ignore_input = [](bp_prepare_ctx* ctx, std::uint32_t input) -> bp_status* {
    if (bp_status* status = known_input(ctx, input)) return status;
    call_of(ctx).record.ignored[input] = true;
    return nullptr;
  };
  api.set_variant = [](bp_prepare_ctx*, const char*) -> bp_status* { return nullptr; };
  api.set_cost = [](bp_prepare_ctx*, const bp_cost*) -> bp_status* { return nullptr; };
  return grown;
}

/// What a bp_kctx of this host points back to: it is the first member.
struct ComputeCall {
  Grown<bp_kctx> ctx;
  const OpenDevice* device = nullptr;
  const bp_kernel_def* def = nullptr;
  std::vector<OutputPlan> plans;
  std::vector<std::unique_ptr<Memory>> memories;  ///< of the outputs; null while there is none
  std::vector<Tensor> shapes;
  std::deque<Grown<bp_tensor>> allocated;
  std::string disagreement;
  std::uint8_t poison = 0;

  void make_output(std::size_t output) {
    const bool on_host = output_role(def, output) == BP_OUTPUT_HOST;
    Tensor& shape = shapes[output];
    memories[output] = std::make_unique<Memory>(
        device, on_host ? BP_MEMORY_HOST : BP_MEMORY_DEVICE,
        static_cast<std::uint64_t>(shape.size()) * element_bytes(shape.dtype));
    memories[output]->fill(poison);
  }
};

bp_status* alloc_output(const bp_kctx* ctx, std::uint32_t output, std::int32_t rank,
                        const std::int64_t* dims, const bp_tensor** out) {
  ComputeCall& call = *reinterpret_cast<ComputeCall*>(const_cast<bp_kctx*>(ctx));
  if (output >= call.plans.size())
    return refuse(BP_INVALID_ARGUMENT, text("there is no output ", output));
  const OutputPlan& plan = call.plans[output];
  const auto disagree = [&](const std::string& what) {
    call.disagreement = text("output ", output, ": ", what);
    return refuse(BP_INVALID_ARGUMENT, call.disagreement);
  };
  if (!plan.is_unknown) return disagree("prepare gave its dims, compute allocates it all the same");
  if (call.memories[output] != nullptr) return disagree("compute allocates it twice");
  if (plan.rank >= 0 && plan.rank != rank)
    return disagree(text("prepare gave rank ", plan.rank, ", compute allocates rank ", rank));
  Tensor& shape = call.shapes[output];
  shape.dtype = plan.dtype;
  shape.dims.clear();
  if (rank > 0) shape.dims.assign(dims, dims + rank);
  if (std::any_of(shape.dims.begin(), shape.dims.end(), [](auto dim) { return dim < 0; }))
    return disagree("compute allocates a negative size");
  call.make_output(output);
  call.allocated.push_back(call.memories[output]->describe(shape));
  *out = &call.allocated.back().base;
  // The context shows it from now on; its values are this host's own.
  const_cast<bp_value*>(ctx->outputs[output])->tensor = *out;
  return nullptr;
}

Grown<bp_compute_api> compute_table() {
  Grown<bp_compute_api> grown;
  grown.base.alloc_output = alloc_output;
  grown.base.cancelled = [](const bp_kctx*) -> std::uint32_t { return 0; };
  grown.base.native = [](const bp_kctx* ctx, std::int32_t kind, const bp_tensor* tensor,
                         std::uint64_t* out) -> bp_status* {
    *out = 0;
    const OpenDevice& device = *reinterpret_cast<const ComputeCall*>(ctx)->device;
    if (device.raw() == nullptr) return nullptr;
    if (!BP_HAS_FN(bp_device_api, device.operator->(), native))
      return refuse(BP_UNSUPPORTED, "the device shows no native handles");
    return device->native(device.raw(), kind, device.stream(),
                          tensor == nullptr ? nullptr : tensor->buffer, out);
  };
  return grown;
}

bool reads_on_host(int role) { return role == BP_INPUT_HOST_VALUE || role == BP_INPUT_HOST_DATA; }

}  // namespace

int input_role(const bp_kernel_def* def, std::size_t index) {
  return role_at(def->input_roles, def->input_role_count, index);
}
int output_role(const bp_kernel_def* def, std::size_t index) {
  return role_at(def->output_roles, def->output_role_count, index);
}

std::string NodeCase::text() const {
  std::string result = op_type + " (since " + std::to_string(since_version) + ")";
  for (const Input& input : inputs) {
    result += input.tensor.dtype == BP_NONE
                  ? " -"
                  : " " + element_name(static_cast<ElementType>(input.tensor.dtype)) +
                        shape_text(input.tensor.dims);
  }
  const std::string held = described(attributes);
  return held.empty() ? result : result + " {" + held + "}";
}

Kernel::Kernel(const OpenDevice& device, const bp_kernel_def* def, const NodeCase& node,
               bool known_dims)
    : device_(device), def_(def), node_(node) {
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < node_.inputs.size(); ++i) {
    const NodeCase::Input& input = node_.inputs[i];
    inputs.push_back(input.tensor.dtype == BP_NONE ? "" : "in_" + std::to_string(i));
    if (inputs.back().empty()) continue;
    std::optional<Dims> dims = input.tensor.dims;
    if (!known_dims && !input.is_constant) std::fill(dims->begin(), dims->end(), -1);
    graph_.add_input(inputs.back(), input.tensor.dtype, dims,
                     input.is_constant ? &input.tensor : nullptr);
  }
  std::vector<BareGraph::Output> outputs;
  for (std::size_t i = 0; i < node_.outputs.size(); ++i)
    outputs.push_back({"out_" + std::to_string(i), node_.outputs[i], std::nullopt});
  raw_node_ = graph_.add_node(node_.op_type, node_.domain, node_.since_version, inputs, outputs,
                              node_.attributes);
  for (const BareGraph::Output& output : outputs) graph_.mark_output(output.name);

  if (def_->match != nullptr) {
    enter("match of " + node_.text());
    Grown<bp_cost> cost;
    outcome_ = ask([&] { return def_->match(def_->self, device_.raw(), raw_node_, &cost.base); });
    if (!outcome_.is_ok()) return;
  }
  Grown<bp_create_ctx> ctx;
  ctx.base.device = device_.raw();
  ctx.base.device_info = device_.info();
  ctx.base.threads = host_threads();
  enter("create of " + node_.text());
  outcome_ = ask([&] { return def_->create(def_->self, &ctx.base, raw_node_, &kernel_); });
  if (outcome_.is_ok() && kernel_ == nullptr)
    throw Broken(current_step() + " succeeds and gives no kernel");
  if (!outcome_.is_ok()) kernel_ = nullptr;
}

Kernel::~Kernel() {
  if (kernel_ == nullptr) return;
  enter("destroy of " + node_.text());
  def_->destroy(kernel_);
}

std::unique_ptr<PreparedKernel> Kernel::prepare(const std::vector<NodeCase::Input>& inputs,
                                                Outcome& outcome, bool failing_set_output) {
  static const Grown<bp_prepare_api> kTable = prepare_table();
  PrepareCall call;
  call.fails = failing_set_output;
  call.record.inputs = inputs;
  call.record.outputs.resize(node_.outputs.size());
  call.record.ignored.resize(inputs.size());
  Values values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const int role = input_role(def_, i);
    const bool is_known =
        (inputs[i].is_constant && role != BP_INPUT_WEIGHT) || role == BP_INPUT_HOST_VALUE;
    values.add(describe(call.record.inputs[i].tensor,
                        is_known ? call.record.inputs[i].tensor.data.data() : nullptr));
  }
  call.ctx.base.api = &kTable.base;
  call.ctx.base.inputs = values.pointers.data();
  call.ctx.base.threads = host_threads();
  call.ctx.base.input_count = static_cast<std::uint32_t>(inputs.size());
  call.ctx.base.output_count = static_cast<std::uint32_t>(node_.outputs.size());
  NodeCase asked = node_;
  asked.inputs = inputs;
  call.record.name = asked.text();
  enter("prepare of " + call.record.name);
  bp_prepared* prepared = nullptr;
  outcome = ask([&] { return def_->prepare(kernel_, &call.ctx.base, &prepared); });
  mistake_ = call.mistake;
  if (!outcome.is_ok()) return nullptr;
  return std::make_unique<PreparedKernel>(device_, def_, prepared, std::move(call.record));
}

PreparedKernel::PreparedKernel(const OpenDevice& device, const bp_kernel_def* def,
                               bp_prepared* prepared, PrepareRecord record)
    : device_(device), def_(def), prepared_(prepared), record_(std::move(record)) {
  pack();
}

PreparedKernel::~PreparedKernel() { def_->release(prepared_); }

void PreparedKernel::pack() {
  for (PrepareRecord::Pack& pack : record_.packs) {
    pack.memory = std::make_unique<Memory>(&device_, BP_MEMORY_DEVICE, pack.bytes);
    std::deque<Grown<bp_tensor>> sources;
    std::vector<const bp_tensor*> pointers;
    for (const std::uint32_t input : pack.inputs) {
      const Tensor& source = record_.inputs[input].tensor;
      sources.push_back(describe(source, source.data.data()));
      pointers.push_back(&sources.back().base);
    }
    const std::vector<std::int64_t> size{static_cast<std::int64_t>(pack.bytes)};
    const Grown<bp_tensor> target = pack.memory->describe_bytes(size, 0);
    Grown<bp_pack_ctx> ctx;
    ctx.base.sources = pointers.data();
    ctx.base.target = &target.base;
    ctx.base.stream = device_.stream();
    ctx.base.threads = host_threads();
    ctx.base.source_count = pointers.size();
    enter("pack of " + record_.name);
    need([&] { return pack.pack(pack.self, &ctx.base); });
    const Outcome done = device_.sync();
    if (!done.is_ok()) throw Broken(current_step() + " failed: " + described(done));
  }
}

namespace {

/// The memory of one `compute`, and what lies in it afterwards.
class ComputeRun {
 public:
  ComputeRun(const OpenDevice& device, const bp_kernel_def* def, const PrepareRecord& record,
             std::uint8_t poison)
      : record_(record), workspace_(&device, BP_MEMORY_DEVICE, record.workspace_bytes) {
    call_.device = &device;
    call_.def = def;
    call_.plans = record.outputs;
    call_.poison = poison;
    call_.memories.resize(call_.plans.size());
    call_.shapes.resize(call_.plans.size());
    workspace_.fill(poison);
  }

  void lay_out(bool in_place) {
    for (std::size_t i = 0; i < record_.inputs.size(); ++i) add_input(i);
    for (std::size_t i = 0; i < call_.plans.size(); ++i) add_output(i, in_place && i == 0);
    for (const PrepareRecord::Pack& pack : record_.packs) {
      sizes_.push_back({static_cast<std::int64_t>(pack.bytes)});
      bytes_.push_back(pack.memory->describe_bytes(sizes_.back(), 0));
      packed_.push_back(&bytes_.back().base);
    }
    sizes_.push_back({static_cast<std::int64_t>(workspace_.bytes())});
    bytes_.push_back(workspace_.describe_bytes(sizes_.back(), 0));
    input_state_.assign(record_.inputs.size() + 1, 0);
  }

  const bp_kctx* context() {
    static const Grown<bp_compute_api> kTable = compute_table();
    bp_kctx& ctx = call_.ctx.base;
    ctx.inputs = inputs_.pointers.data();
    ctx.outputs = outputs_.pointers.data();
    ctx.packed = packed_.data();
    ctx.workspace = &bytes_.back().base;
    ctx.stream = call_.device->stream();
    ctx.threads = host_threads();
    ctx.input_state = input_state_.data();
    ctx.api = &kTable.base;
    ctx.input_count = static_cast<std::uint32_t>(inputs_.pointers.size());
    ctx.output_count = static_cast<std::uint32_t>(outputs_.pointers.size());
    ctx.packed_count = static_cast<std::uint32_t>(packed_.size());
    return &ctx;
  }

  /// Reads everything back.
  Computed result(const Outcome& outcome) const {
    Computed computed;
    computed.outcome = outcome;
    computed.disagreement = call_.disagreement;
    for (std::size_t i = 0; i < call_.plans.size(); ++i) {
      Tensor tensor = call_.shapes[i];
      if (call_.memories[i] == nullptr) {
        if (outcome.is_ok() && computed.disagreement.empty()) {
          computed.disagreement =
              text("output ", i, ": prepare left its dims to compute, which never allocated it");
        }
      } else {
        tensor.data = call_.memories[i]->read();
        note_damage(computed, *call_.memories[i], "output", i);
      }
      computed.outputs.push_back(std::move(tensor));
    }
    for (std::size_t i = 0; i < input_memories_.size(); ++i) {
      if (input_memories_[i] == nullptr) continue;
      note_damage(computed, *input_memories_[i], "input", i);
      if (computed.damage.empty() && input_memories_[i]->read() != record_.inputs[i].tensor.data)
        computed.damage = text("input ", i, " was written, which is read-only");
    }
    note_damage(computed, workspace_, "the workspace", 0);
    for (std::size_t i = 0; i < record_.packs.size(); ++i)
      note_damage(computed, *record_.packs[i].memory, "packed constant", i);
    return computed;
  }

 private:
  void add_input(std::size_t i) {
    const Tensor& tensor = record_.inputs[i].tensor;
    const int role = input_role(call_.def, i);
    if (tensor.dtype == BP_NONE || record_.ignored[i] || role == BP_INPUT_SHAPE_ONLY) {
      inputs_.add(describe(tensor, nullptr));
      input_memories_.push_back(nullptr);
      return;
    }
    input_memories_.push_back(std::make_unique<Memory>(
        call_.device, reads_on_host(role) ? BP_MEMORY_HOST : BP_MEMORY_DEVICE, tensor.data.size()));
    input_memories_.back()->write(tensor.data.data());
    inputs_.add(input_memories_.back()->describe(tensor));
  }

  void add_output(std::size_t i, bool in_place) {
    const OutputPlan& plan = call_.plans[i];
    call_.shapes[i] = {plan.dtype, plan.dims, {}};
    if (plan.is_unknown) {
      call_.shapes[i].dims = {0};
      outputs_.add(describe(call_.shapes[i], nullptr));
      return;
    }
    if (in_place) {
      call_.memories[i] = std::move(input_memories_[static_cast<std::size_t>(plan.in_place_of)]);
    } else {
      call_.make_output(i);
    }
    outputs_.add(call_.memories[i]->describe(call_.shapes[i]));
  }

  static void note_damage(Computed& computed, const Memory& memory, const char* what,
                          std::size_t index) {
    if (!computed.damage.empty()) return;
    const std::string damage = memory.damage();
    if (!damage.empty())
      computed.damage = text(what, " ", index, " (", memory.bytes(), " bytes): ", damage);
  }

  const PrepareRecord& record_;
  ComputeCall call_;
  Memory workspace_;
  Values inputs_, outputs_;
  std::vector<std::unique_ptr<Memory>> input_memories_;
  std::deque<Grown<bp_tensor>> bytes_;
  std::deque<std::vector<std::int64_t>> sizes_;
  std::vector<const bp_tensor*> packed_;
  std::vector<std::uint32_t> input_state_;
};

}  // namespace

Computed PreparedKernel::compute(std::uint8_t poison, bool in_place) {
  enter("memory for " + record_.name);
  ComputeRun run(device_, def_, record_, poison);
  run.lay_out(in_place);
  const bp_kctx* ctx = run.context();
  enter("compute of " + record_.name);
  Outcome outcome = ask([&] { return def_->compute(prepared_, ctx); });
  const Outcome done = device_.sync();  // also after a failure: work may be under way
  if (outcome.is_ok()) outcome = done;
  return run.result(outcome);
}

}  // namespace backplane::cli::check
