// What a thread computes, for whoever is left to say so when it crashes.
#pragma once

#include <cstddef>

#include "core/plugin_host/thread_pool.hpp"
#include "core/runtime/segment_context.hpp"

namespace backplane::core {

/// Marks what the thread computes while this lives; a store for each operation, since the hot path sees it.
class AtWork {
 public:
  AtWork() : place_(ThreadPool::work_of_thread()), before_(place_) {}
  ~AtWork() { place_ = before_; }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

  void on(const Operation& operation) { place_ = &operation; }

 private:
  const void*& place_;
  const void* before_;
};

/// Writes "node 'NAME' (OP) on DEVICE" and a zero, cut to `size` bytes: what the calling thread computes, or the owner of the
/// loop that it has joined; "" for nothing. For handlers of signals: no lock, no allocation, one line.
void describe_work(char* text, std::size_t size) noexcept;

}  // namespace backplane::core
