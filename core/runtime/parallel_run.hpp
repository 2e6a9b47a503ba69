// Runs the steps of a parallel group on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/plan/segment.hpp"
#include "core/plugin_host/thread_pool.hpp"

namespace backplane::core {

/// Does one step; null is success. Called from any thread of the pool. `member` is the thread's number.
using StepFn = bp_status* (*)(void* argument, int step, unsigned member);

/// A group made ready to run again and again. A step whose predecessors are done goes into a queue without locks,
/// from which the threads take; who finds nothing joins the loop of a kernel that another thread runs.
///
/// The first runs are timed, each way in turn, and the group is then run the way that was faster: branches may be too
/// small to pay for the traffic between the threads.
///
/// Lifetime: borrows the group. Threads: one run at a time.
class ParallelRun {
 public:
  explicit ParallelRun(const ParallelGroup& group);

  const ParallelGroup& group() const { return group_; }

  /// Runs all steps; returns the failed one with the lowest number, or -1. `status` is its failure.
  int run(const bp_threads& threads, StepFn fn, void* argument, bp_status*& status);

 private:
  /// Each way is timed so often before one is chosen.
  static constexpr unsigned kTrials = 6;

  int run_in_order(StepFn fn, void* argument, bp_status*& status) const;
  int run_together(const bp_threads& threads, StepFn fn, void* argument, bp_status*& status);
  void work(unsigned member);
  void push(int index);
  int pop();
  void finish_step(int index, int& mine);
  void note_failure(int index, bp_status* status);

  const ParallelGroup& group_;
  std::vector<std::atomic<int>> left_;   ///< by index: predecessors that are not done
  std::vector<std::atomic<int>> queue_;  ///< index + 1; 0: not written yet
  std::atomic<std::size_t> head_{0}, tail_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> failing_{false};  ///< guards the two below, on the way out only
  int failed_ = -1;
  bp_status* failure_ = nullptr;
  ThreadPool* pool_ = nullptr;
  StepFn fn_ = nullptr;
  void* argument_ = nullptr;
  unsigned runs_ = 0;
  std::uint64_t best_ns_[2] = {UINT64_MAX, UINT64_MAX};  ///< in order, together
};

}  // namespace backplane::core
