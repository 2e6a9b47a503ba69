#include "core/runtime/arena_pool.hpp"

namespace backplane::core {
namespace {

std::uint64_t next_generation() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::uint64_t size_of(const ArenaSet& set) {
  std::uint64_t bytes = 0;
  for (const ArenaSet::Depth& depth : set.depths) {
    for (const Arena& arena : depth.arenas) {
      for (const DeviceBuffer& buffer : arena.buffers) bytes += buffer.bytes();
    }
  }
  return bytes;
}

}  // namespace

void ArenaSet::reserve(std::size_t depth, std::size_t count) {
  while (depths.size() < depth) {
    depths.emplace_back();
    depths.back().arenas.resize(count);
    depths.back().generation = next_generation();
  }
}

void ArenaSet::touch(std::size_t depth) { depths[depth].generation = next_generation(); }

ArenaPool::~ArenaPool() {
  for (std::atomic<ArenaSet*>& place : idle_) delete place.load();
}

ArenaSet* ArenaPool::take(const ArenaSet* preferred) {
  if (preferred != nullptr) {
    for (std::atomic<ArenaSet*>& place : idle_) {
      ArenaSet* found = place.load(std::memory_order_relaxed);
      if (found == preferred && place.compare_exchange_strong(found, nullptr)) return found;
    }
  }
  for (std::atomic<ArenaSet*>& place : idle_) {
    if (place.load(std::memory_order_relaxed) == nullptr) continue;
    if (ArenaSet* found = place.exchange(nullptr)) return found;
  }
  auto* made = new ArenaSet;
  ++sets_;
  return made;
}

void ArenaPool::give(ArenaSet* set) noexcept {
  for (std::atomic<ArenaSet*>& place : idle_) {
    ArenaSet* empty = nullptr;
    if (place.compare_exchange_strong(empty, set)) return;
  }
  set->depths.clear();
  account(*set);
  --sets_;
  delete set;
}

void ArenaPool::shrink() noexcept {
  for (std::atomic<ArenaSet*>& place : idle_) {
    ArenaSet* set = place.exchange(nullptr);
    if (set == nullptr) continue;
    for (ArenaSet::Depth& depth : set->depths) {
      for (Arena& arena : depth.arenas) arena = Arena();
      depth.generation = next_generation();
    }
    account(*set);
    give(set);
  }
}

void ArenaPool::account(ArenaSet& set) noexcept {
  const std::uint64_t now = size_of(set);
  const std::uint64_t before = set.bytes.exchange(now);
  const std::uint64_t all = bytes_ += now - before;
  std::uint64_t peak = peak_bytes_.load();
  while (all > peak && !peak_bytes_.compare_exchange_weak(peak, all)) {
  }
}

}  // namespace backplane::core
