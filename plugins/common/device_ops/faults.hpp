// Numbers by which kernels report that they met values they cannot compute with.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "backplane/plugin.hpp"

namespace backplane::device_ops {

/// Threads: any.
class FaultTable {
 public:
  /// A number for what it means.
  int add(std::string text) {
    const std::lock_guard lock(mutex_);
    texts_[next_] = std::move(text);
    return next_++;
  }
  void remove(int number) {
    const std::lock_guard lock(mutex_);
    texts_.erase(number);
  }
  std::string text(int number) const {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(number);
    return found != texts_.end() ? found->second
                                 : sdk::message("a kernel reported fault ", number, " of no node");
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, std::string> texts_;
  int next_ = 1;
};

/// How many launches that may fault a stream has been given, and how many of them somebody has looked after since they were
/// done: a device's word is read only where there is one more. What was launched after a fence is not done with it, so
/// that who waits for the fence looks after those before it.
/// Threads: any.
class FaultyLaunches {
 public:
  void add() { count_.fetch_add(1, std::memory_order_release); }
  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }
  /// Those after the first `count` were none.
  void take_back(std::uint64_t count) { count_.store(count, std::memory_order_release); }
  /// Whether nobody has looked after all of the first `count`, which are done: the caller does.
  bool is_due(std::uint64_t count) {
    std::uint64_t seen = seen_.load(std::memory_order_acquire);
    while (seen < count) {
      if (seen_.compare_exchange_weak(seen, count, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

 private:
  std::atomic<std::uint64_t> count_{0}, seen_{0};
};

}  // namespace backplane::device_ops
