#include "core/plan/segment.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/plan/aliasing.hpp"
#include "core/plan/layout.hpp"
#include "core/plan/parallel_groups.hpp"
#include "core/plan/piecewise_copies.hpp"
#include "core/plan/resize_segment.hpp"

namespace backplane::core {
namespace {

/// A run of bytes that a step touches.
struct Touch {
  int memory;  ///< an arena, or a number of its own for what lies elsewhere
  std::uint64_t begin, end;
  bool writes;
  bool by_host;  ///< when the call is made, whatever stream the step's work goes to
};

/// Decides who waits for whom: work on different streams, and on the host, that touches the same bytes or has a control
/// edge between it.
class Hazards {
 public:
  Hazards(Segment& segment, const Aliases& aliases, const DeviceSet& devices,
          const std::vector<std::pair<int, int>>& control)
      : segment_(segment), aliases_(aliases), devices_(devices) {
    for (const auto& [earlier, later] : control) after_[later].push_back(earlier);
  }

  void find() {
    const bool any_stream = std::any_of(segment_.steps.begin(), segment_.steps.end(),
                                        [](const Step& step) { return step.on_stream; });
    if (!any_stream) return;
    const std::size_t agents = devices_.devices.size() + 1;
    waited_.assign(agents, std::vector<int>(devices_.devices.size(), -1));
    for (std::size_t i = 0; i < segment_.steps.size(); ++i) {
      if (!aliases_.dropped[i]) visit(static_cast<int>(i));
    }
  }

 private:
  struct Past {
    int step;
    Touch touch;
  };

  /// 0 is the host, 1 + d the stream of device d.
  static int agent(const Step& step) { return step.on_stream ? step.device + 1 : 0; }

  std::vector<Touch> touches(const Step& step) const {
    std::vector<Touch> all;
    const auto add = [&](int index, bool writes) {
      if (index < 0) return;
      const Slot& slot = segment_.slot(index);
      // What a kernel reads or leaves in host memory (BP_INPUT_HOST_DATA, BP_OUTPUT_HOST), it touches in `compute`.
      const bool by_host =
          step.kind == StepKind::Compute && step.on_stream && slot.space == kHostSpace;
      const auto arenas = static_cast<int>(segment_.arena_bytes.size());
      // Views need nothing: one stream alone works on each.
      if (slot.place == Place::Arena)
        all.push_back({slot.arena, slot.offset, slot.offset + extent(slot), writes, by_host});
      if (slot.place == Place::Fetch)
        all.push_back(
            {arenas + slot.number, 0, std::numeric_limits<std::uint64_t>::max(), writes, by_host});
      if (slot.place == Place::Dynamic) all.push_back({-1 - index, 0, 1, writes, by_host});
    };
    for (const int input : step.inputs) add(input, false);
    for (const int output : step.outputs) add(output, true);
    if (step.workspace_arena >= 0)
      all.push_back({step.workspace_arena, step.workspace_offset,
                     step.workspace_offset + step.workspace_bytes, true, false});
    return all;
  }

  void visit(int index) {
    Step& step = segment_.step(index);
    const int me = agent(step);
    std::vector<int> needed(devices_.devices.size(), -1);  // by stream: the last step to wait for
    const auto need = [&](int earlier, bool by_host) {
      const Step& other = segment_.step(earlier);
      if (!other.on_stream || (agent(other) == me && !by_host)) return;
      int& last = needed[static_cast<std::size_t>(other.device)];
      last = std::max(last, earlier);
    };
    for (const Touch& touch : touches(step)) {
      std::vector<Past>& past = past_[touch.memory];
      for (const Past& earlier : past) {
        if (earlier.touch.end <= touch.begin || touch.end <= earlier.touch.begin ||
            (!earlier.touch.writes && !touch.writes))
          continue;
        need(earlier.step, touch.by_host);
      }
    }
    if (const auto found = after_.find(index); found != after_.end()) {
      for (const int earlier : found->second) need(earlier, false);
    }
    for (const Touch& touch : touches(step)) remember(index, touch);
    for (std::size_t stream = 0; stream < needed.size(); ++stream) {
      int& waited = waited_[static_cast<std::size_t>(me)][stream];
      if (needed[stream] <= waited) continue;
      waited = needed[stream];
      step.waits.push_back({static_cast<int>(stream), needed[stream]});
      segment_.step(needed[stream]).signals = true;
    }
  }

  /// Whoever waits for a write has waited for what touched the same bytes before it.
  void remember(int index, const Touch& touch) {
    std::vector<Past>& past = past_[touch.memory];
    if (touch.writes) {
      std::erase_if(past, [&](const Past& earlier) {
        return earlier.step != index && touch.begin <= earlier.touch.begin &&
               earlier.touch.end <= touch.end;
      });
    }
    past.push_back({index, touch});
  }

  Segment& segment_;
  const Aliases& aliases_;
  const DeviceSet& devices_;
  std::map<int, std::vector<int>> after_;  ///< by step: those that control edges put before it
  std::map<int, std::vector<Past>> past_;
  std::vector<std::vector<int>>
      waited_;  ///< by agent and stream: the latest step it is known to have waited for
};

/// Control edges between steps, (earlier, later). A node without a step, since its outputs are views or known, hands on
/// what it waits for.
std::vector<std::pair<int, int>> control_edges(const SegmentDraft& draft, const Aliases& aliases,
                                               const Graph& graph) {
  std::vector<std::pair<int, int>> edges;
  const std::vector<Step>& steps = draft.segment.steps;
  const bool any = std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
    return step.kind == StepKind::Compute && !graph.node(step.node).after.empty();
  });
  if (!any) return edges;
  std::map<NodeId, int> step_of;
  for (std::size_t i = 0; i < draft.segment.steps.size(); ++i) {
    const Step& step = draft.segment.steps[i];
    if (step.kind != StepKind::Compute || aliases.dropped[i]) continue;
    std::set<NodeId> seen;
    std::vector<NodeId> open = graph.node(step.node).after;
    while (!open.empty()) {
      const NodeId earlier = open.back();
      open.pop_back();
      if (!seen.insert(earlier).second) continue;
      if (const auto found = step_of.find(earlier); found != step_of.end()) {
        edges.emplace_back(found->second, static_cast<int>(i));
      } else {
        const std::vector<NodeId>& before = graph.node(earlier).after;
        open.insert(open.end(), before.begin(), before.end());
      }
    }
    step_of[step.node] = static_cast<int>(i);
  }
  return edges;
}

/// Finds the steps after which slots of strings, sequences, optionals and maps can be emptied. Where a device may still be
/// reading, or steps run beside each other, they stay until the run has ended.
void find_spent_slots(Segment& segment) {
  constexpr int kNobody = -1, kKept = -2;
  std::vector<int> last(segment.slots.size(), kNobody);
  std::vector<bool> beside(segment.steps.size());
  for (const ParallelGroup& group : segment.groups) {
    for (const int step : group.steps) beside[static_cast<std::size_t>(step)] = true;
  }
  const auto keep = [&](int slot) { last[static_cast<std::size_t>(slot)] = kKept; };
  for (std::size_t i = 0; i < segment.steps.size(); ++i) {
    const Step& step = segment.steps[i];
    for (const std::vector<int>* slots : {&step.inputs, &step.outputs}) {
      for (const int slot : *slots) {
        if (slot < 0 || last[static_cast<std::size_t>(slot)] == kKept) continue;
        last[static_cast<std::size_t>(slot)] =
            step.on_stream || beside[i] ? kKept : static_cast<int>(i);
      }
    }
  }
  for (const LiveValue& live : segment.outgoing) keep(live.slot);
  for (const auto& [fetch, slot] : segment.dynamic_fetches) keep(slot);
  for (std::size_t i = 0; i < segment.slots.size(); ++i) {
    const Slot& slot = segment.slots[i];
    if (slot.place != Place::Dynamic || !is_whole(slot) || last[i] < 0) continue;
    segment.step(last[i]).dead.push_back(static_cast<int>(i));
  }
}

/// Takes steps that need not run out of the list; waits keep pointing at the right ones.
void drop_steps(Segment& segment, const Aliases& aliases, const std::vector<StepWishes>& wishes) {
  std::vector<int> moved(segment.steps.size(), -1);
  std::vector<int> place;  // of the first step kept from there on
  std::vector<Step> kept;
  for (std::size_t i = 0; i < segment.steps.size(); ++i) {
    place.push_back(static_cast<int>(kept.size()));
    if (aliases.dropped[i]) {
      segment.dropped.push_back(
          {segment.steps[i].node, wishes[i].kernel, std::move(segment.steps[i].kernel)});
      continue;
    }
    moved[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(segment.steps[i]));
  }
  for (Step& step : kept) {
    for (Wait& wait : step.waits) wait.step = moved[static_cast<std::size_t>(wait.step)];
  }
  for (ParallelGroup& group : segment.groups) {
    for (int& step : group.steps) step = moved[static_cast<std::size_t>(step)];
  }
  place.push_back(static_cast<int>(kept.size()));
  for (Slot& slot : segment.slots) {
    if (slot.first < 0) continue;
    slot.first = place[static_cast<std::size_t>(slot.first)];
    slot.last = place[static_cast<std::size_t>(slot.last)];
  }
  segment.steps = std::move(kept);
}

}  // namespace

std::uint64_t extent(const ValueState& state,
                     const std::optional<std::vector<std::int64_t>>& strides) {
  if (!strides || state.bytes == 0) return state.bytes;
  return strided_extent(state.type, state.dims, *strides);
}

std::unique_ptr<Segment> plan_segment(Program& program, std::size_t begin, ValueStates values,
                                      const std::vector<LiveValue>& available,
                                      const std::vector<bool>& fetched,
                                      const std::vector<int>& fetch_spaces,
                                      const HostViewWishes& views, const ValueStates* before) {
  const DeviceSet& devices = *program.context().devices;
  ShapeWalk walk = walk_shapes(program, begin, std::move(values));
  SegmentDraft draft =
      StepBuilder(program, walk, available, {fetched, fetch_spaces, views}).build();
  Aliases aliases = find_aliases(draft);
  const std::vector<std::pair<int, int>> control = control_edges(draft, aliases, program.graph());
  aliases.orders.insert(aliases.orders.end(), control.begin(), control.end());
  std::optional<StepOrder> order;
  if (program.context().parallel && may_run_in_parallel(draft)) order.emplace(draft, aliases);
  if (may_be_resized(draft.segment)) draft.before = before;
  lay_out(draft, aliases, devices, order ? &*order : nullptr, program.context().memory_pattern);
  if (order) draft.segment.groups = order->groups();
  Hazards(draft.segment, aliases, devices, control).find();
  if (begin == 0 && draft.segment.is_last)
    draft.segment.over_feeds = std::move(aliases.over_incoming);
  drop_steps(draft.segment, aliases, draft.wishes);

  auto segment = std::make_unique<Segment>(std::move(draft.segment));
  segment->begin = begin;
  segment->end = walk.end;
  segment->used_streams.assign(devices.devices.size(), false);
  for (const Step& step : segment->steps) {
    if (step.on_stream) segment->used_streams[static_cast<std::size_t>(step.device)] = true;
  }
  segment->values = std::move(walk.values);
  segment->wants_shape = std::move(walk.wants_shape);
  segment->wants_value = std::move(walk.wants_value);
  segment->evaluated = std::move(walk.evaluated);
  find_spent_slots(*segment);
  find_piecewise_copies(*segment, devices);
  if (program.context().capture) segment->capture = find_capture_ranges(*segment, program);
  return segment;
}

std::uint64_t most_buffer_bytes(const DeviceSet& devices, int arena) {
  if (arena == kHostSpace) return std::numeric_limits<std::uint64_t>::max();
  const auto spaces = static_cast<int>(devices.space_count());
  return arena < spaces
             ? devices.at(DeviceSet::device_of_space(arena)).max_buffer_bytes(BP_MEMORY_DEVICE)
             : devices.at(arena - spaces).max_buffer_bytes(BP_MEMORY_PINNED);
}

}  // namespace backplane::core
