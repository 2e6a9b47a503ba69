#include "core/runtime/work_in_flight.hpp"

#include <algorithm>

namespace backplane::core {

void WorkInFlight::begin() {
  if (least_ <= kMostSteps) first_batch_ = least_;
  least_ = kMostSteps + 1;
  batch_ = first_batch_;
  open_ = closed_ = 0;
  mark_ = 0;
}

void WorkInFlight::close_batch(Stream& stream) {
  const std::uint64_t mark = stream.signal();
  const Clock::time_point asked = Clock::now();
  if (mark_ == 0) {
    passed_ = asked;
  } else {
    stream.host_wait(mark_);
    fit_batch(asked, Clock::now());
  }
  mark_ = mark;
  closed_ = open_;
  open_ = 0;
}

/// `passed`: when the batch before the last one was seen to be done, for which the host waited from `asked` on.
void WorkInFlight::fit_batch(Clock::time_point asked, Clock::time_point passed) {
  const auto took = passed - passed_;
  passed_ = passed;
  if (passed - asked < kNoWait) {
    batch_ = std::min(2 * batch_, kMostSteps);
    return;
  }
  const auto fits = static_cast<std::size_t>(kBatch * static_cast<std::int64_t>(closed_) / took);
  batch_ = std::clamp(fits, std::size_t{1}, std::min(2 * batch_, kMostSteps));
  least_ = std::min(least_, std::clamp(fits, std::size_t{1}, kMostSteps));
}

}  // namespace backplane::core
