#include "core/plan/parallel_groups.hpp"

#include <algorithm>

namespace backplane::core {

bool may_run_in_parallel(const SegmentDraft& draft) {
  const std::vector<Step>& steps = draft.segment.steps;
  return steps.size() <= StepOrder::kMaxSteps &&
         std::none_of(steps.begin(), steps.end(), [](const Step& step) {
           return step.on_stream || step.kind == StepKind::Copy;
         });
}

StepOrder::StepOrder(const SegmentDraft& draft, const Aliases& aliases)
    : count_(draft.segment.steps.size()),
      words_((count_ + 63) / 64),
      dropped_(aliases.dropped),
      next_(count_),
      after_(count_ * words_) {
  find_edges(draft, aliases);
  find_followers();
}

void StepOrder::find_edges(const SegmentDraft& draft, const Aliases& aliases) {
  find_data_edges(draft);
  for (const auto& [reader, writer] : aliases.orders) {
    const auto from = static_cast<std::size_t>(reader);
    if (!dropped_[from] && !dropped_[static_cast<std::size_t>(writer)])
      next_[from].push_back(writer);
  }
  add_barriers(draft);
  for (std::vector<int>& next : next_) {
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
  }
}

/// From who makes a value to who reads it.
void StepOrder::find_data_edges(const SegmentDraft& draft) {
  std::vector<int> maker(draft.segment.slots.size(), -1);  // views: the one who makes what is seen
  const auto maker_of = [&](int slot) -> int& { return maker[static_cast<std::size_t>(slot)]; };
  for (std::size_t i = 0; i < count_; ++i) {
    const Step& step = draft.segment.steps[i];
    for (std::size_t k = 0; dropped_[i] && k < step.outputs.size(); ++k) {
      if (step.outputs[k] < 0) continue;
      const auto source = static_cast<std::size_t>(draft.wishes[i].said->outputs[k].view_of);
      maker_of(step.outputs[k]) = maker_of(step.inputs[source]);
    }
    if (dropped_[i]) continue;
    for (const int input : step.inputs) {
      const int from = input < 0 ? -1 : maker_of(input);
      if (from >= 0) next_[static_cast<std::size_t>(from)].push_back(static_cast<int>(i));
    }
    for (const int output : step.outputs) {
      if (output >= 0) maker_of(output) = static_cast<int>(i);
    }
  }
}

/// Control flow runs alone: its bodies use the threads by themselves.
void StepOrder::add_barriers(const SegmentDraft& draft) {
  for (std::size_t i = 0; i < count_; ++i) {
    if (draft.segment.steps[i].kind != StepKind::Control) continue;
    for (std::size_t k = 0; k < count_; ++k) {
      if (dropped_[k] || k == i) continue;
      next_[std::min(i, k)].push_back(static_cast<int>(std::max(i, k)));
    }
  }
}

void StepOrder::find_followers() {
  for (std::size_t i = count_; i-- > 0;) {
    std::uint64_t* mine = after_.data() + i * words_;
    for (const int next : next_[i]) {
      const std::uint64_t* theirs = row(next);
      for (std::size_t word = 0; word < words_; ++word) mine[word] |= theirs[word];
      mine[static_cast<std::size_t>(next) / 64] |= std::uint64_t{1} << (next % 64);
    }
  }
}

std::vector<ParallelGroup> StepOrder::groups() const {
  // A step that is ordered against all others has as many before and after it as there are others.
  std::vector<std::size_t> ordered(count_);
  std::size_t present = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    present += dropped_[i] ? 0 : 1;
    for (std::size_t word = 0; word < words_; ++word) {
      for (std::uint64_t bits = row(static_cast<int>(i))[word]; bits != 0; bits &= bits - 1) {
        ++ordered[i];
        ++ordered[word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits))];
      }
    }
  }
  std::vector<ParallelGroup> found;
  std::vector<int> run;
  const auto finish = [&] {
    if (run.size() > 1) found.push_back(group_of(run));
    run.clear();
  };
  for (std::size_t i = 0; i < count_; ++i) {
    if (dropped_[i]) continue;
    if (ordered[i] + 1 == present) {
      finish();
    } else {
      run.push_back(static_cast<int>(i));
    }
  }
  finish();
  return found;
}

ParallelGroup StepOrder::group_of(const std::vector<int>& steps) const {
  ParallelGroup group;
  group.steps = steps;
  group.waits_for.assign(steps.size(), 0);
  group.first_successor.push_back(0);
  for (const int step : steps) {
    for (const int next : next_[static_cast<std::size_t>(step)]) {
      const auto place = std::lower_bound(steps.begin(), steps.end(), next);
      if (place == steps.end() || *place != next) continue;
      group.successors.push_back(static_cast<int>(place - steps.begin()));
      ++group.waits_for[static_cast<std::size_t>(place - steps.begin())];
    }
    group.first_successor.push_back(static_cast<int>(group.successors.size()));
  }
  return group;
}

}  // namespace backplane::core
