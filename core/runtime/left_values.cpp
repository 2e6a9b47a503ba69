#include "core/runtime/left_values.hpp"

#include <algorithm>

namespace backplane::core {

const RuntimeValue* LeftValues::find(ValueId value, int space) const {
  const auto found = values_.find({value, space});
  return found != values_.end() ? found->second.value : nullptr;
}

std::vector<LiveValue> LeftValues::all() const {
  std::vector<LiveValue> live;
  for (const auto& [key, value] : values_) live.push_back({key.first, key.second, -1});
  return live;
}

void LeftValues::leave(SegmentContext& context) {
  const Segment& segment = context.segment();
  for (const LiveValue& live : segment.outgoing) {
    const Slot& slot = segment.slot(live.slot);
    Left left{&context.value(live.slot), nullptr, -1};
    if (slot.place == Place::Dynamic) {
      left.owner = &context;
      left.slot = live.slot;
    } else if (slot.place == Place::Incoming) {
      const LiveValue& from = segment.incoming[static_cast<std::size_t>(slot.number)];
      if (from.value == live.value && from.space == live.space) continue;  // it is where it was
      const auto earlier = values_.find({from.value, from.space});
      if (earlier != values_.end()) {
        left.owner = earlier->second.owner;
        left.slot = earlier->second.slot;
      }
    }
    values_[{live.value, live.space}] = left;
  }
  for (const LiveValue& live : segment.dead) forget(live);
}

void LeftValues::forget(const LiveValue& live) {
  const auto found = values_.find({live.value, live.space});
  if (found == values_.end()) return;
  const Left left = found->second;
  values_.erase(found);
  const auto is_in_it = [&](const auto& entry) {  // a view of it, say
    return entry.second.owner == left.owner && entry.second.slot == left.slot;
  };
  if (left.owner != nullptr && std::none_of(values_.begin(), values_.end(), is_in_it))
    left.owner->give_back(left.slot);
}

}  // namespace backplane::core
