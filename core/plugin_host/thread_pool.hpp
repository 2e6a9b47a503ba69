// The one thread pool of a process, and a session's share of it.
#pragma once

#include <cstdint>
#include <memory>

#include "backplane/plugin_api.h"

namespace backplane::core {

/// Threads that wait for loops to share. A loop has one owner at a time: a second caller's loop,
/// while the first one runs, is done by that caller alone. So is a loop inside a part of a loop.
///
/// Workers spin for a short while after a loop, then sleep; a loop that finds them asleep wakes
/// them. They block all signals but those of their own faults, so that handlers run on the application's threads. What the caller's
/// thread does with numbers below the normal ones, to take them as 0 or not, they do in its loop.
/// Threads: parallel_for and grow from any thread; destroy it when no loop runs.
class ThreadPool {
 public:
  /// More threads than this are never used.
  static constexpr unsigned kMaxThreads = 256;
  /// How long an idle worker looks for work, where nothing else is said.
  static constexpr std::uint64_t kSpinNs = 200'000;

  /// `thread_count` includes the caller of a loop: thread_count - 1 workers are started, lazily by
  /// the first loops that can use them.
  explicit ThreadPool(unsigned thread_count, std::uint64_t spin_ns = kSpinNs);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned thread_count() const;
  /// Makes sure that at least so many threads can work.
  void grow(unsigned thread_count);
  /// See bp_host_api::parallel_for; at most `max_threads` work on it, the caller among them, and
  /// `worker` is less than that. Allocates nothing once the workers are there.
  void parallel_for(unsigned max_threads, std::uint64_t n, std::uint64_t grain, bp_range_fn fn,
                    void* argument);

  /// What a thread does in a region: `member` is its number, less than `max_threads`; 0 is the caller.
  using RegionFn = void (*)(void* argument, unsigned member);
  /// Runs `fn` on the caller and on up to max_threads - 1 workers at the same time, and returns when all
  /// have returned. A worker may come late or never: `fn` must be right with the caller alone. Loops that
  /// members run by parallel_for are open to the others, who join them by help(). False, and nothing is
  /// done, when the pool is busy with somebody else's loop or region, or has one thread. Allocates nothing
  /// once the workers are there.
  bool run_region(unsigned max_threads, RegionFn fn, void* argument);
  /// For a member of a region that has nothing to do: joins a loop of another member, if one is open. False
  /// when there was none.
  bool help();
  /// What the calling thread works on, as its user puts it there; null at first. A worker that joins a loop works on what
  /// the loop's caller does. May be looked at by a handler of signals on that thread.
  static const void*& work_of_thread();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace backplane::core

/// A session's share of the pool; the ABI's opaque object. Never null in any context.
struct bp_threads {
  backplane::core::ThreadPool* pool = nullptr;
  unsigned max_threads = 1;
};
