#include "core/runtime/parallel_run.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

ParallelRun::ParallelRun(const ParallelGroup& group)
    : group_(group), left_(group.steps.size()), queue_(group.steps.size()) {}

int ParallelRun::run(const bp_threads& threads, StepFn fn, void* argument, bp_status*& status) {
  if (runs_ >= 2 * kTrials) {
    return best_ns_[1] < best_ns_[0] ? run_together(threads, fn, argument, status)
                                     : run_in_order(fn, argument, status);
  }
  const bool together = runs_++ % 2 == 0;
  const std::uint64_t begin = now_ns();
  const int failed =
      together ? run_together(threads, fn, argument, status) : run_in_order(fn, argument, status);
  best_ns_[together ? 1 : 0] = std::min(best_ns_[together ? 1 : 0], now_ns() - begin);
  return failed;
}

int ParallelRun::run_in_order(StepFn fn, void* argument, bp_status*& status) const {
  for (const int step : group_.steps) {
    status = fn(argument, step, 0);
    if (status != nullptr) return step;
  }
  return -1;
}

int ParallelRun::run_together(const bp_threads& threads, StepFn fn, void* argument,
                              bp_status*& status) {
  for (std::size_t i = 0; i < left_.size(); ++i) {
    left_[i].store(group_.waits_for[i], std::memory_order_relaxed);
    queue_[i].store(0, std::memory_order_relaxed);
  }
  head_.store(0, std::memory_order_relaxed);
  tail_.store(0, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  stopped_.store(false, std::memory_order_relaxed);
  failed_ = -1;
  failure_ = nullptr;
  pool_ = threads.pool;
  fn_ = fn;
  argument_ = argument;
  for (std::size_t i = 0; i < left_.size(); ++i) {
    if (group_.waits_for[i] == 0) push(static_cast<int>(i));
  }
  const auto enter = [](void* self, unsigned member) {
    static_cast<ParallelRun*>(self)->work(member);
  };
  if (!threads.pool->run_region(threads.max_threads, enter, this))
    return run_in_order(fn, argument, status);
  status = failure_;
  return failed_ < 0 ? -1 : group_.steps[static_cast<std::size_t>(failed_)];
}

void ParallelRun::work(unsigned member) {
  int mine = -1;  // the next step of a chain that this thread is on
  unsigned idle = 0;
  while (!stopped_.load(std::memory_order_acquire)) {
    const int index = mine >= 0 ? mine : pop();
    mine = -1;
    if (index < 0) {
      if (done_.load(std::memory_order_acquire) == group_.steps.size()) return;
      if (pool_->help()) {
        idle = 0;
      } else if (++idle % 1024 == 0) {
        std::this_thread::yield();
      }
      continue;
    }
    idle = 0;
    if (bp_status* status = fn_(argument_, group_.steps[static_cast<std::size_t>(index)], member)) {
      note_failure(index, status);
      return;
    }
    finish_step(index, mine);
  }
}

void ParallelRun::finish_step(int index, int& mine) {
  const auto first =
      static_cast<std::size_t>(group_.first_successor[static_cast<std::size_t>(index)]);
  const auto last =
      static_cast<std::size_t>(group_.first_successor[static_cast<std::size_t>(index) + 1]);
  for (std::size_t k = first; k < last; ++k) {
    const int next = group_.successors[k];
    if (left_[static_cast<std::size_t>(next)].fetch_sub(1, std::memory_order_acq_rel) != 1)
      continue;
    if (mine < 0) {
      mine = next;
    } else {
      push(next);
    }
  }
  done_.fetch_add(1, std::memory_order_release);
}

void ParallelRun::push(int index) {
  queue_[tail_.fetch_add(1, std::memory_order_relaxed)].store(index + 1, std::memory_order_release);
}

int ParallelRun::pop() {
  std::size_t head = head_.load(std::memory_order_relaxed);
  while (head < queue_.size()) {
    const int index = queue_[head].load(std::memory_order_acquire);
    if (index == 0) return -1;
    if (head_.compare_exchange_weak(head, head + 1, std::memory_order_relaxed)) return index - 1;
  }
  return -1;
}

void ParallelRun::note_failure(int index, bp_status* status) {
  while (failing_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  if (failed_ < 0 || index < failed_) {
    std::swap(failure_, status);
    failed_ = index;
  }
  failing_.store(false, std::memory_order_release);
  if (status != nullptr) take_error(status);  // the other one is told
  stopped_.store(true, std::memory_order_release);
}

}  // namespace backplane::core
