// Which steps of a segment may run at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/aliasing.hpp"

namespace backplane::core {

/// Steps and what each must wait for, as far as neither order nor memory is given by anything else.
class StepOrder {
 public:
  /// More steps than this are not looked at: the table of who precedes whom grows with their square.
  static constexpr std::size_t kMaxSteps = 8192;

  /// Steps that aliasing dropped take no part.
  StepOrder(const SegmentDraft& draft, const Aliases& aliases);

  /// Whether step `later` runs after step `earlier` in every order that is allowed.
  bool precedes(int earlier, int later) const {
    const std::size_t bit = static_cast<std::size_t>(later);
    return (row(earlier)[bit / 64] >> (bit % 64) & 1) != 0;
  }
  /// Runs of steps none of which is ordered against all others: what lies between them runs alone.
  /// Steps as in the draft; successors are those inside of the group.
  std::vector<ParallelGroup> groups() const;

 private:
  const std::uint64_t* row(int step) const {
    return after_.data() + static_cast<std::size_t>(step) * words_;
  }
  void find_edges(const SegmentDraft& draft, const Aliases& aliases);
  void find_data_edges(const SegmentDraft& draft);
  void add_barriers(const SegmentDraft& draft);
  void find_followers();
  ParallelGroup group_of(const std::vector<int>& steps) const;

  std::size_t count_, words_;
  std::vector<bool> dropped_;
  std::vector<std::vector<int>> next_;  ///< by step: those that wait for it, ascending
  std::vector<std::uint64_t> after_;    ///< bit (a, b): b comes after a
};

/// True when steps of this segment may run on several threads at a time: all work is on host memory. Work on streams
/// overlaps by itself, and its waits rely on the host going step by step.
bool may_run_in_parallel(const SegmentDraft& draft);

}  // namespace backplane::core
