#include "core/plan/control_plan.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/base/error.hpp"
#include "core/plan/session_device.hpp"

namespace backplane::core {
namespace {

using Kind = ValueState::Kind;

bool same_shape(const ValueState& a, const ValueState& b) {
  if (a.kind != b.kind || a.kind == Kind::Unset || a.kind == Kind::Pending) return false;
  if (a.kind == Kind::Object) return a.object_type == b.object_type;
  return a.type == b.type && a.dims == b.dims;
}

/// What a run will tell: the type is known, the size is not.
ValueState pending(const Type& type) {
  ValueState state;
  if (!type.is_tensor() && type.kind != Type::Kind::Unknown) {
    state.kind = Kind::Object;
    state.object_type = type.to_string();
    return state;
  }
  state.kind = Kind::Pending;
  state.type = type.element;
  return state;
}

/// A value as a body is fed with it: plain; elements count only where the body's shapes depend on them.
ValueState as_feed(const ValueState& state) {
  ValueState feed = state;
  feed.description = nullptr;
  if (feed.kind == Kind::Tensor) {
    RuntimeValuePtr known = std::move(feed.known);
    feed = tensor_state(state.type, state.dims);
    feed.known = std::move(known);
  }
  return feed;
}

bool on_host_only(const ValueState& state) {
  return state.kind == Kind::Object || state.type == DataType::String;
}

/// An element of a known scalar, or tensor of one element.
template <class Element>
Element scalar(const RuntimeValue& value, DataType type, const char* what) {
  if (!value.is_tensor() || value.element() != type || value.description.bytes != sizeof(Element))
    invalid("its ", what, " must be one ", name(type));
  Element element{};
  std::memcpy(&element, value.description.host_ptr, sizeof(Element));
  return element;
}

/// What a body says that cannot work with what it is given: by its shapes, or by arithmetic on them.
bool is_misfit(const Error& error) {
  return error.code() == Code::InvalidArgument || error.code() == Code::Failed ||
         error.code() == Code::Unsupported;
}

class ControlPlanner {
 public:
  ControlPlanner(const ControlNode& control, const ControlInputs& inputs)
      : control_(control), inputs_(inputs), node_(*inputs.node) {
    plan_->node = &control;
    plan_->places.resize(control.bodies.size());
    plan_->output_spaces.assign(node_.outputs.size(), kHostSpace);
    plan_->outputs.resize(node_.outputs.size());
    plan_->direct.resize(node_.outputs.size());
    plan_->slices.resize(node_.outputs.size());
  }

  std::shared_ptr<const ControlPlan> run() {
    switch (control_.kind) {
      case ControlKind::If:
        plan_if();
        break;
      case ControlKind::Loop:
        plan_loop();
        break;
      case ControlKind::Scan:
        plan_scan();
        break;
    }
    return plan_;
  }

 private:
  const ValueState& state(ValueId id) const { return inputs_.state(id); }

  /// States and places of the captured values of a body, behind its inputs.
  void add_captured(const ControlBody& body, const BodyPlaces& homes,
                    std::vector<ValueState>& feeds, BodyPlaces& places) const {
    for (std::size_t i = 0; i < body.captured.size(); ++i) {
      const ValueState& outer = state(body.captured[i]);
      feeds.push_back(as_feed(outer));
      int home = homes.feeds[body.input_count + i];
      if (home == kNoSpace) home = home_in_other_bodies(body.captured[i]);
      if (home == kNoSpace) home = outer.space;
      places.feeds.push_back(on_host_only(outer) ? kHostSpace : home);
    }
  }

  /// Where another body reads a captured value.
  int home_in_other_bodies(ValueId id) const {
    for (std::size_t b = 0; b < control_.bodies.size() && control_.bodies.size() > 1; ++b) {
      const ControlBody& body = control_.bodies[b];
      const auto found = std::find(body.captured.begin(), body.captured.end(), id);
      if (!runs(b) || found == body.captured.end()) continue;
      const auto index = static_cast<std::size_t>(found - body.captured.begin());
      const int home = body.body->homes().feeds[body.input_count + index];
      if (home != kNoSpace) return home;
    }
    return kNoSpace;
  }

  // If

  void plan_if() {
    plan_->branch = known_branch(control_, inputs_);
    std::vector<BodyPlaces> homes;
    for (const ControlBody& body : control_.bodies) homes.push_back(body.body->homes());
    for (std::size_t i = 0; i < node_.outputs.size(); ++i) {
      int space = kNoSpace;
      for (std::size_t b = 0; b < control_.bodies.size() && space == kNoSpace; ++b) {
        const int fetch = control_.bodies[b].outputs[i].fetch;
        if (runs(b) && fetch >= 0) space = homes[b].fetches[static_cast<std::size_t>(fetch)];
      }
      plan_->output_spaces[i] = std::max(space, kHostSpace);
    }
    plan_branches(homes);
    for (std::size_t i = 0; i < node_.outputs.size(); ++i)
      plan_->direct[i] = has_memory(plan_->outputs[i]);
  }

  /// What the outputs are. A branch that cannot work with these shapes says nothing of them: that is an error of the run
  /// that takes it, and models have such, one for each rank or size of an input.
  void plan_branches(const std::vector<BodyPlaces>& homes) {
    std::optional<Error> misfit;
    bool first = true;
    for (std::size_t b = 0; b < control_.bodies.size(); ++b) {
      if (!runs(b)) continue;
      try {
        plan_branch(b, homes[b], first);
        first = false;
      } catch (const Error& error) {
        if (plan_->branch >= 0 || !is_misfit(error)) throw;
        misfit = error;
      }
    }
    if (first && misfit) throw *misfit;
  }

  bool runs(std::size_t branch) const {
    return plan_->branch < 0 || plan_->branch == static_cast<int>(branch);
  }

  void plan_branch(std::size_t b, const BodyPlaces& homes, bool first) {
    const ControlBody& body = control_.bodies[b];
    BodyPlaces& places = plan_->places[b];
    std::vector<ValueState> feeds;
    add_captured(body, homes, feeds, places);
    for (std::size_t i = 0; i < node_.outputs.size(); ++i) {
      if (body.outputs[i].fetch >= 0) places.fetches.push_back(plan_->output_spaces[i]);
    }
    places.fetches.resize(body.fetch_count, kHostSpace);
    const std::vector<ValueState> fetches = body.body->plan_body(feeds, places);
    for (std::size_t i = 0; i < node_.outputs.size(); ++i) {
      const int fetch = body.outputs[i].fetch;
      if (fetch < 0) continue;
      const ValueState& made = fetches[static_cast<std::size_t>(fetch)];
      const bool agrees = first || same_shape(plan_->outputs[i], made);
      const bool settled = agrees && (made.kind == Kind::Tensor || made.kind == Kind::Object);
      plan_->outputs[i] = settled ? made : pending(output_type(i, body.output_types[i]));
      plan_->outputs[i].known = plan_->branch >= 0 && settled ? made.known : nullptr;
    }
  }

  /// The declared type of an output of the node, or that of the body's where the graph does not say.
  const Type& output_type(std::size_t output, const Type& otherwise) const {
    const Type& declared = inputs_.graph->value(node_.outputs[output]).type;
    return declared.kind != Type::Kind::Unknown ? declared : otherwise;
  }

  // Loop and Scan

  /// The space of a value that the body makes and reads again.
  static int carried_space(const BodyPlaces& homes, const BodyOutput& output, std::size_t feed,
                           const ValueState& initial) {
    if (on_host_only(initial)) return kHostSpace;
    int space = homes.feeds[feed];
    if (space == kHostSpace) return space;  // shapes depend on it, or only the host reads it
    if (output.fetch >= 0 && homes.fetches[static_cast<std::size_t>(output.fetch)] != kNoSpace)
      space = homes.fetches[static_cast<std::size_t>(output.fetch)];
    return space != kNoSpace ? space : initial.space;
  }

  /// Whether the body keeps the dims of what it carries; those that vary become Pending.
  std::vector<ValueState> settle_carried(const ControlBody& body, std::vector<ValueState>& feeds,
                                         std::size_t first_feed, std::size_t first_output) {
    while (true) {
      std::vector<ValueState> fetches = body.body->plan_body(feeds, plan_->places[0]);
      bool changed = false;
      for (std::size_t k = 0; k < control_.carried_count; ++k) {
        ValueState& carried = feeds[first_feed + k];
        if (carried.kind != Kind::Tensor) continue;  // a sequence may be of any length
        const BodyOutput& output = body.outputs[first_output + k];
        const ValueState& next = output.fetch >= 0 ? fetches[static_cast<std::size_t>(output.fetch)]
                                                   : feeds[static_cast<std::size_t>(output.feed)];
        if (same_shape(carried, next)) continue;
        carried = pending(body.output_types[first_output + k]);
        changed = true;
      }
      if (!changed) return fetches;
    }
  }

  /// What the body makes. None where it cannot work with what it is given and there may be no turn, which alone would
  /// say so; what is carried is then what it began as, if it is known that there is none.
  std::vector<ValueState> fetches_of_turns(const ControlBody& body, std::vector<ValueState>& feeds,
                                           std::size_t first_feed, std::size_t first_output) {
    const std::vector<ValueState> initial = feeds;
    try {
      return settle_carried(body, feeds, first_feed, first_output);
    } catch (const Error& error) {
      if (plan_->trip_count.value_or(0) > 0 || !is_misfit(error)) throw;
    }
    feeds = initial;
    for (std::size_t k = 0; k < control_.carried_count && !plan_->trip_count; ++k) {
      if (feeds[first_feed + k].kind == Kind::Tensor)
        feeds[first_feed + k] = pending(body.output_types[first_output + k]);
    }
    return {};
  }

  /// `initial[k]`: what carried value k starts as.
  void settle_spaces(const ControlBody& body, const BodyPlaces& homes,
                     const std::vector<const ValueState*>& initial, std::size_t first_feed,
                     std::size_t first_output) {
    BodyPlaces& places = plan_->places[0];
    for (std::size_t k = 0; k < control_.carried_count; ++k)
      places.feeds[first_feed + k] =
          carried_space(homes, body.outputs[first_output + k], first_feed + k, *initial[k]);
    // Values that are handed on from one place to another lie in one space.
    for (std::size_t round = 0; round < control_.carried_count; ++round) {
      for (std::size_t k = 0; k < control_.carried_count; ++k) {
        const int feed = body.outputs[first_output + k].feed;
        if (feed >= 0) places.feeds[first_feed + k] = places.feeds[static_cast<std::size_t>(feed)];
      }
    }
    places.fetches.assign(body.fetch_count, kHostSpace);
    for (std::size_t k = 0; k < control_.carried_count; ++k) {
      const int space = places.feeds[first_feed + k];
      const int fetch = body.outputs[first_output + k].fetch;
      if (fetch >= 0) places.fetches[static_cast<std::size_t>(fetch)] = space;
      if (k < plan_->output_spaces.size()) plan_->output_spaces[k] = space;
    }
  }

  /// Outputs that stack what the turns make, `stacked` turns of them where that is known.
  void settle_stacked(const ControlBody& body, const BodyPlaces& homes, std::size_t first_output) {
    for (std::size_t i = control_.carried_count; i < node_.outputs.size(); ++i) {
      const int fetch = body.outputs[first_output + i].fetch;
      if (fetch < 0) continue;
      // The host pads shorter sequences of a batch, and moves axes whose place was unknown before.
      const bool by_host =
          stack_axis(i) != 0 || (control_.scan.batched && node_.inputs[0] != kNone);
      const int home = by_host
                           ? kHostSpace
                           : std::max(homes.fetches[static_cast<std::size_t>(fetch)], kHostSpace);
      plan_->output_spaces[i] = home;
      plan_->places[0].fetches[static_cast<std::size_t>(fetch)] = home;
    }
  }

  /// As the attribute says it.
  std::int64_t stack_axis(std::size_t output) const {
    const std::vector<std::int64_t>& axes = control_.scan.output_axes;
    const std::size_t index = output - control_.carried_count;
    return control_.kind == ControlKind::Scan && index < axes.size() ? axes[index] : 0;
  }

  void finish_outputs(const ControlBody& body, const std::vector<ValueState>& feeds,
                      const std::vector<ValueState>& fetches, std::size_t first_feed,
                      std::size_t first_output, const std::vector<std::int64_t>& stack) {
    for (std::size_t i = 0; i < node_.outputs.size(); ++i) {
      if (node_.outputs[i] == kNone) continue;
      ValueState& output = plan_->outputs[i];
      const Type& type = output_type(i, body.output_types[first_output + i]);
      if (i < control_.carried_count) {
        output = feeds[first_feed + i];
        output.known = nullptr;
        if (output.kind == Kind::Pending) output = pending(type);
        continue;
      }
      if (fetches.empty()) {
        output = pending(type);
        continue;
      }
      const int fetch = body.outputs[first_output + i].fetch;
      const ValueState& slice = fetches[static_cast<std::size_t>(fetch)];
      if (slice.kind == Kind::Object) invalid("its output ", i, " stacks what are no tensors");
      if (slice.kind == Kind::Tensor) plan_->slices[i] = tensor_state(slice.type, slice.dims);
      if (slice.kind != Kind::Tensor || stack.empty()) {
        output = pending(type);
        output.kind = Kind::Pending;
        continue;
      }
      std::vector<std::int64_t> dims = slice.dims;
      const std::size_t axis = scan_axis(stack_axis(i), dims.size() + 1, "scan output");
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), stack.begin(), stack.end());
      output = tensor_state(slice.type, dims);
      plan_->direct[i] = axis == 0 && has_memory(output) && element_bits(slice.type) % 8 == 0;
    }
  }

  void plan_loop() {
    const ControlBody& body = control_.bodies[0];
    const BodyPlaces homes = body.body->homes();
    std::vector<ValueState> feeds;
    const auto scalar_dims = [&](std::size_t input) {
      return body.input_ranks[input] == 1 ? std::vector<std::int64_t>{1}
                                          : std::vector<std::int64_t>{};
    };
    feeds.push_back(tensor_state(DataType::Int64, scalar_dims(0)));
    feeds.push_back(tensor_state(DataType::Bool, scalar_dims(1)));
    std::vector<const ValueState*> initial;
    for (std::size_t k = 0; k < control_.carried_count; ++k) {
      const ValueId id = node_.inputs[2 + k];
      if (id == kNone) invalid("its input ", 2 + k, ", a value to carry, is left out");
      initial.push_back(&state(id));
      feeds.push_back(as_feed(*initial.back()));
      feeds.back().known = nullptr;  // of the first turn only
    }
    plan_->places[0].feeds.assign(body.input_count, kHostSpace);
    add_captured(body, homes, feeds, plan_->places[0]);
    settle_spaces(body, homes, initial, 2, 1);
    settle_stacked(body, homes, 1);
    plan_->trip_count = known_trips(body);
    const std::vector<ValueState> fetches = fetches_of_turns(body, feeds, 2, 1);
    std::vector<std::int64_t> stack;
    if (plan_->trip_count) stack.push_back(*plan_->trip_count);
    finish_outputs(body, feeds, fetches, 2, 1, stack);
  }

  /// The number of turns, where neither the trip count nor the condition waits for a run.
  std::optional<std::int64_t> known_trips(const ControlBody& body) const {
    const auto input = [&](std::size_t i) {
      return i < node_.inputs.size() ? node_.inputs[i] : kNone;
    };
    if (input(1) != kNone) {
      const RuntimeValue* condition = inputs_.known(input(1));
      if (condition == nullptr) return std::nullopt;
      if (!scalar<bool>(*condition, DataType::Bool, "condition")) return 0;
    }
    const RuntimeValue* trips = input(0) != kNone ? inputs_.known(input(0)) : nullptr;
    if (trips == nullptr) return std::nullopt;
    const std::int64_t count =
        std::max<std::int64_t>(scalar<std::int64_t>(*trips, DataType::Int64, "trip count"), 0);
    const BodyOutput& next = body.outputs[0];
    const bool goes_on =
        next.feed == 1 || (next.fetch >= 0 &&
                           body.body->constant_truth(static_cast<std::size_t>(next.fetch)) == true);
    return goes_on || count == 0 ? std::optional(count) : std::nullopt;
  }

  void plan_scan() {
    const ControlBody& body = control_.bodies[0];
    const BodyPlaces homes = body.body->homes();
    const ScanLayout& layout = control_.scan;
    const std::size_t first = layout.batched ? 1 : 0;
    std::vector<ValueState> feeds;
    std::optional<std::int64_t> trips, batch;
    std::vector<const ValueState*> initial;
    BodyPlaces& places = plan_->places[0];
    for (std::size_t i = 0; i < body.input_count; ++i) {
      const ValueId id = node_.inputs[first + i];
      if (id == kNone) invalid("its input ", first + i, " is left out");
      const bool scanned = i >= layout.state_count;
      ValueState feed = as_feed(state(id));
      if (feed.kind != Kind::Tensor)
        invalid("its input '", inputs_.graph->value(id).name, "' is no tensor");
      if (layout.batched) take_axis(feed, 0, batch, id, "batch");
      const std::int64_t given = scanned ? layout.input_axes[i - layout.state_count] : 0;
      if (scanned) take_axis(feed, given, trips, id, "scan");
      feeds.push_back(tensor_state(feed.type, feed.dims));  // elements are of one turn only
      const int home = homes.feeds[i] != kNoSpace ? homes.feeds[i] : state(id).space;
      places.feeds.push_back(on_host_only(feeds[i]) || given != 0 ? kHostSpace : home);
      if (!scanned) initial.push_back(&state(id));
    }
    add_captured(body, homes, feeds, places);
    settle_spaces(body, homes, initial, 0, 0);
    settle_stacked(body, homes, 0);
    plan_->trip_count = trips;
    const std::vector<ValueState> fetches = fetches_of_turns(body, feeds, 0, 0);
    std::vector<std::int64_t> stack;
    if (batch) stack.push_back(*batch);
    stack.push_back(*trips);
    finish_outputs(body, feeds, fetches, 0, 0, stack);
    if (!batch) return;
    for (std::size_t i = 0; i < std::min(layout.state_count, node_.outputs.size()); ++i) {
      ValueState& output = plan_->outputs[i];
      if (output.kind != Kind::Tensor)
        throw Error(Code::Unsupported, "a Scan of version 8 with states that change their size");
      output.dims.insert(output.dims.begin(), *batch);
      output = tensor_state(output.type, output.dims);
      plan_->direct[i] = has_memory(output) && element_bits(output.type) % 8 == 0;
    }
  }

  /// Takes an axis off; all values agree on its size.
  void take_axis(ValueState& feed, std::int64_t given, std::optional<std::int64_t>& size,
                 ValueId id, const char* what) const {
    const std::string& name = inputs_.graph->value(id).name;
    if (feed.dims.empty()) invalid("its input '", name, "' has no ", what, " axis");
    const std::size_t axis = scan_axis(given, feed.dims.size(), "scan input");
    const std::int64_t entries = feed.dims[axis];
    if (size && *size != entries)
      invalid("its input '", name, "' has ", entries, " entries on its ", what,
              " axis; another has ", *size);
    size = entries;
    feed.dims.erase(feed.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  }

  const ControlNode& control_;
  const ControlInputs& inputs_;
  const Node& node_;
  std::shared_ptr<ControlPlan> plan_ = std::make_shared<ControlPlan>();
};

}  // namespace

int known_branch(const ControlNode& control, const ControlInputs& inputs) {
  if (control.kind != ControlKind::If) return -1;
  const RuntimeValue* condition = inputs.known(inputs.node->inputs[0]);
  if (condition == nullptr) return -1;
  return scalar<bool>(*condition, DataType::Bool, "condition") ? 0 : 1;
}

std::shared_ptr<const ControlPlan> plan_control(const ControlNode& control,
                                                const ControlInputs& inputs) {
  return ControlPlanner(control, inputs).run();
}

}  // namespace backplane::core
