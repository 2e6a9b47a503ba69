// Pinned memory of the process that is kept for later requests.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

/// Every weight that is loaded, every download and every stream wants pinned memory for a moment. To pin pages takes
/// longer than to copy them, and to give them back waits for everything that the device does (cuMemFreeHost), so what is
/// given back is kept, up to kMostKept bytes.
/// Threads: any.
class PinnedStore {
 public:
  /// What is kept at most; a block that is larger than that goes back at once.
  static constexpr std::uint64_t kMostKept = std::uint64_t{256} << 20;

  struct Block {
    void* memory = nullptr;
    std::uint64_t bytes = 0;  ///< as many as were asked for, or more
  };

  explicit PinnedStore(Context& context) : context_(context) {}
  /// Words that work on some stream may still use are given up only here, where that waits for the device.
  ~PinnedStore();
  PinnedStore(const PinnedStore&) = delete;
  PinnedStore& operator=(const PinnedStore&) = delete;

  /// Its contents are those of whoever had it before. Errors: BP_OUT_OF_MEMORY, when nothing is kept any more.
  Block allocate(std::uint64_t bytes);
  /// No stream uses it any more.
  void release(const Block& block) noexcept;

  /// A word that is 0, in a cache line of its own: the host reads one while devices write others.
  std::uint64_t* take_word();
  void give_word(std::uint64_t* word) noexcept;

 private:
  struct Kept {
    void* memory;
    std::uint64_t number;  ///< in the order in which blocks came back
  };
  Block find(std::uint64_t bytes);
  /// What has to go so that `bytes` more may be kept: what came back longest ago.
  std::vector<void*> make_room(std::uint64_t bytes);
  void* allocate_anew(std::uint64_t bytes);
  void add_slab(void* slab);
  void give_back(const std::vector<void*>& blocks) noexcept;

  Context& context_;
  std::mutex mutex_;
  std::multimap<std::uint64_t, Kept> kept_;  // by size
  std::uint64_t kept_bytes_ = 0, next_number_ = 0;
  std::vector<void*> slabs_;  // of words
  std::vector<std::uint64_t*> free_words_;
};

/// A word of pinned memory, which the device reads and writes at the same address.
class PinnedWord {
 public:
  explicit PinnedWord(PinnedStore& store) : store_(store), word_(store.take_word()) {}
  ~PinnedWord() { store_.give_word(word_); }
  PinnedWord(const PinnedWord&) = delete;
  PinnedWord& operator=(const PinnedWord&) = delete;
  std::uint64_t* get() const { return word_; }

 private:
  PinnedStore& store_;
  std::uint64_t* word_;
};

}  // namespace backplane::cuda
