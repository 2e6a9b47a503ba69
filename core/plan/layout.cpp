#include "core/plan/layout.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/plan/memory_plan.hpp"

namespace backplane::core {
namespace {

/// By storage: the steps that touch it, whatever slot they call it by.
std::vector<std::vector<int>> find_touching(const SegmentDraft& draft, const Aliases& aliases) {
  std::vector<std::vector<int>> touching(aliases.storages.size());
  for (std::size_t i = 0; i < draft.segment.steps.size(); ++i) {
    if (aliases.dropped[i]) continue;
    const Step& step = draft.segment.steps[i];
    const auto add = [&](int slot) {
      const int storage = slot < 0 ? -1 : aliases.storage_of[static_cast<std::size_t>(slot)];
      if (storage >= 0) touching[static_cast<std::size_t>(storage)].push_back(static_cast<int>(i));
    };
    std::for_each(step.inputs.begin(), step.inputs.end(), add);
    std::for_each(step.outputs.begin(), step.outputs.end(), add);
  }
  return touching;
}

/// Bytes that a value gets besides its own, since it grew a little from the last plan to this one: so much that 128 plans
/// that grow by the same can have it, but half as much as it is at the most.
std::uint64_t room_to_grow(const ValueState& before, const ValueState& now) {
  if (before.kind != ValueState::Kind::Tensor || before.bytes >= now.bytes) return 0;
  const std::uint64_t growth = now.bytes - before.bytes;
  return growth > now.bytes / 16 ? 0 : std::min(128 * growth, now.bytes / 2);
}

class Layout {
 public:
  Layout(SegmentDraft& draft, Aliases& aliases, const DeviceSet& devices, const StepOrder* order,
         bool share)
      : draft_(draft), aliases_(aliases), devices_(devices), order_(order), share_(share) {
    if (order_ != nullptr) touching_ = find_touching(draft_, aliases_);
  }

  void run() {
    Segment& segment = draft_.segment;
    segment.arena_bytes.assign(arena_count(devices_), 0);
    for (int arena = 0; arena < static_cast<int>(segment.arena_bytes.size()); ++arena) {
      most_ = most_buffer_bytes(devices_, arena);
      gather(arena);
      plan(arena);
      for (std::size_t i = 0; i < storages_.size(); ++i) {
        aliases_.each_slot(*storages_[i], [&](int member) {
          Slot& slot = segment.slot(member);
          slot.room = intervals_[i].bytes - slot.offset;
          slot.offset += intervals_[i].offset;
          slot.first = intervals_[i].first;
          slot.last = intervals_[i].last;
        });
      }
      for (std::size_t i = 0; i < steps_.size(); ++i) {
        const Interval& interval = intervals_[storages_.size() + i];
        steps_[i]->workspace_offset = interval.offset;
        steps_[i]->workspace_room = interval.bytes;
      }
    }
  }

 private:
  void plan(int arena) {
    std::function<bool(std::size_t, std::size_t)> apart;
    if (order_ != nullptr) apart = [this](std::size_t a, std::size_t b) { return are_apart(a, b); };
    MemoryBlocks blocks = plan_memory(intervals_, apart, most_);
    draft_.segment.arena_bytes[static_cast<std::size_t>(arena)] =
        std::accumulate(blocks.bytes.begin(), blocks.bytes.end(), std::uint64_t{0});
    if (blocks.bytes.size() > 1) draft_.segment.split_arenas[arena] = std::move(blocks);
  }

  /// Room is not worth a buffer that the device does not have.
  std::uint64_t with_room(std::uint64_t bytes, std::uint64_t room) const {
    return std::min(bytes + room, std::max(bytes, most_));
  }

  void gather(int arena) {
    Segment& segment = draft_.segment;
    const int last_step = static_cast<int>(segment.steps.size());
    intervals_.clear();
    storages_.clear();
    steps_.clear();
    users_.clear();
    for (std::size_t i = 0; i < aliases_.storages.size(); ++i) {
      Storage& storage = aliases_.storages[i];
      if (storage.first_slot < 0) continue;
      const Slot& root = segment.slot(storage.root);
      if (root.place != Place::Arena || root.arena != arena) continue;
      intervals_.push_back({share_ && !is_of_feed(storage) ? std::max(storage.first, 0) : 0,
                            share_ ? std::min(storage.last, last_step) : last_step,
                            with_room(storage.bytes, room_of(storage)), storage.alignment, 0});
      storages_.push_back(&storage);
      if (order_ != nullptr) users_.push_back(touching_[i]);
    }
    for (std::size_t i = 0; i < segment.steps.size(); ++i) {
      Step& step = segment.steps[i];
      if (step.workspace_arena != arena || aliases_.dropped[i]) continue;
      intervals_.push_back({static_cast<int>(i), static_cast<int>(i),
                            with_room(step.workspace_bytes, room_of(step)),
                            draft_.wishes[i].said->workspace_alignment, 0});
      steps_.push_back(&step);
      if (order_ != nullptr) users_.push_back({static_cast<int>(i)});
    }
    if (arena > kHostSpace && arena < static_cast<int>(devices_.space_count())) {
      const std::uint64_t least =
          devices_.at(DeviceSet::device_of_space(arena)).alignment(BP_MEMORY_DEVICE);
      for (Interval& interval : intervals_)
        interval.alignment = std::max(interval.alignment, least);
    }
  }

  /// Whether a feed goes through it on its way to a device. The host is ahead of the device, and would wait before it writes
  /// where another feed has just been.
  bool is_of_feed(const Storage& storage) const {
    const Segment& segment = draft_.segment;
    if (storage.first < 0 || storage.first >= static_cast<int>(segment.steps.size())) return false;
    const Step& writer = segment.step(storage.first);
    return writer.kind == StepKind::HostCopy &&
           segment.slot(storage.root).arena >= static_cast<int>(devices_.space_count()) &&
           segment.slot(writer.inputs[0]).place == Place::Incoming;
  }

  std::uint64_t room_of(int slot) const {
    if (slot < 0 || draft_.before == nullptr) return 0;
    const Slot& grown = draft_.segment.slot(slot);
    if (grown.value == kNone) return 0;
    const SharedState& before = (*draft_.before)[grown.value];
    return before.is(grown.state) ? 0 : room_to_grow(*before, *grown.state);
  }
  std::uint64_t room_of(const Storage& storage) const {
    std::uint64_t room = 0;
    aliases_.each_slot(storage, [&](int slot) { room = std::max(room, room_of(slot)); });
    return room;
  }
  /// A workspace grows with what its step reads and writes.
  std::uint64_t room_of(const Step& step) const {
    const auto grows = [this](int slot) { return room_of(slot) > 0; };
    const bool any = std::any_of(step.inputs.begin(), step.inputs.end(), grows) ||
                     std::any_of(step.outputs.begin(), step.outputs.end(), grows);
    return any ? step.workspace_bytes / 2 : 0;
  }

  /// Whether everybody who touches the one is done before anybody touches the other.
  bool are_apart(std::size_t a, std::size_t b) const {
    const bool a_first = intervals_[a].last < intervals_[b].first;
    const std::vector<int>& earlier = users_[a_first ? a : b];
    const std::vector<int>& later = users_[a_first ? b : a];
    return std::all_of(earlier.begin(), earlier.end(), [&](int e) {
      return std::all_of(later.begin(), later.end(), [&](int l) { return order_->precedes(e, l); });
    });
  }

  SegmentDraft& draft_;
  Aliases& aliases_;
  const DeviceSet& devices_;
  const StepOrder* order_;
  bool share_;
  std::uint64_t most_ = 0;                  ///< bytes of a buffer of the arena
  std::vector<std::vector<int>> touching_;  ///< by storage
  std::vector<Interval> intervals_;         ///< of one arena: storages, then workspaces
  std::vector<Storage*> storages_;
  std::vector<Step*> steps_;
  std::vector<std::vector<int>> users_;  ///< by interval: the steps that touch it
};

}  // namespace

void lay_out(SegmentDraft& draft, Aliases& aliases, const DeviceSet& devices,
             const StepOrder* order, bool share) {
  Layout(draft, aliases, devices, order, share).run();
}

}  // namespace backplane::core
