#include "core/runtime/plan_node.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>

namespace backplane::core {
namespace {

std::size_t hash_of(const PlanKey& key) {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(key.data()), key.size() * sizeof(PlanKey::value_type)});
}

}  // namespace

std::shared_ptr<PlanNode> PlanList::find(const PlanKey& key) {
  const auto [first, last] = places_.equal_range(hash_of(key));
  for (auto place = first; place != last; ++place) {
    if (place->second->key != key) continue;
    entries_.splice(entries_.begin(), entries_, place->second);
    return entries_.front().node;
  }
  return nullptr;
}

void PlanList::push_front(Entry entry) {
  entries_.push_front(std::move(entry));
  try {
    places_.emplace(hash_of(entries_.front().key), entries_.begin());
  } catch (...) {
    entries_.pop_front();
    throw;
  }
}

PlanList::Entry PlanList::take_back() {
  const auto oldest = std::prev(entries_.end());
  const auto [first, last] = places_.equal_range(hash_of(oldest->key));
  places_.erase(std::find_if(first, last, [&](const auto& at) { return at.second == oldest; }));
  Entry entry = std::move(*oldest);
  entries_.pop_back();
  return entry;
}

std::size_t kept_plans(std::size_t given, const Segment& segment) {
  constexpr std::size_t kMost = 256, kSteps = 4096;
  if (given != 0) return given;
  return std::clamp(kSteps / std::max<std::size_t>(segment.steps.size(), 1), kLeastPlans, kMost);
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
