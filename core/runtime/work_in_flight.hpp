// How much of a run that may be ended is on a stream at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/plugin_host/device.hpp"

namespace backplane::core {

/// Lets the host be ahead of a stream by two batches of steps and no more: a device does all that it was given, so that a
/// run ends as late after its deadline as that takes. A batch is about kBatch of the device's time by what the last ones
/// took, one step at the least and kMostSteps at the most.
///
/// Threads: one, the run's.
class WorkInFlight {
 public:
  /// A run begins; nothing is on the stream.
  void begin();
  /// Before something is put on the stream that is as long as `steps`: waits where two batches are on it. Throws what work
  /// on the stream failed with.
  void make_room(Stream& stream, std::size_t steps = 1) {
    if (open_ >= batch_) close_batch(stream);
    open_ += steps;
  }

 private:
  using Clock = std::chrono::steady_clock;
  /// Long enough to hide what it takes to wake a thread, and short for who waits.
  static constexpr std::chrono::nanoseconds kBatch = std::chrono::milliseconds(2);
  /// Of a wait that took less, nobody knows how long the work took.
  static constexpr std::chrono::nanoseconds kNoWait = std::chrono::microseconds(20);
  /// A mark for so many of the shortest steps costs little; long ones that follow short ones are not many.
  static constexpr std::size_t kMostSteps = 16;

  void close_batch(Stream& stream);
  void fit_batch(Clock::time_point asked, Clock::time_point passed);

  std::size_t batch_ = 1;        ///< steps
  std::size_t open_ = 0;         ///< steps since the last mark
  std::size_t closed_ = 0;       ///< steps of the batch before the last mark
  std::uint64_t mark_ = 0;       ///< the last one of the run; 0: none
  Clock::time_point passed_;     ///< when the mark before it was passed
  std::size_t first_batch_ = 1;  ///< of a run: the smallest that one before had
  std::size_t least_ =
      kMostSteps + 1;  ///< that the present run had; more than kMostSteps: it has measured none
};

}  // namespace backplane::core
