#include "core/runtime/run_arenas.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace backplane::core {
namespace {

std::vector<std::uint64_t> buffer_sizes(const Segment& segment, std::size_t arena) {
  const auto split = segment.split_arenas.find(static_cast<int>(arena));
  if (split != segment.split_arenas.end()) return split->second.bytes;
  return {segment.arena_bytes[arena]};
}

bool has_room(const Arena& there, const Segment& segment, std::size_t arena) {
  const auto split = segment.split_arenas.find(static_cast<int>(arena));
  if (split == segment.split_arenas.end())
    return segment.arena_bytes[arena] <= there.buffer(0).bytes();
  const std::vector<std::uint64_t>& bytes = split->second.bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > there.buffer(i).bytes()) return false;
  }
  return true;
}

}  // namespace

RunArenas::RunArenas(const Program& program, ArenaPool* pool)
    : program_(program),
      devices_(*program.context().devices),
      own_pool_(pool == nullptr ? std::make_unique<ArenaPool>() : nullptr),
      pool_(pool == nullptr ? *own_pool_ : *pool),
      bytes_(arena_count(devices_)) {}

void RunArenas::give() noexcept {
  if (set_ == nullptr) return;
  last_ = set_;
  pool_.give(std::exchange(set_, nullptr));
}

bool RunArenas::holds(const bp_buffer* buffer) const {
  const auto in_arena = [&](const Arena& arena) {
    return std::any_of(arena.buffers.begin(), arena.buffers.end(),
                       [&](const DeviceBuffer& one) { return one.raw() == buffer; });
  };
  return std::any_of(set_->depths.begin(), set_->depths.end(), [&](const auto& depth) {
    return std::any_of(depth.arenas.begin(), depth.arenas.end(), in_arena);
  });
}

void RunArenas::point_into_buffer(int arena, bp_tensor& tensor) const {
  const auto* host = static_cast<const std::byte*>(tensor.host_ptr);
  for (const ArenaSet::Depth& depth : set_->depths) {
    for (const DeviceBuffer& buffer : depth.arenas[static_cast<std::size_t>(arena)].buffers) {
      if (host < buffer.host_ptr() || host >= buffer.host_ptr() + buffer.bytes()) continue;
      tensor.buffer = buffer.raw();
      tensor.offset = static_cast<std::uint64_t>(host - buffer.host_ptr());
      tensor.memory = BP_MEMORY_PINNED;
    }
  }
}

const ArenaSet::Depth& RunArenas::make(const Segment& segment, std::size_t depth) {
  set_->reserve(depth + 1, arena_count(devices_));
  // Counts what is there when all are made, and when one cannot be.
  struct Account {
    ArenaPool& pool;
    ArenaSet& set;
    bool moved = false;
    ~Account() {
      if (moved) pool.account(set);
    }
  } account{pool_, *set_};
  if (segment.begin == 0) {
    for (std::vector<std::uint64_t>& of_depth : most_bytes_)
      std::fill(of_depth.begin(), of_depth.end(), 0);
    std::fill(bytes_.begin(), bytes_.end(), 0);
  }
  if (most_bytes_.size() <= depth)
    most_bytes_.resize(depth + 1, std::vector<std::uint64_t>(bytes_.size()));
  for (std::size_t arena = 0; arena < segment.arena_bytes.size(); ++arena) {
    const std::uint64_t bytes = segment.arena_bytes[arena];
    std::uint64_t& most = most_bytes_[depth][arena];
    bytes_[arena] += std::max(bytes, most) - most;
    most = std::max(bytes, most);
    if (has_room(set_->depths[depth].arenas[arena], segment, arena)) continue;
    account.moved = true;
    grow(segment, depth, arena);
  }
  return set_->depths[depth];
}

void RunArenas::grow(const Segment& segment, std::size_t depth, std::size_t arena) {
  set_->touch(depth);
  Arena& grown = set_->depths[depth].arenas[arena];
  const std::vector<std::uint64_t> least = buffer_sizes(segment, arena);
  // Sizes that grow from run to run shall not move the arena each time.
  std::vector<std::uint64_t> roomy = least;
  roomy.resize(std::max(least.size(), grown.buffers.size()));
  const std::uint64_t most = most_buffer_bytes(devices_, static_cast<int>(arena));
  for (std::size_t i = 0; i < roomy.size(); ++i) {
    const std::uint64_t before = grown.buffer(i).bytes();
    if (roomy[i] > before) roomy[i] = std::max(roomy[i], std::min(before + before / 4, most));
    roomy[i] = std::max(roomy[i], before);
  }
  grown.buffers.clear();
  if (roomy == least || !allocate(segment, depth, arena, roomy, false))
    allocate(segment, depth, arena, least, true);
}

/// False where there is no memory and fewer bytes would do.
bool RunArenas::allocate(const Segment& segment, std::size_t depth, std::size_t arena,
                         const std::vector<std::uint64_t>& sizes, bool is_least) {
  const bool pinned = arena >= devices_.space_count();
  const int device = arena == kHostSpace ? devices_.on_host()
                     : pinned            ? static_cast<int>(arena - devices_.space_count())
                                         : static_cast<int>(arena) - 1;
  const bp_memory_kind kind = pinned ? BP_MEMORY_PINNED : BP_MEMORY_DEVICE;
  Arena& made = set_->depths[depth].arenas[arena];
  bool is_charged = false;  // what fails then knows nothing of the segment
  try {
    charge(segment, arena, std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}), made);
    is_charged = true;
    // Between devices that cannot reach each other values go over the host, be there a device on it or not.
    for (const std::uint64_t bytes : sizes) {
      made.buffers.push_back(device < 0 ? DeviceBuffer(nullptr, BP_MEMORY_HOST, bytes, 64)
                                        : DeviceBuffer(devices_.entry(device).device, kind, bytes,
                                                       devices_.at(device).alignment(kind)));
    }
    return true;
  } catch (const Error& error) {
    made.buffers.clear();
    made.charge = MemoryCharge();
    if (error.code() != Code::OutOfMemory) throw;
    if (!is_least) return false;
    if (!is_charged) throw;
    throw error.within(describe(segment, arena));
  }
}

/// Takes an arena's bytes from the session's budget; throws OutOfMemory.
void RunArenas::charge(const Segment& segment, std::size_t arena, std::uint64_t bytes,
                       Arena& charged) const {
  const auto& memory = program_.context().memory;
  if (memory == nullptr) return;
  charged.charge = MemoryCharge();
  const int space = arena < devices_.space_count() ? static_cast<int>(arena) : kHostSpace;
  charged.charge = MemoryCharge(memory, MemoryBudget::place_of(devices_, space), bytes,
                                describe(segment, arena));
}

/// "the memory of a run (its largest value is ...)": for errors.
std::string RunArenas::describe(const Segment& segment, std::size_t arena) const {
  const Slot* largest = nullptr;
  for (const Slot& slot : segment.slots) {
    if (slot.place != Place::Arena || slot.arena != static_cast<int>(arena)) continue;
    if (largest == nullptr || slot.state->bytes > largest->state->bytes) largest = &slot;
  }
  std::string what = "the memory of a run";
  if (largest != nullptr && largest->value != kNone) {
    const Value& value = program_.graph().value(largest->value);
    what += text(" (its largest value is '", value.name, "' of ", largest->state->bytes, " bytes");
    if (value.producer != kNone)
      what += text(", made by node '", program_.graph().node(value.producer).name, "'");
    what += ")";
  }
  return what;
}

}  // namespace backplane::core
