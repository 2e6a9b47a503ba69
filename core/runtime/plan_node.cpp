#include "core/runtime/plan_node.hpp"

#include <set>

namespace backplane::core {

std::shared_ptr<PlanNode> find_next(PlanNode& from, const PlanKey& key) {
  for (auto place = from.next.begin(); place != from.next.end(); ++place) {
    if (place->key != key) continue;
    from.next.splice(from.next.begin(), from.next, place);
    return from.next.front().node;
  }
  return nullptr;
}

void choose_arenas(PlanNode& node, const PlanNode& from) {
  std::set<std::size_t> taken;
  for (const auto& [live, depth] : from.in_arenas) taken.insert(depth);
  while (taken.contains(node.depth)) ++node.depth;
  node.in_arenas = from.in_arenas;
  for (const LiveValue& live : node.segment->outgoing) {
    const Slot& slot = node.segment->slot(live.slot);
    if (slot.place == Place::Arena) node.in_arenas[{live.value, live.space}] = node.depth;
    if (slot.place != Place::Incoming) continue;
    const LiveValue& source = node.segment->incoming[static_cast<std::size_t>(slot.number)];
    const auto found = from.in_arenas.find({source.value, source.space});
    if (found != from.in_arenas.end()) node.in_arenas[{live.value, live.space}] = found->second;
  }
  for (const LiveValue& live : node.segment->dead) node.in_arenas.erase({live.value, live.space});
}

}  // namespace backplane::core
