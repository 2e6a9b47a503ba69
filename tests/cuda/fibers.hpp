// The items of a kernel on the processor, each on a stack of its own, which take turns.
#pragma once

#include <array>
#include <csetjmp>
#include <cstdint>
#include <memory>
#include <string>
#include <ucontext.h>
#include <vector>

#include "tests/cuda/memory_check.hpp"
#include "tests/cuda/stand_in.hpp"

namespace backplane::cuda {

/// Addresses from the first to before the last.
struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool has(std::uintptr_t at) const { return at >= begin && at < end; }
};

using ItemFunction = void (*)(const unsigned* group, const unsigned* item, const unsigned* size,
                              void** arguments, void (*meet)(const void* place),
                              void (*note)(const void* at, unsigned bytes, int kind),
                              void* const* words);

struct HostKernel {
  ItemFunction item = nullptr;
  bool has_barriers = false;
  Range local, own;             ///< local memory, and what is none of the kernel's
  Extent* places[2] = {};       ///< which group and item it takes itself for
  bool has_warpgroups = false;  ///< it has the words of warpgroups.hpp
  unsigned parts = 1;           ///< groups of a cluster
};

/// The item that runs, and what it does to memory.
struct Watch {
  MemoryCheck memory;
  MemoryCheck::Maker item;
  Range local, own, stack;
  bool has_turn = true;  ///< what the kernels before have made may be read
  std::string fault;     ///< of another kind than the memory's

  void note(const void* at, unsigned bytes, int kind) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (stack.has(address) || own.has(address)) return;
    if (!has_turn) fault = "memory is read or written before the kernel's turn";
    memory.note(address, bytes, static_cast<MemoryCheck::Kind>(kind), local.has(address), item);
  }
  static Watch& all() {
    static Watch watch;
    return watch;
  }
};

inline void note_access(const void* at, unsigned bytes, int kind) {
  Watch::all().note(at, bytes, kind);
}

inline Extent place_in(unsigned index, const Extent& size) {
  return {index % size[0], index / size[0] % size[1], index / size[0] / size[1]};
}

/// One of several lines of control of a thread. Its first turn is given by `context`, later ones by `place`: swapcontext
/// asks the system for each, which takes longer than most items between two meetings. Not so under the sanitizer,
/// which does not know where the stack is after longjmp.
struct Turn {
  ucontext_t context{};
  std::jmp_buf place{};
  bool has_begun = false;

  void hand_over(Turn& to) {
#if defined(BACKPLANE_SANITIZED) && !defined(BACKPLANE_SANITIZED_THREAD)
    ::swapcontext(&context, &to.context);
#else
    if (_setjmp(place) != 0) return;
    if (to.has_begun) _longjmp(to.place, 1);
    to.has_begun = true;
    ::setcontext(&to.context);
#endif
  }
};

/// What an item waits for beside barriers of its whole group: something that becomes true of these numbers.
struct Wait {
  bool (*is_over)(const Wait& wait) = nullptr;
  const char* what = "";
  unsigned group = 0, item = 0;
  std::uint64_t number = 0, more = 0;
};

/// The items of a group, or of a cluster of groups that run at once, which go on in turns from one meeting to the next: one at a
/// barrier goes on when all of its group are there or have ended. A group goes on until none of its items can, before another does.
class Fibers {
 public:
  /// The first group's number, by whose items' stacks the others' follow.
  void run(const HostKernel& kernel, unsigned first, const Extent& groups, const Extent& size,
           void** arguments);
  static Fibers& all() {
    static Fibers fibers;
    return fibers;
  }

  // Of the item that runs, where it calls one of the kernel's words.
  unsigned group() const { return current_ / items_; }
  unsigned item() const { return current_ % items_; }
  void wait(const Wait& wait);
  /// Gives all up, for a reason that becomes the launch's fault. Does not return.
  void stop(const std::string& fault);
  void take_turn() { fibers_[current_]->has_turn = Watch::all().has_turn = true; }
  /// Whether some of a group's items have not ended.
  bool is_alive(unsigned group) const { return alive_[group] > 0; }
  std::uint32_t random();

 private:
  struct Fiber {
    Turn turn;
    // Not set to anything: most of it is never touched.
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    bool is_done = false, has_turn = false;
    const void* waits_at = nullptr;       ///< the barrier
    Wait wait;                            ///< or something else
    unsigned barriers = 0, meetings = 0;  ///< that it passed, of the group and of neighbours
  };
  static constexpr std::size_t kStackBytes = std::size_t{64} * 1024;

  void begin(unsigned index);
  bool run_group(unsigned group);
  bool is_ready(const Fiber& fiber) const;
  void resume(unsigned index);
  bool go_on(unsigned group);
  void run_item();
  std::string what_all_wait_for() const;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<unsigned> alive_;  ///< items that have not ended, of each group
  Turn scheduler_;
  unsigned current_ = 0, items_ = 1, first_ = 0;
  bool is_stopped_ = false;
  std::uint32_t random_ = 1;
  const HostKernel* kernel_ = nullptr;
  Extent groups_{}, size_{};
  void** arguments_ = nullptr;
};

}  // namespace backplane::cuda
