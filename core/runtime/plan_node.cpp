#include "core/runtime/plan_node.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>

namespace backplane::core {
namespace {

constexpr std::size_t kRemembered = 1024;  // shapes whose plans went

std::size_t hash_of(const PlanKey& key) {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(key.data()), key.size() * sizeof(PlanKey::value_type)});
}

}  // namespace

std::shared_ptr<PlanNode> PlanList::find(const PlanKey& key) {
  ++look_ups_;
  const auto [first, last] = places_.equal_range(hash_of(key));
  for (auto found = first; found != last; ++found) {
    const Place place = found->second;
    if (place->key != key) continue;
    if (place == asked_for_) ++asked_for_;
    entries_.splice(asked_for_, entries_, place);
    asked_for_ = place;
    place->used = look_ups_;
    return place->node;
  }
  return nullptr;
}

void PlanList::push_front(Entry entry) {
  entry.used = look_ups_;
  entries_.push_front(std::move(entry));
  try {
    places_.emplace(hash_of(entries_.front().key), entries_.begin());
  } catch (...) {
    entries_.pop_front();
    throw;
  }
}

PlanList::Entry PlanList::take(Place place) {
  const std::size_t hash = hash_of(place->key);
  gone_.resize(kRemembered);
  gone_[hash % kRemembered] = {hash, place->used};
  const auto [first, last] = places_.equal_range(hash);
  places_.erase(std::find_if(first, last, [&](const auto& at) { return at.second == place; }));
  if (place == asked_for_) ++asked_for_;
  Entry entry = std::move(*place);
  entries_.erase(place);
  return entry;
}

PlanList::Place PlanList::oldest() {
  const Place last = std::prev(entries_.end());
  if (asked_for_ == entries_.begin()) return last;
  const Place unasked = std::prev(asked_for_);
  return unasked->used < last->used ? unasked : last;
}

std::uint64_t PlanList::last_use_of_gone(const PlanKey& key) const {
  if (gone_.empty()) return 0;
  const std::size_t hash = hash_of(key);
  const Gone& gone = gone_[hash % kRemembered];
  return gone.hash == hash ? gone.used : 0;
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
