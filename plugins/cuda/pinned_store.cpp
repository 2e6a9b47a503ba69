#include "plugins/cuda/pinned_store.hpp"

#include <algorithm>

namespace backplane::cuda {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kWordBytes = 64;

/// Four sizes an octave from a page on, so that weights of nearly one size share blocks and at most a fifth is wasted.
/// What is too large to be kept is taken by the page.
std::uint64_t block_bytes(std::uint64_t bytes) {
  std::uint64_t step = kPageBytes;
  if (bytes <= PinnedStore::kMostKept) {
    while (8 * step < bytes) step *= 2;
  }
  return (std::max<std::uint64_t>(bytes, 1) + step - 1) / step * step;
}

}  // namespace

PinnedStore::~PinnedStore() {
  for (const auto& [bytes, kept] : kept_) context_.free_pinned(kept.memory);
  give_back(slabs_);
}

PinnedStore::Block PinnedStore::allocate(std::uint64_t bytes) {
  const std::uint64_t wanted = block_bytes(bytes);
  const Block found = find(wanted);
  return found.memory != nullptr ? found : Block{allocate_anew(wanted), wanted};
}

PinnedStore::Block PinnedStore::find(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.lower_bound(bytes);
  // One that is much larger is another request's.
  if (found == kept_.end() || found->first > 2 * bytes) return {};
  const Block block{found->second.memory, found->first};
  kept_bytes_ -= block.bytes;
  kept_.erase(found);
  return block;
}

void* PinnedStore::allocate_anew(std::uint64_t bytes) {
  try {
    return context_.allocate_pinned(bytes);
  } catch (const sdk::Error& error) {
    if (error.code() != BP_OUT_OF_MEMORY) throw;
  }
  std::vector<void*> all;
  {
    const std::lock_guard lock(mutex_);
    all = make_room(kMostKept);
  }
  give_back(all);
  return context_.allocate_pinned(bytes);
}

void PinnedStore::release(const Block& block) noexcept {
  std::vector<void*> gone;
  try {
    if (block.bytes > kMostKept) {
      gone.push_back(block.memory);
    } else {
      const std::lock_guard lock(mutex_);
      gone = make_room(block.bytes);
      kept_.emplace(block.bytes, Kept{block.memory, next_number_++});
      kept_bytes_ += block.bytes;
    }
  } catch (const std::exception&) {
    context_.free_pinned(block.memory);  // the host has no memory to remember it
  }
  give_back(gone);
}

std::vector<void*> PinnedStore::make_room(std::uint64_t bytes) {
  std::vector<void*> gone;
  const auto earlier = [](const auto& a, const auto& b) {
    return a.second.number < b.second.number;
  };
  while (!kept_.empty() && kept_bytes_ + bytes > kMostKept) {
    const auto oldest = std::min_element(kept_.begin(), kept_.end(), earlier);
    gone.push_back(oldest->second.memory);
    kept_bytes_ -= oldest->first;
    kept_.erase(oldest);
  }
  return gone;
}

void PinnedStore::give_back(const std::vector<void*>& blocks) noexcept {
  for (void* const block : blocks) context_.free_pinned(block);
}

std::uint64_t* PinnedStore::take_word() {
  std::unique_lock lock(mutex_);
  if (free_words_.empty()) {
    lock.unlock();
    void* const slab = allocate_anew(kPageBytes);
    lock.lock();
    add_slab(slab);
  }
  std::uint64_t* const word = free_words_.back();
  free_words_.pop_back();
  *word = 0;
  return word;
}

void PinnedStore::add_slab(void* slab) {
  constexpr std::size_t kWords = kPageBytes / kWordBytes;
  try {
    // Room for all words that there are, so that giving one back allocates nothing.
    free_words_.reserve((slabs_.size() + 1) * kWords);
    slabs_.push_back(slab);
  } catch (...) {
    context_.free_pinned(slab);
    throw;
  }
  auto* const bytes = static_cast<unsigned char*>(slab);
  for (std::size_t i = kWords; i-- > 0;)
    free_words_.push_back(reinterpret_cast<std::uint64_t*>(bytes + i * kWordBytes));
}

void PinnedStore::give_word(std::uint64_t* word) noexcept {
  const std::lock_guard lock(mutex_);
  free_words_.push_back(word);
}

}  // namespace backplane::cuda
