#include "core/plan/shape_walk.hpp"

#include <cstring>
#include <limits>
#include <set>

#include "core/plan/control_plan.hpp"

namespace backplane::core {
namespace {

bool are_same_elements(const RuntimeValuePtr& a, const RuntimeValuePtr& b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr || a->element() == DataType::String) return false;
  const std::uint64_t bytes = a->description.bytes;
  return bytes == b->description.bytes &&
         (bytes == 0 || std::memcmp(a->description.host_ptr, b->description.host_ptr, bytes) == 0);
}

class Walk {
 public:
  Walk(Program& program, ShapeWalk& result)
      : program_(program), graph_(program.graph()), result_(result) {}

  /// False when the node cannot be prepared before a run.
  bool visit(NodeId id) {
    try {
      if (program_.node(id).control != nullptr) return plan_body_node(id);
      if (program_.is_host_node(id) && evaluate(id)) return true;
      program_.ensure_kernel(id);
      return prepare(id);
    } catch (const Error& error) {
      throw failure(id, error);
    }
  }

 private:
  /// What the model or the feeds have wrong is the same on every device; the rest is told with the device.
  Error failure(NodeId id, const Error& error) const {
    Error within = error.within(program_.describe(id));
    const int device = program_.placed().placement[id].device;
    if (device < 0 || error.code() == Code::InvalidArgument || error.code() == Code::Unsupported)
      return within;
    return within.within(program_.context().devices->at(device).label());
  }

  SharedState& shared(ValueId id) {
    SharedState& state = result_.values[id];
    if (state->kind == ValueState::Kind::Unset && program_.placed().is_constant(id))
      state = state_of_constant(program_, id);
    return state;
  }
  const ValueState& state(ValueId id) { return *shared(id); }

  /// The elements of a value, if they can be known now; computes lazy constants.
  const bp_value* known(ValueId id) {
    SharedState& value = shared(id);
    if (value->known == nullptr && program_.placed().is_constant(id)) {
      ValueState state = *value;
      state.known = elements_of(program_.placed().constant(id));
      value = program_.constant_state(id) = std::move(state);
    }
    return value->known.get();
  }

  RuntimeValuePtr elements_of(const ConstantRef& constant) const {
    auto elements = std::make_shared<RuntimeValue>();
    if (constant.known != nullptr) {
      elements->set_constant(*constant.known);
      return elements;
    }
    const ProgramContext& context = program_.context();
    const ConstantPtr computed = constant.get(*context.weights, context.threads);
    elements->set_owned_tensor(computed->type(), computed->dims());
    std::memcpy(elements->description.host_ptr, computed->bytes().data(), computed->bytes().size());
    return elements;
  }

  /// Type and dims, with the elements where they are constant and need not be computed.
  const bp_value* shown(ValueId id) {
    const bool is_known =
        program_.placed().is_constant(id) && program_.placed().constant(id).known != nullptr;
    const bp_value* const elements = is_known ? known(id) : state(id).known.get();
    return elements != nullptr ? elements : description(id);
  }

  /// Type and dims alone.
  const bp_value* description(ValueId id) {
    const ValueState& value = state(id);
    if (value.description == nullptr) {
      value.description = std::make_shared<RuntimeValue>();
      if (value.kind == ValueState::Kind::Object) {
        value.description->set_type(Type::parse(value.object_type));
      } else {
        value.description->set_tensor(value.type, value.dims);
        value.description->description.format = value.format;
        value.description->description.bytes = value.bytes;
      }
    }
    return value.description.get();
  }

  static const bp_value* absent() {
    static const RuntimeValue value;
    return &value;
  }

  bool has_shape(ValueId id) {
    return state(id).kind == ValueState::Kind::Tensor || state(id).kind == ValueState::Kind::Object;
  }

  /// Whether a node's inputs are those of an earlier walk.
  bool are_same(const Node& node, const std::vector<SharedState>& before) {
    if (before.size() != node.inputs.size()) return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input == kNone || program_.placed().is_constant(input)) continue;
      if (!tells_the_same(state(input), *before[i])) return false;
    }
    return true;
  }

  /// Keeps what was found for a node's inputs.
  template <class Answer>
  void keep(KeptAnswer<Answer>& kept, const Node& node, Answer answer) {
    kept.answer = Answer();
    kept.inputs.resize(node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input == kNone || program_.placed().is_constant(input)) continue;
      kept.inputs[i] = shared(input);
    }
    kept.answer = std::move(answer);
  }

  /// Computes the node now. False when an input is not known, or the result is too large.
  bool evaluate(NodeId id) {
    const Node& node = graph_.node(id);
    ProgramNode& placed = program_.node(id);
    if (placed.host_kernel == nullptr)
      placed.host_kernel = program_.evaluator().create(graph_, node);
    if (placed.host_kernel == nullptr) return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input == kNone) continue;
      const bool by_shape = placed.host_kernel->kernel.input_role(i) == BP_INPUT_SHAPE_ONLY;
      if (by_shape ? !has_shape(input) : known(input) == nullptr) return false;
    }
    auto& kept = placed.evaluated;
    if (kept.answer.empty() || !are_same(node, kept.inputs)) {
      std::optional<std::vector<SharedState>> made = compute(node, *placed.host_kernel);
      if (!made) return false;
      keep(kept, node, std::move(*made));
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNone) result_.values[node.outputs[i]] = kept.answer[i];
    }
    result_.evaluated.push_back(id);
    return true;
  }

  /// A node's outputs, its inputs being known; nullopt where they are no tensors or too large.
  std::optional<std::vector<SharedState>> compute(const Node& node, HostKernel& kernel) {
    std::vector<const bp_value*> inputs;
    for (const ValueId input : node.inputs)
      inputs.push_back(input == kNone ? absent() : shown(input));
    auto outputs = program_.evaluator().evaluate(kernel, node, inputs, kMaxHostValueBytes);
    if (!outputs) return std::nullopt;
    std::vector<SharedState> states;
    for (RuntimeValuePtr& output : *outputs) {
      if (output->kind != BP_VALUE_ABSENT && !output->is_tensor()) return std::nullopt;
      states.emplace_back(known_state(std::move(output)));
    }
    return states;
  }

  /// Whether everything is known that `prepare` is to be told.
  bool is_ready(const Node& node, const KernelHandle& kernel) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input == kNone) continue;
      if (!has_shape(input)) {
        result_.wants_shape.push_back(input);
      } else if (kernel.input_role(i) == BP_INPUT_HOST_VALUE && known(input) == nullptr) {
        result_.wants_value.push_back(input);
      }
    }
    return result_.wants_shape.empty() && result_.wants_value.empty();
  }

  const PrepareRequest& request_for(const Node& node) {
    PrepareRequest& request = program_.node(node.id).request;
    if (request.kernel == nullptr) {
      request.kernel = &program_.node(node.id).kernel;
      request.threads = program_.context().threads;
      request.flags = program_.context().create_flags();
      request.inputs.resize(node.inputs.size());
      for (const ValueId input : node.inputs)
        request.constant_inputs.push_back(input != kNone && program_.placed().is_constant(input));
      request.wanted_outputs = wanted_outputs(node);
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      const bool is_weight = request.kernel->is_weight(i);
      request.inputs[i] =
          input == kNone ? absent() : (is_weight ? description(input) : shown(input));
    }
    return request;
  }

  bool prepare(NodeId id) {
    const Node& node = graph_.node(id);
    ProgramNode& placed = program_.node(id);
    while (true) {
      if (!is_ready(node, placed.kernel)) return false;
      auto& kept = placed.prepared;
      try {
        if (kept.answer == nullptr || !are_same(node, kept.inputs)) {
          auto made = std::make_shared<PreparedKernel>();
          made->said = prepare_kernel(request_for(node));
          made->outputs = states_of_outputs(node, made->said);
          keep(kept, node, std::move(made));
        }
        for (std::size_t i = 0; i < node.outputs.size(); ++i) {
          if (node.outputs[i] != kNone) result_.values[node.outputs[i]] = kept.answer->outputs[i];
        }
        result_.nodes.push_back({id, kept.answer, nullptr});
        return true;
      } catch (const Error& error) {
        if (error.code() != Code::Unsupported) throw;
        if (!program_.next_kernel(id)) throw KernelRefused{id, error.message()};
      }
    }
  }

  /// A node that the core runs itself. False when types or dims of what its bodies read are not known yet.
  bool plan_body_node(NodeId id) {
    const Node& node = graph_.node(id);
    const ControlNode& control = *program_.node(id).control;
    ControlInputs inputs;
    inputs.graph = &graph_;
    inputs.node = &node;
    inputs.state = [this](ValueId value) -> const ValueState& { return state(value); };
    inputs.known = [this](ValueId value) { return static_cast<const RuntimeValue*>(known(value)); };
    const int branch = known_branch(control, inputs);
    std::set<ValueId> read(node.inputs.begin(), node.inputs.end());
    for (std::size_t b = 0; b < control.bodies.size(); ++b) {
      const std::vector<ValueId>& captured = control.bodies[b].captured;
      if (branch < 0 || branch == static_cast<int>(b))
        read.insert(captured.begin(), captured.end());
    }
    read.erase(kNone);
    for (const ValueId value : read) {
      if (!has_shape(value)) result_.wants_shape.push_back(value);
    }
    if (!result_.wants_shape.empty()) return false;
    PreparedNode planned{id, {}, plan_control(control, inputs)};
    bool all_known = true;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      ValueState value = planned.control->outputs[i];
      value.space = planned.control->output_spaces[i];
      all_known = all_known && value.known != nullptr;
      check_inferred(graph_.value(node.outputs[i]), value);
      result_.values[node.outputs[i]] = std::move(value);
    }
    if (all_known && control.kind == ControlKind::If) {
      result_.evaluated.push_back(id);
    } else {
      result_.nodes.push_back(std::move(planned));
    }
    return true;
  }

  std::vector<SharedState> states_of_outputs(const Node& node,
                                             const PrepareResult& prepared) const {
    std::vector<SharedState> states(node.outputs.size());
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      const OutputPlan& plan = prepared.outputs[i];
      ValueState value;
      value.type = plan.type;
      value.space = space_of_output(node, i);
      if (plan.kind == OutputPlan::Kind::Object) {
        value.kind = ValueState::Kind::Object;
        value.object_type = plan.object_type;
      } else if (plan.kind == OutputPlan::Kind::UnknownSize) {
        value.kind = ValueState::Kind::Pending;
      } else {
        value.kind = ValueState::Kind::Tensor;
        value.dims = plan.dims;
        value.format = plan.format;
        value.bytes = plan.bytes;
        value.alignment = plan.alignment;
      }
      check_inferred(graph_.value(node.outputs[i]), value);
      check_promised(node, node.outputs[i], plan.format);
      states[i] = std::move(value);
    }
    return states;
  }

  /// Who reads a value goes by the format that a rewrite promised, or by the plain one.
  void check_promised(const Node& node, ValueId output, std::uint32_t made) const {
    const auto& formats = program_.placed().formats;
    const auto found = formats.find(output);
    const std::uint32_t promised = found != formats.end() ? found->second : BP_FORMAT_PLAIN;
    if (made == promised) return;
    const auto words = [](std::uint32_t format) {
      return format == BP_FORMAT_PLAIN ? std::string("the plain format") : text("format ", format);
    };
    throw Error(Code::Internal, text("kernel '", program_.node(node.id).kernel.def().name,
                                     "' makes its output '", graph_.value(output).name, "' in ",
                                     words(made), ", but the rewrites promised ", words(promised)));
  }

  int space_of_output(const Node& node, std::size_t index) const {
    const ProgramNode& placed = program_.node(node.id);
    if (placed.kernel.output_role(index) == BP_OUTPUT_HOST) return kHostSpace;
    return program_.context().devices->space_of(placed.device);
  }

  /// ONNX's inference and the kernel must not contradict each other on types and ranks. On dims the kernel is right:
  /// inference of old opsets counts the windows of some poolings otherwise than the operator's text. So it is on the
  /// rank of an output that no node reads: where inference knows none, a file's declaration is all there is, and wrong
  /// ones are about (CatBoost's regressors).
  static void check_inferred(const Value& value, const ValueState& state) {
    if (!value.type.is_tensor()) return;
    if (state.kind == ValueState::Kind::Object) {
      invalid("its output '", value.name, "' should be ", value.type.to_string(),
              " but the kernel makes ", state.object_type);
    }
    if (value.type.element != DataType::None && value.type.element != state.type) {
      invalid("its output '", value.name, "' should be ", value.type.to_string(),
              " but the kernel makes tensor(", name(state.type), ")");
    }
    if (!value.type.shape || state.kind != ValueState::Kind::Tensor) return;
    if (value.is_output && value.uses.empty()) return;
    if (value.type.shape->size() != state.dims.size())
      invalid("its output '", value.name, "' should have dims ", to_string(*value.type.shape),
              " but has ", to_string(state.dims));
  }

  Program& program_;
  const Graph& graph_;
  ShapeWalk& result_;
};

}  // namespace

bool tells_the_same(const ValueState& a, const ValueState& b) {
  if (&a == &b) return true;
  return a.kind == b.kind && a.type == b.type && a.dims == b.dims && a.format == b.format &&
         a.bytes == b.bytes && a.object_type == b.object_type &&
         are_same_elements(a.known, b.known);
}

std::uint64_t strided_extent(DataType type, const std::vector<std::int64_t>& dims,
                             const std::vector<std::int64_t>& strides) {
  constexpr auto kPastEverything = std::numeric_limits<std::uint64_t>::max();
  std::int64_t elements = 1;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    std::int64_t behind = 0;
    if (dims[axis] == 0) return 0;
    if (strides[axis] < 0 || __builtin_mul_overflow(dims[axis] - 1, strides[axis], &behind) ||
        __builtin_add_overflow(elements, behind, &elements))
      return kPastEverything;
  }
  std::uint64_t bytes = 0;
  const auto size = static_cast<std::uint64_t>(element_bits(type) / 8);
  const bool is_counted =
      !__builtin_mul_overflow(static_cast<std::uint64_t>(elements), size, &bytes);
  return is_counted ? bytes : kPastEverything;
}

ValueState tensor_state(DataType type, const std::vector<std::int64_t>& dims) {
  ValueState state;
  state.kind = ValueState::Kind::Tensor;
  state.type = type;
  state.dims = dims;
  state.bytes =
      type == DataType::String
          ? 0
          : storage_bytes(type, static_cast<std::uint64_t>(element_count(dims))).value_or(0);
  return state;
}

ValueState known_state(RuntimeValuePtr value) {
  ValueState state = tensor_state(value->element(), value->dims);
  state.known = std::move(value);
  return state;
}

SharedState state_of_constant(Program& program, ValueId id) {
  SharedState& kept = program.constant_state(id);
  if (kept->kind == ValueState::Kind::Unset) {
    const ConstantRef constant = program.placed().constant(id);
    ValueState state = tensor_state(constant.type(), constant.dims());
    // A large one is copied to be aligned, which its readers may never need.
    const auto is_at_hand = [](const Constant& known) {
      return known.lies_aligned() || known.stored_bytes().size() <= kMaxHostValueBytes;
    };
    if (constant.known != nullptr && is_at_hand(*constant.known)) {
      state.known = std::make_shared<RuntimeValue>();
      state.known->set_constant(*constant.known);
    }
    kept = std::move(state);
  }
  return kept;
}

ShapeWalk walk_shapes(Program& program, std::size_t begin, ValueStates values) {
  ShapeWalk result;
  result.values = std::move(values);
  result.values.resize(program.graph().value_count());
  result.end = begin;
  Walk walk(program, result);
  const std::vector<NodeId>& order = program.order();
  while (result.end < order.size() && walk.visit(order[result.end])) ++result.end;
  return result;
}

bool visit_node(Program& program, ShapeWalk& walk, NodeId id) {
  return Walk(program, walk).visit(id);
}

}  // namespace backplane::core
