// The streams of a run: one of each device that it uses, and what is on them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/log.hpp"
#include "core/plan/segment.hpp"
#include "core/runtime/device_times.hpp"
#include "core/runtime/work_in_flight.hpp"

namespace backplane::core {

/// Made when a segment first uses the device, and kept for later runs.
///
/// Threads: one, the run's.
class RunStreams {
 public:
  explicit RunStreams(const DeviceSet& devices);
  RunStreams(const RunStreams&) = delete;
  RunStreams& operator=(const RunStreams&) = delete;

  /// A run begins; nothing is on the streams.
  void begin();
  /// Those that the segment uses; `timed`: devices take the times of what is done on them. Throws DeviceLost.
  void make(const Segment& segment, bool timed, const Logger* logger);
  /// How many there are; they only become more.
  std::size_t count() const { return count_; }

  Stream& at(int device) { return *streams_[static_cast<std::size_t>(device)]; }
  /// By device; null where no segment has used it.
  const std::vector<bp_stream*>& raw() const { return raw_; }
  bp_stream* raw(int device) const { return raw_[static_cast<std::size_t>(device)]; }

  /// Before `steps` steps of a run that may be ended go to a device's stream: waits where much is on it. Throws what work
  /// on the stream failed with.
  void make_room(int device, std::size_t steps);
  /// What the device says of the work on its stream since the last call.
  std::vector<DeviceTime> times(int device);

  /// Waits for all streams; what they failed with is known already.
  void drain();
  /// What the first stream failed with.
  struct Failure {
    int device;
    Error error;
  };
  /// Waits for the streams that a segment uses.
  std::optional<Failure> drain(const Segment& segment);

 private:
  const DeviceSet& devices_;
  // By device; null until first used.
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<bp_stream*> raw_;
  std::vector<DeviceTimes> times_;
  std::vector<WorkInFlight> in_flight_;
  std::size_t count_ = 0;
};

}  // namespace backplane::core
