#include "core/plan/resize_segment.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "core/plan/aliasing.hpp"
#include "core/plan/step_builder.hpp"

namespace backplane::core {

/// Where nodes and values are in a segment; -1: nowhere.
struct ResizeIndex {
  PerNode<int> position;  ///< in the program's order
  PerNode<int> step;
  PerNode<int> dropped;         ///< in Segment::dropped
  std::vector<int> first_slot;  ///< by the value's index, and one more
  std::vector<int> slots;

  std::span<const int> slots_of(ValueId value) const {
    const auto first = slots.begin() + first_slot[value.index()];
    return {first, slots.begin() + first_slot[value.index() + 1]};
  }
};

namespace {

ResizeIndex index_of(const Program& program, const Segment& segment) {
  const Graph& graph = program.graph();
  ResizeIndex index;
  index.position.assign(graph.node_limit(), -1);
  index.step = index.dropped = index.position;
  for (std::size_t i = 0; i < program.order().size(); ++i)
    index.position[program.order()[i]] = static_cast<int>(i);
  for (std::size_t i = 0; i < segment.steps.size(); ++i) {
    if (segment.steps[i].node != kNone) index.step[segment.steps[i].node] = static_cast<int>(i);
  }
  for (std::size_t i = 0; i < segment.dropped.size(); ++i)
    index.dropped[segment.dropped[i].node] = static_cast<int>(i);
  index.first_slot.assign(graph.value_count() + 1, 0);
  for (const Slot& slot : segment.slots) ++index.first_slot[slot.value.index()];
  std::partial_sum(index.first_slot.begin(), index.first_slot.end(), index.first_slot.begin());
  index.slots.resize(segment.slots.size());
  for (std::size_t i = segment.slots.size(); i-- > 0;) {
    const int place = --index.first_slot[segment.slots[i].value.index()];
    index.slots[static_cast<std::size_t>(place)] = static_cast<int>(i);
  }
  return index;
}

/// Whether a value differs by its dims and elements alone.
bool differ_by_size(const ValueState& a, const ValueState& b) {
  return a.kind == ValueState::Kind::Tensor && b.kind == a.kind && a.type == b.type &&
         a.type != DataType::String && a.format == b.format && a.alignment == b.alignment &&
         a.space == b.space && a.dims.size() == b.dims.size() &&
         (a.known == nullptr) == (b.known == nullptr);
}

bool differ_by_size(const OutputPlan& a, const OutputPlan& b) {
  return a.kind == b.kind && a.in_place_of == b.in_place_of && a.view_of == b.view_of &&
         a.may_be_strided == b.may_be_strided;
}

bool are_equal(const PackWish& a, const PackWish& b) {
  return a.key == b.key && a.inputs == b.inputs && a.bytes == b.bytes;
}

bool are_equal(const InsideWish& a, const InsideWish& b) {
  return a.input == b.input && a.output == b.output && a.offset == b.offset &&
         a.strides == b.strides;
}

/// Whether a kernel says the same but for sizes.
bool differ_by_size(const PrepareResult& a, const PrepareResult& b) {
  const auto are_alike = [](const OutputPlan& one, const OutputPlan& other) {
    return differ_by_size(one, other);
  };
  return &a.prepared.def() == &b.prepared.def() && a.inputs == b.inputs && a.variant == b.variant &&
         a.workspace_alignment == b.workspace_alignment &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                    are_alike) &&
         std::equal(a.packs.begin(), a.packs.end(), b.packs.begin(), b.packs.end(),
                    [](const PackWish& x, const PackWish& y) { return are_equal(x, y); });
}

class Resizing {
 public:
  Resizing(Program& program, Segment& segment)
      : program_(program),
        graph_(program.graph()),
        segment_(segment),
        index_(*segment.resize_index) {
    walk_.values = std::move(segment.values);
    open_.resize(program.order().size());
  }

  std::optional<SegmentChange> run(const FeedStates& feeds) {
    for (std::size_t i = 0; i < feeds.size(); ++i) {
      if (!take(program_.feeds()[i], feeds[i])) return std::nullopt;
    }
    // Readers come after what makes their inputs.
    for (std::size_t next = 0; next < open_.size(); ++next) {
      if (open_[next] && !visit(program_.order()[next])) return std::nullopt;
    }
    if (!has_room()) return std::nullopt;
    segment_.values = std::move(walk_.values);
    return std::move(change_);
  }

 private:
  Slot& slot(int index) { return segment_.slot(index); }
  SharedState& state(ValueId value) { return walk_.values[value]; }
  const SharedState& state_before(ValueId value) {
    const auto found = std::find_if(before_.begin(), before_.end(),
                                    [value](const auto& each) { return each.first == value; });
    return found != before_.end() ? found->second : state(value);
  }

  /// What is known of a value now. False where that is more than another size.
  bool take(ValueId value, const SharedState& now) {
    SharedState& kept = state(value);
    if (tells_the_same(*kept, *now)) return true;
    if (!differ_by_size(*kept, *now)) return false;
    before_.emplace_back(value, kept);
    kept = now;
    for (const int number : index_.slots_of(value)) {
      slot(number).state = now;
      change_.slots.push_back(number);
      if (slot(number).place == Place::Weight && !is_view(value))
        slot(number).weight = weight_of(program_, value, *now, slot(number).space);
    }
    return open_readers(value);
  }

  bool is_view(ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    return producer != kNone && index_.dropped[producer] >= 0;
  }

  bool open_readers(ValueId value) {
    for (const Use& use : graph_.value(value).uses) {
      if (use.input < 0) return false;
      const int position = index_.position[use.node];
      if (position >= 0) open_[static_cast<std::size_t>(position)] = true;
    }
    return true;
  }

  /// Prepares or evaluates a node again, some of whose inputs changed.
  bool visit(NodeId id) {
    const Node& node = graph_.node(id);
    const bool was_evaluated = index_.step[id] < 0 && index_.dropped[id] < 0;
    std::vector<SharedState>& made = made_;
    made.clear();
    for (const ValueId output : node.outputs)
      made.push_back(output == kNone ? SharedState() : state(output));
    walk_.nodes.clear();
    walk_.evaluated.clear();
    if (!visit_node(program_, walk_, id) || walk_.evaluated.empty() == was_evaluated) return false;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      std::swap(made[i], state(node.outputs[i]));
      if (!take(node.outputs[i], made[i])) return false;
    }
    if (was_evaluated) return true;
    const std::shared_ptr<PreparedKernel>& kernel = walk_.nodes.front().kernel;
    return index_.dropped[id] >= 0
               ? keep_views(segment_.dropped[static_cast<std::size_t>(index_.dropped[id])], kernel)
               : keep_step(index_.step[id], kernel);
  }

  /// A node whose outputs are views of its inputs, and stay so.
  bool keep_views(DroppedNode& dropped, const std::shared_ptr<PreparedKernel>& kernel) {
    if (!differ_by_size(dropped.kernel->said, kernel->said)) return false;
    dropped.kernel = kernel;
    const Node& node = graph_.node(dropped.node);
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNone) continue;
      const OutputPlan& plan = kernel->said.outputs[k];
      if (!view(node.outputs[k], node.inputs[static_cast<std::size_t>(plan.view_of)], plan))
        return false;
    }
    return true;
  }

  bool view(ValueId output, ValueId input, const OutputPlan& plan) {
    const int from = memory_slot(input), to = memory_slot(output);
    if (from < 0 || to < 0 || slot(from).place != slot(to).place || slot(from).strides)
      return false;
    const Slot& in = slot(from);
    Slot& out = slot(to);
    const bool strided = plan.view_strides && !is_dense(plan.dims, *plan.view_strides);
    if (strided && !out.strides) return false;
    const std::uint64_t offset = in.offset + plan.view_offset;
    const bool is_moved = offset != out.offset;
    // What works in place on a view in an arena, or lies inside of another value, would have to follow it.
    if (is_moved && out.place != Place::Weight && out.place != Place::Incoming) return false;
    std::optional<std::vector<std::int64_t>> strides;
    if (strided) strides = plan.view_strides;
    // Its dims may be the same while its lines lie elsewhere: the first columns of a wider matrix.
    if (is_moved || out.strides != strides || out.weight != in.weight) change_.slots.push_back(to);
    out.strides = std::move(strides);
    out.weight = in.weight;
    out.offset = offset;
    return !is_moved || open_readers(output);
  }

  /// The one slot of a value with memory; -1: there is none, or there are several.
  int memory_slot(ValueId value) {
    int found = -1;
    for (const int number : index_.slots_of(value)) {
      if (slot(number).place == Place::Nowhere) continue;
      if (found >= 0) return -1;
      found = number;
    }
    return found;
  }

  bool keep_step(int number, const std::shared_ptr<PreparedKernel>& kernel) {
    Step& step = segment_.step(number);
    const PrepareResult& said = kernel->said;
    if (!differ_by_size(step.kernel->said, said) || !keeps_places(step, said) ||
        !keeps_insides(step, said))
      return false;
    if (said.workspace_bytes > step.workspace_room) return false;
    kernel->packs = step.kernel->packs;
    step.workspace_bytes = said.workspace_bytes;
    step.kernel = kernel;
    change_.steps.push_back(number);
    return true;
  }

  /// Whether what works in place can go on doing so.
  bool keeps_places(const Step& step, const PrepareResult& said) {
    for (std::size_t k = 0; k < said.outputs.size(); ++k) {
      if (step.outputs[k] < 0 || said.outputs[k].in_place_of < 0) continue;
      const int input = step.inputs[static_cast<std::size_t>(said.outputs[k].in_place_of)];
      if (input < 0) continue;
      const Slot &in = slot(input), &out = slot(step.outputs[k]);
      const bool together = in.place == out.place && in.arena == out.arena &&
                            in.number == out.number && in.offset == out.offset;
      if (!together) continue;
      const bool were_alike = state_before(in.value)->dims == state_before(out.value)->dims;
      if (in.state->bytes != out.state->bytes || (in.state->dims == out.state->dims) != were_alike)
        return false;
    }
    return true;
  }

  /// Whether inputs that are made inside outputs can go on being there.
  bool keeps_insides(const Step& step, const PrepareResult& said) {
    const std::vector<InsideWish>& wished = step.kernel->said.insides;
    if (wished.size() != said.insides.size()) return false;
    for (std::size_t i = 0; i < wished.size(); ++i) {
      const InsideWish& wish = said.insides[i];
      if (wish.input != wished[i].input || wish.output != wished[i].output) return false;
      if ((step.input_state[wish.input] & BP_INPUT_INSIDE) == 0) continue;
      const Slot &in = slot(step.inputs[wish.input]), &out = slot(step.outputs[wish.output]);
      if (!are_equal(wish, wished[i]) || state_before(in.value)->dims != in.state->dims ||
          !reaches_at_most(wish.offset, extent(in), out.state->bytes))
        return false;
    }
    return true;
  }

  bool has_room() {
    return std::all_of(change_.slots.begin(), change_.slots.end(), [&](int number) {
      const Slot& changed = slot(number);
      if (changed.place == Place::Arena) return extent(changed) <= changed.room;
      return changed.place != Place::Dynamic && changed.place != Place::View;
    });
  }

  Program& program_;
  const Graph& graph_;
  Segment& segment_;
  const ResizeIndex& index_;
  ShapeWalk walk_;
  std::vector<std::pair<ValueId, SharedState>> before_;  ///< of what changed
  std::vector<char> open_;                               ///< by position: nodes to visit
  std::vector<SharedState> made_;                        ///< by a node's outputs
  SegmentChange change_;
};

}  // namespace

bool may_be_resized(const Segment& segment) {
  return segment.is_last && segment.begin == 0 && segment.views.empty() &&
         segment.dynamic_fetches.empty() &&
         std::all_of(segment.steps.begin(), segment.steps.end(), [&](const Step& step) {
           if (step.kind == StepKind::Compute) return !step.on_stream;
           return step.kind == StepKind::HostCopy && segment.slot(step.inputs[0]).value != kNone;
         });
}

std::optional<SegmentChange> resize_segment(Program& program, Segment& segment,
                                            const FeedStates& feeds) {
  if (segment.resize_index == nullptr)
    segment.resize_index = std::make_shared<ResizeIndex>(index_of(program, segment));
  return Resizing(program, segment).run(feeds);
}

}  // namespace backplane::core
