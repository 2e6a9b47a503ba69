// Loop: https://onnx.ai/onnx/operators/onnx__Loop.html
#include <limits>

#include "core/runtime/control_step.hpp"

namespace backplane::core {
namespace {

constexpr std::size_t kFirstCarried =
    2;  // behind the trip count and the condition, and behind the turn's number

class LoopStep : public ControlStep {
 public:
  LoopStep(const Graph& graph, const Node& node, const Step& step, const DeviceSet& devices)
      : plan_(*step.control),
        body_(plan_.node->bodies[0]),
        node_(node),
        copies_(devices),
        runner_(body_, plan_.places[0], devices),
        carried_(copies_, plan_.node->carried_count) {
    runner_.feeds[0] = &turn_;
    runner_.feeds[1] = &go_on_;
    turn_.set_owned_tensor(DataType::Int64, dims_of_scalar(0));
    go_on_.set_owned_tensor(DataType::Bool, dims_of_scalar(1));
    for (std::size_t i = carried_count(); i < body_.outputs.size() - 1; ++i) {
      const int fetch = body_.outputs[i + 1].fetch;
      if (fetch < 0) continue;
      const auto at = static_cast<std::size_t>(fetch);
      Stacked stacked;
      stacked.output = i;
      stacked.fetch = at;
      stacked.whole =
          std::make_unique<StackedOutput>(devices, copies_, plan_.places[0].fetches[at]);
      stacked.slice = std::make_unique<RuntimeValue>();
      const Type& declared = graph.value(node.outputs[i]).type;
      stacked.type = declared.is_tensor() && declared.shape ? declared : stack_of(i);
      if (plan_.slices[i]) stacked.type = stack_of(*plan_.slices[i]);
      runner_.stacks[at] = stacked.whole.get();
      runner_.fetches[at] = stacked.slice.get();
      stacked_.push_back(std::move(stacked));
    }
  }

  void run(const ControlCall& call) override {
    const auto given = [&](std::size_t input) {
      return input < node_.inputs.size() && node_.inputs[input] != kNone;
    };
    const std::int64_t most = given(0) ? read_count(call.input(0), "trip count")
                                       : std::numeric_limits<std::int64_t>::max();
    bool go_on = !given(1) || read_condition(call.input(1), "condition");
    runner_.take_captured(call, node_.inputs.size());
    for (std::size_t k = 0; k < carried_count(); ++k)
      carried_.begin(k, call.input(kFirstCarried + k));
    for (Stacked& stacked : stacked_) {
      const bool direct = plan_.direct[stacked.output];
      stacked.whole->begin(direct ? &call.output(stacked.output) : nullptr,
                           plan_.trip_count.value_or(-1));
    }
    std::int64_t turn = 0;
    for (; turn < most && go_on; ++turn) go_on = run_turn(call, turn, go_on);
    for (std::size_t k = 0; k < carried_count(); ++k) {
      if (k < node_.outputs.size() && node_.outputs[k] != kNone)
        carried_.finish(k, call.output(k), plan_.output_spaces[k]);
    }
    stack_dims_.assign(1, turn);
    for (Stacked& stacked : stacked_)
      stacked.whole->finish(call.output(stacked.output), stack_dims_, stacked.type);
  }

 private:
  struct Stacked {
    std::size_t output, fetch;
    std::unique_ptr<StackedOutput> whole;
    std::unique_ptr<RuntimeValue> slice;
    Type type;
  };

  std::size_t carried_count() const { return plan_.node->carried_count; }

  /// ONNX lets the turn's number and the condition be scalars or tensors of one element; the body says which.
  std::vector<std::int64_t> dims_of_scalar(std::size_t input) const {
    if (body_.input_ranks[input] == 1) return {1};
    return {};
  }

  /// The declared type of a stacked output, from its slices'.
  Type stack_of(std::size_t output) const {
    Type type = body_.output_types[output + 1];
    if (type.is_tensor() && type.shape) type.shape->insert(type.shape->begin(), Dim{});
    return type;
  }

  static Type stack_of(const ValueState& slice) {
    std::vector<std::int64_t> dims{-1};
    dims.insert(dims.end(), slice.dims.begin(), slice.dims.end());
    return Type::tensor(slice.type, dims);
  }

  /// One turn; whether there may be another.
  bool run_turn(const ControlCall& call, std::int64_t turn, bool go_on) {
    *static_cast<std::int64_t*>(turn_.description.host_ptr) = turn;
    *static_cast<unsigned char*>(go_on_.description.host_ptr) = go_on ? 1 : 0;
    for (std::size_t k = 0; k < carried_count(); ++k)
      runner_.feeds[kFirstCarried + k] = &carried_.current(k);
    for (std::size_t k = 0; k < carried_count(); ++k) {
      const BodyOutput& output = body_.outputs[1 + k];
      if (output.fetch < 0) continue;
      RuntimeValue& place = carried_.free_place(k);
      runner_.fetches[static_cast<std::size_t>(output.fetch)] = &place;
      carried_.set_next(k, place);
    }
    for (Stacked& stacked : stacked_) {
      stacked.whole->next(turn);
      stacked.slice->set_absent();
    }
    const BodyOutput& condition = body_.outputs[0];
    if (condition.fetch >= 0)
      runner_.fetches[static_cast<std::size_t>(condition.fetch)] = &condition_;
    runner_.run(call, turn);
    for (std::size_t k = 0; k < carried_count(); ++k) {
      const BodyOutput& output = body_.outputs[1 + k];
      if (output.fetch < 0)
        carried_.set_next(k, *runner_.feeds[static_cast<std::size_t>(output.feed)]);
    }
    for (Stacked& stacked : stacked_) stacked.whole->add(*stacked.slice);
    const RuntimeValue& next = condition.fetch >= 0
                                   ? condition_
                                   : *runner_.feeds[static_cast<std::size_t>(condition.feed)];
    const bool result = read_condition(next, "body's condition");
    carried_.end_turn();
    return result;
  }

  const ControlPlan& plan_;
  const ControlBody& body_;
  const Node& node_;
  SpaceCopies copies_;
  BodyRunner runner_;
  CarriedValues carried_;
  std::vector<Stacked> stacked_;
  RuntimeValue turn_, go_on_, condition_;
  std::vector<std::int64_t> stack_dims_;
};

}  // namespace

std::unique_ptr<ControlStep> make_loop_step(const Graph& graph, const Node& node, const Step& step,
                                            const DeviceSet& devices) {
  return std::make_unique<LoopStep>(graph, node, step, devices);
}

}  // namespace backplane::core
