#include "plugins/opencl/hazards.hpp"

#include <algorithm>

namespace backplane::opencl {
namespace {

bool overlap(const Access& a, const Access& b) {
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

bool covers(const Access& whole, const Access& part) {
  return whole.memory == part.memory && whole.begin <= part.begin && part.end <= whole.end;
}

}  // namespace

void Hazards::find(const Access& access, std::vector<cl_event>& events) const {
  for (const Entry& entry : entries_) {
    if (!(access.writes || entry.access.writes) || !overlap(access, entry.access)) continue;
    if (std::find(events.begin(), events.end(), entry.event.get()) == events.end())
      events.push_back(entry.event.get());
  }
}

void Hazards::add(const Access& access, cl_event event) {
  if (access.begin >= access.end) return;
  if (access.writes) {
    // Another access of the same command stays: it was not waited for.
    const auto is_past = [&](const Entry& entry) {
      return entry.event.get() != event && covers(access, entry.access);
    };
    entries_.erase(std::remove_if(entries_.begin(), entries_.end(), is_past), entries_.end());
  }
  clRetainEvent(event);
  entries_.push_back({access, Event(event)});
}

}  // namespace backplane::opencl
