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
/// them. They block all signals, so that handlers run on the application's threads.
/// Threads: parallel_for and grow from any thread; destroy it when no loop runs.
class ThreadPool {
 public:
  /// More threads than this are never used.
  static constexpr unsigned kMaxThreads = 256;

  /// `thread_count` includes the caller of a loop: thread_count - 1 workers are started, lazily by
  /// the first loops that can use them.
  explicit ThreadPool(unsigned thread_count, std::uint64_t spin_ns = 200'000);
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
