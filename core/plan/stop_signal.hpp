// Why a run may have to end before it is done.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "core/base/error.hpp"

namespace backplane::core {

/// Of one run and all that is computed for it. Nobody wakes to raise it: whoever computes asks between steps, and kernels
/// that take long ask meanwhile. Threads: any.
struct StopSignal {
  using Clock = std::chrono::steady_clock;

  const std::atomic<bool>* cancelled = nullptr;  ///< null: nobody can cancel
  std::optional<Clock::time_point> deadline;
  std::chrono::nanoseconds limit{0};  ///< the time from the run's begin to its deadline

  bool may_be_raised() const { return cancelled != nullptr || deadline.has_value(); }
  /// Ok: go on.
  Code raised() const {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) return Code::Cancelled;
    return deadline && Clock::now() >= *deadline ? Code::Timeout : Code::Ok;
  }
  Error error(Code why) const {
    if (why != Code::Timeout) return {why, "the run was cancelled"};
    const double ms = std::chrono::duration<double, std::milli>(limit).count();
    return {why, text("the run's deadline passed: its option timeout_ms is ", ms)};
  }
  /// Throws error() where it is raised.
  void check() const {
    if (const Code why = raised(); why != Code::Ok) throw error(why);
  }
};

}  // namespace backplane::core
