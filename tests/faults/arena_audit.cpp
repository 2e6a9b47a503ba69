#include "tests/faults/arena_audit.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>

namespace backplane::core::faults {
namespace {

bool share_bytes(const Slot& a, const Slot& b) {
  return a.place == Place::Arena && b.place == Place::Arena && a.arena == b.arena &&
         a.offset < b.offset + extent(b) && b.offset < a.offset + extent(a);
}

}  // namespace

/// Joins slots that share bytes on purpose.
class ArenaAudit::Joiner {
 public:
  Joiner(const Program& program, const Segment& segment)
      : graph_(program.graph()), segment_(segment), root_(segment.slots.size()) {
    std::iota(root_.begin(), root_.end(), 0);
    std::vector<bool> is_written(segment.slots.size());
    for (const Step& step : segment.steps) {
      for (const int output : step.outputs) {
        if (output < 0) continue;
        is_written[static_cast<std::size_t>(output)] = true;
        // A body may read what it was given after it has made what it is to make.
        if (step.kind == StepKind::Control) continue;
        for (const int input : step.inputs) join_if_shared(input, output);
      }
    }
    for (std::size_t i = 0; i < segment.slots.size(); ++i) {
      if (!is_written[i] && segment.slots[i].place == Place::Arena) join_to_sources(i);
    }
  }

  int root(int slot) const {
    while (root_[static_cast<std::size_t>(slot)] != slot)
      slot = root_[static_cast<std::size_t>(slot)];
    return slot;
  }

 private:
  void join_if_shared(int a, int b) {
    if (a < 0 || b < 0) return;
    if (share_bytes(segment_.slot(a), segment_.slot(b)))
      root_[static_cast<std::size_t>(root(a))] = root(b);
  }

  /// No step writes the slot: its node needs none, since the value is a view of an input or its inputs are made in it.
  void join_to_sources(std::size_t slot) {
    const Slot& made = segment_.slots[slot];
    const NodeId producer = graph_.value(made.value).producer;
    if (producer == kNone) return;
    const std::vector<ValueId>& sources = graph_.node(producer).inputs;
    for (std::size_t other = 0; other < segment_.slots.size(); ++other) {
      const Slot& source = segment_.slots[other];
      if (source.space == made.space &&
          std::find(sources.begin(), sources.end(), source.value) != sources.end())
        join_if_shared(static_cast<int>(other), static_cast<int>(slot));
    }
  }

  const Graph& graph_;
  const Segment& segment_;
  std::vector<int> root_;
};

ArenaAudit::ArenaAudit(const Program& program, const Segment& segment) : program_(program) {
  const Joiner joiner(program, segment);
  std::vector<Piece> pieces(segment.slots.size());
  for (std::size_t i = 0; i < segment.slots.size(); ++i) {
    const Slot& slot = segment.slots[i];
    if (slot.place != Place::Arena || slot.state->bytes == 0) continue;
    Piece& piece = pieces[static_cast<std::size_t>(joiner.root(static_cast<int>(i)))];
    const bool is_new = piece.arena < 0;
    piece.begin = is_new ? slot.offset : std::min(piece.begin, slot.offset);
    piece.end = std::max(piece.end, slot.offset + extent(slot));
    piece.arena = slot.arena;
    piece.name += (is_new ? "'" : "+'") + program.graph().value(slot.value).name + "'";
  }
  for (std::size_t s = 0; s < segment.steps.size(); ++s) {
    const Step& step = segment.steps[s];
    const auto touch = [&](int slot) {
      if (slot < 0) return;
      Piece& piece = pieces[static_cast<std::size_t>(joiner.root(slot))];
      if (piece.first < 0) piece.first = static_cast<int>(s);
      piece.last = static_cast<int>(s);
    };
    std::for_each(step.inputs.begin(), step.inputs.end(), touch);
    std::for_each(step.outputs.begin(), step.outputs.end(), touch);
    if (step.workspace_bytes > 0 && step.workspace_arena >= 0)
      pieces_.push_back({step.workspace_arena, step.workspace_offset,
                         step.workspace_offset + step.workspace_bytes, static_cast<int>(s),
                         static_cast<int>(s), "the workspace of " + step.label});
  }
  for (const LiveValue& live : segment.outgoing)
    pieces[static_cast<std::size_t>(joiner.root(live.slot))].last =
        static_cast<int>(segment.steps.size());
  for (const auto& [fetch, slot] : segment.dynamic_fetches)
    pieces[static_cast<std::size_t>(joiner.root(slot))].last =
        static_cast<int>(segment.steps.size());
  for (Piece& piece : pieces) {
    if (piece.arena >= 0 && piece.first >= 0) pieces_.push_back(std::move(piece));
  }
  find_overwritten(segment);
}

/// Slots whose bytes are meant to be the same: a view and what it is of, what is made inside something and that.
class ArenaAudit::Kin {
 public:
  Kin(const Graph& graph, const Segment& segment)
      : root_(segment.slots.size()), first_written_(segment.slots.size(), kNever) {
    std::iota(root_.begin(), root_.end(), 0);
    for (std::size_t s = 0; s < segment.steps.size(); ++s) {
      const Step& step = segment.steps[s];
      for (const int output : step.outputs) {
        if (output < 0) continue;
        int& first = first_written_[static_cast<std::size_t>(output)];
        first = std::min(first, static_cast<int>(s));
        for (std::size_t i = 0; i < step.input_state.size() && i < step.inputs.size(); ++i) {
          if (step.inputs[i] >= 0 && (step.input_state[i] & BP_INPUT_INSIDE) != 0)
            join(step.inputs[i], output);
        }
      }
    }
    for (std::size_t view = 0; view < segment.slots.size(); ++view) {
      const Slot& slot = segment.slots[view];
      const NodeId producer = graph.value(slot.value).producer;
      if (first_written_[view] != kNever || slot.place != Place::Arena || producer == kNone)
        continue;
      const std::vector<ValueId>& sources = graph.node(producer).inputs;
      for (std::size_t other = 0; other < segment.slots.size(); ++other) {
        if (std::find(sources.begin(), sources.end(), segment.slots[other].value) !=
                sources.end() &&
            share_bytes(slot, segment.slots[other]))
          join(static_cast<int>(other), static_cast<int>(view));
      }
    }
  }
  bool are_kin(std::size_t a, std::size_t b) const { return root(a) == root(b); }
  /// Whether there is something in the slot before a step.
  bool is_there_before(std::size_t slot, int step) const {
    if (first_written_[slot] != kNever) return first_written_[slot] < step;
    for (std::size_t other = 0; other < root_.size(); ++other) {
      if (first_written_[other] < step && are_kin(slot, other)) return true;
    }
    return false;
  }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();
  int root(std::size_t slot) const {
    int number = static_cast<int>(slot);
    while (root_[static_cast<std::size_t>(number)] != number)
      number = root_[static_cast<std::size_t>(number)];
    return number;
  }
  void join(int a, int b) {
    root_[static_cast<std::size_t>(root(static_cast<std::size_t>(a)))] =
        root(static_cast<std::size_t>(b));
  }

  std::vector<int> root_, first_written_;
};

/// What is there and read again is not written over, be it an input of the step that writes.
void ArenaAudit::find_overwritten(const Segment& segment) {
  const Kin kin(program_.graph(), segment);
  std::vector<int> last_read(segment.slots.size(), -1);
  const auto read = [&](int slot, std::size_t step) {
    if (slot >= 0) last_read[static_cast<std::size_t>(slot)] = static_cast<int>(step);
  };
  for (std::size_t s = 0; s < segment.steps.size(); ++s) {
    for (const int input : segment.steps[s].inputs) read(input, s);
  }
  for (const LiveValue& live : segment.outgoing) read(live.slot, segment.steps.size());
  for (const auto& [fetch, slot] : segment.dynamic_fetches) read(slot, segment.steps.size());
  for (std::size_t s = 0; s < segment.steps.size(); ++s) {
    const int now = static_cast<int>(s);
    for (const int output : segment.steps[s].outputs) {
      if (output < 0) continue;
      const auto made = static_cast<std::size_t>(output);
      for (std::size_t held = 0; held < segment.slots.size(); ++held) {
        if (last_read[held] <= now || kin.are_kin(held, made) ||
            !share_bytes(segment.slots[held], segment.slots[made]) ||
            !kin.is_there_before(held, now))
          continue;
        overwritten_ = text("'", program_.graph().value(segment.slots[held].value).name,
                            "' is written over in step ", s, " (", segment.steps[s].label,
                            ") and read again in step ", last_read[held]);
      }
    }
  }
}

std::string ArenaAudit::overlap() const {
  if (!overwritten_.empty()) return overwritten_;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Piece &a = pieces_[i], &b = pieces_[j];
      if (a.arena == b.arena && a.begin < b.end && b.begin < a.end && a.first <= b.last &&
          b.first <= a.last)
        return text(a.name, " and ", b.name, " share bytes of arena ", a.arena, " in step ",
                    std::max(a.first, b.first));
    }
  }
  return "";
}

/// Rewrites the list of steps.
class ArenaAudit::Poisoner {
 public:
  Poisoner(const Program& program, const std::vector<Piece>& pieces, Segment& segment)
      : devices_(*program.context().devices), pieces_(pieces), segment_(segment) {
    for (const Piece& piece : pieces) most_ = std::max(most_, piece.end - piece.begin);
    auto blob = std::make_shared<Weight>();
    blob->value.set_owned_tensor(DataType::UInt8, {static_cast<std::int64_t>(most_)});
    if (most_ > 0) std::memset(blob->value.description.host_ptr, 0xFF, most_);
    blob_ = std::move(blob);
    pinned_.assign(devices_.devices.size(), kNotThere);
  }

  void run() {
    std::vector<Step> steps = std::move(segment_.steps);
    segment_.steps.clear();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (const Piece& piece : pieces_) {
        if (piece.first == static_cast<int>(i)) fill(piece);
      }
      steps[i].waits.clear();
      steps[i].other_half = -1;  // it would be another step's number
      add(std::move(steps[i]));
      for (const Piece& piece : pieces_) {
        if (piece.last == static_cast<int>(i)) fill(piece);
      }
    }
    // The memory of a device may so far have been touched by bodies alone.
    for (const Step& step : segment_.steps) {
      if (step.on_stream) segment_.used_streams[static_cast<std::size_t>(step.device)] = true;
    }
  }

 private:
  static constexpr std::uint64_t kNotThere = ~std::uint64_t{0};

  /// Behind everything before it.
  void add(Step step) {
    std::vector<int> last(devices_.devices.size(), -1);
    for (std::size_t i = 0; i < segment_.steps.size(); ++i) {
      const Step& earlier = segment_.steps[i];
      if (earlier.on_stream) last[static_cast<std::size_t>(earlier.device)] = static_cast<int>(i);
    }
    for (std::size_t stream = 0; stream < last.size(); ++stream) {
      if (last[stream] < 0 || (step.on_stream && step.device == static_cast<int>(stream))) continue;
      step.waits.push_back({static_cast<int>(stream), last[stream]});
      segment_.step(last[stream]).signals = true;
    }
    segment_.steps.push_back(std::move(step));
  }

  int bytes_slot(Place place, int space, int arena, std::uint64_t offset, std::uint64_t bytes) {
    Slot slot;
    slot.place = place;
    slot.space = space;
    slot.arena = arena;
    slot.offset = offset;
    slot.state = tensor_state(DataType::UInt8, {static_cast<std::int64_t>(bytes)});
    if (place == Place::Weight) slot.weight = blob_;
    segment_.slots.push_back(std::move(slot));
    return static_cast<int>(segment_.slots.size()) - 1;
  }

  void copy(StepKind kind, int device, int from, int to) {
    Step step;
    step.kind = kind;
    step.device = device;
    step.on_stream = kind == StepKind::Copy;
    step.inputs = {from};
    step.outputs = {to};
    step.label = "poison";
    add(std::move(step));
  }

  void fill(const Piece& piece) {
    const std::uint64_t bytes = piece.end - piece.begin;
    const auto spaces = static_cast<int>(devices_.space_count());
    if (piece.arena == kHostSpace || piece.arena >= spaces) {
      const int from = bytes_slot(Place::Weight, kHostSpace, kHostSpace, 0, bytes);
      copy(StepKind::HostCopy, -1, from,
           bytes_slot(Place::Arena, kHostSpace, piece.arena, piece.begin, bytes));
      return;
    }
    const int device = DeviceSet::device_of_space(piece.arena);
    const int from = bytes_slot(Place::Arena, kHostSpace, pinned_arena(devices_, device),
                                pinned_poison(device), bytes);
    copy(StepKind::Copy, device, from,
         bytes_slot(Place::Arena, piece.arena, piece.arena, piece.begin, bytes));
  }

  /// Where in a device's pinned arena the poison is; puts it there first.
  std::uint64_t pinned_poison(int device) {
    std::uint64_t& place = pinned_[static_cast<std::size_t>(device)];
    if (place != kNotThere) return place;
    const int arena = pinned_arena(devices_, device);
    std::uint64_t& size = segment_.arena_bytes[static_cast<std::size_t>(arena)];
    place = (size + 255) / 256 * 256;
    size = place + most_;
    const int from = bytes_slot(Place::Weight, kHostSpace, kHostSpace, 0, most_);
    copy(StepKind::HostCopy, -1, from, bytes_slot(Place::Arena, kHostSpace, arena, place, most_));
    return place;
  }

  const DeviceSet& devices_;
  const std::vector<Piece>& pieces_;
  Segment& segment_;
  std::shared_ptr<const Weight> blob_;
  std::uint64_t most_ = 0;
  std::vector<std::uint64_t> pinned_;
};

void ArenaAudit::poison(Segment& segment) const { Poisoner(program_, pieces_, segment).run(); }

PlanAudit::PlanAudit(const Executable& executable) { add(executable); }

void PlanAudit::add(const Executable& executable) {
  const std::shared_ptr<Generation> generation = executable.generation();
  const Program& program = *generation->program;
  {
    const std::lock_guard lock(generation->planning);
    add_plans(generation, generation->plans);
  }
  for (const NodeId id : program.order()) {
    const ControlNode* const control = program.node(id).control.get();
    if (control == nullptr) continue;
    for (const ControlBody& body : control->bodies) add(static_cast<const Executable&>(*body.body));
  }
}

void PlanAudit::add_plans(const std::shared_ptr<Generation>& generation, const PlanNode& plan) {
  if (plan.segment != nullptr) {
    plans_.push_back({generation, std::const_pointer_cast<Segment>(plan.segment)});
    if (plans_.back().is_of_body()) ++body_plan_count_;
  }
  for (const PlanList::Entry& next : plan.next) add_plans(generation, *next.node);
}

std::string PlanAudit::overlap() const {
  for (const Plan& plan : plans_) {
    const Program& program = *plan.generation->program;
    const std::string found = ArenaAudit(program, *plan.segment).overlap();
    if (!found.empty()) return plan.scope() + ": " + found;
  }
  return "";
}

void PlanAudit::poison() const {
  for (const Plan& plan : plans_) {
    ArenaAudit(*plan.generation->program, *plan.segment).poison(*plan.segment);
    // Both number the steps that there were.
    plan.segment->capture = nullptr;
    plan.segment->groups.clear();
  }
}

}  // namespace backplane::core::faults
