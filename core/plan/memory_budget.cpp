#include "core/plan/memory_budget.hpp"

#include <algorithm>
#include <limits>

#include "core/base/nearest_name.hpp"

namespace backplane::core {
namespace {

/// The smallest of the limits that speak of a space; 0: none does.
std::uint64_t smaller_limit(std::uint64_t a, std::uint64_t b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

}  // namespace

MemoryBudget::MemoryBudget(std::map<std::string, std::uint64_t> limits)
    : limits_(std::move(limits)) {
  const auto all = limits_.find("");
  if (all != limits_.end()) limit_ = all->second;
}

std::string MemoryBudget::place_of(const DeviceSet& devices, int space) {
  return space == kHostSpace ? "host" : devices.at(DeviceSet::device_of_space(space)).label();
}

void MemoryBudget::add(const DeviceSet& devices) {
  const std::lock_guard lock(mutex_);
  const auto limit_of = [&](const std::string& name) -> std::uint64_t {
    names_.insert(name);
    const auto found = limits_.find(name);
    return found != limits_.end() ? found->second : 0;
  };
  spaces_["host"].limit = smaller_limit(spaces_["host"].limit, limit_of("host"));
  for (int i = 0; i < static_cast<int>(devices.devices.size()); ++i) {
    Space& space = spaces_[place_of(devices, devices.space_of(i))];
    const Device& device = devices.at(i);
    space.limit = smaller_limit(space.limit, limit_of(device.label()));
    space.limit = smaller_limit(space.limit, limit_of(device.provider_name()));
  }
  for (const auto& [name, bytes] : limits_) {
    if (devices.is_left_out(name)) names_.insert(name);
  }
}

void MemoryBudget::check_names() const {
  for (const auto& [name, bytes] : limits_) {
    if (name.empty() || names_.contains(name)) continue;
    invalid("option 'memory_limit.", name, "': the session has no device '", name, "'",
            did_you_mean(name, {names_.begin(), names_.end()}));
  }
}

MemoryBudget::Space& MemoryBudget::space(const std::string& place) { return spaces_[place]; }

std::uint64_t MemoryBudget::total() const {
  std::uint64_t bytes = 0;
  for (const auto& [place, space] : spaces_) bytes += space.total();
  return bytes;
}

bool MemoryBudget::exceeds(const Space& space, std::uint64_t bytes) const {
  const auto is_over = [&](std::uint64_t limit, std::uint64_t taken) {
    return limit != 0 && (taken > limit || bytes > limit - taken);
  };
  return is_over(space.limit, space.total()) || is_over(limit_, total());
}

void MemoryBudget::forget_ended_weights() {
  for (auto& [place, space] : spaces_) {
    Space& one = space;
    std::erase_if(one.weights, [&one](const auto& entry) {
      const bool ended = entry.second.first.expired();
      if (ended) one.weight_bytes -= entry.second.second;
      return ended;
    });
  }
}

void MemoryBudget::check(const std::string& place, std::uint64_t bytes, const std::string& what) {
  Space& wanted = space(place);
  if (!exceeds(wanted, bytes)) return;
  forget_ended_weights();
  if (!exceeds(wanted, bytes)) return;
  const bool by_place =
      wanted.limit != 0 && (wanted.total() > wanted.limit || bytes > wanted.limit - wanted.total());
  std::uint64_t arenas = 0, weights = 0;
  for (const auto& [name, one] : spaces_) {
    if (by_place && name != place) continue;
    arenas += one.arenas;
    weights += one.weight_bytes;
  }
  throw Error(
      Code::OutOfMemory,
      text(what, " needs ", bytes, " bytes of memory on '", place, "', which is over the option ",
           by_place ? "memory_limit." + place : std::string("memory_limit"), " (",
           by_place ? wanted.limit : limit_, "): weights take ", weights, ", runs ", arenas,
           "; raise the limit"));
}

void MemoryBudget::take(const std::string& place, std::uint64_t bytes, const std::string& what) {
  const std::lock_guard lock(mutex_);
  check(place, bytes, what);
  space(place).arenas += bytes;
}

void MemoryBudget::give_back(const std::string& place, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = spaces_.find(place);
  if (found != spaces_.end()) found->second.arenas -= bytes;
}

void MemoryBudget::hold(const std::string& place, const WeightPtr& weight,
                        const std::string& what) {
  const std::uint64_t bytes = weight->buffer.bytes();
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  Space& held = space(place);
  const auto known = held.weights.find(weight.get());
  if (known != held.weights.end()) {
    if (!known->second.first.expired()) return;
    held.weight_bytes -= known->second.second;  // another one at the same address
    held.weights.erase(known);
  }
  check(place, bytes, what);
  // Those of plans that are gone, of which sessions whose shapes never come again have ever more.
  if (held.weights.size() >= held.forget_at) {
    forget_ended_weights();
    held.forget_at = std::max(kFewWeights, 2 * held.weights.size());
  }
  held.weights.emplace(weight.get(), std::pair(std::weak_ptr<const Weight>(weight), bytes));
  held.weight_bytes += bytes;
}

std::optional<MemoryBudget::Overrun> MemoryBudget::overrun(const std::string& place,
                                                           std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  forget_ended_weights();
  const Space& one = space(place);
  const std::uint64_t wanted = one.weight_bytes + bytes;
  if (one.limit == 0 || wanted <= one.limit) return std::nullopt;
  return Overrun{one.limit, wanted - one.limit};
}

std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> MemoryBudget::taken() {
  const std::lock_guard lock(mutex_);
  forget_ended_weights();
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> bytes;
  for (const auto& [place, space] : spaces_) bytes[place] = {space.arenas, space.weight_bytes};
  return bytes;
}

}  // namespace backplane::core
