// Which steps of a segment a device can record once and do again as one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace backplane::core {

class Program;
struct Segment;

/// Consecutive steps on one device's stream, with copies on the host among them that wait for nobody: those are done
/// first, which changes nothing, since a step of the range that touches the same bytes before would be waited for.
struct CaptureRange {
  std::size_t begin = 0, end = 0;  ///< indices into Segment::steps
  int device = -1;
  std::vector<int> host_copies;  ///< steps among them
  bool signals = false;          ///< somebody waits for one of its steps
};

/// Why steps are in no range.
struct CaptureBreak {
  std::string reason;
  int first_step = 0;  ///< of those with this reason
  int steps = 0;       ///< how many have it
};

/// What became of a range, in all runs together.
/// Threads: any.
class CaptureTally {
 public:
  std::atomic<std::uint64_t> recorded{0}, replayed{0};
  std::atomic<std::uint64_t> plain{0};  ///< runs whose steps were put on the stream one by one

  void refuse(const std::string& reason);
  std::string refusal() const;  ///< the last reason for not recording or replaying; "" for none

 private:
  mutable std::mutex mutex_;
  std::string refusal_;
};

/// Of a segment. Immutable, but for the tallies.
struct CapturePlan {
  std::vector<CaptureRange> ranges;
  std::vector<CaptureBreak> breaks;
  std::vector<int> incoming;  ///< indices into Segment::incoming: values in devices' memory
  std::vector<int> fetches;   ///< numbers of fetches in devices' memory
  std::unique_ptr<CaptureTally[]> tallies;  ///< by range
  CaptureTally watched;  ///< runs with a profile or an observer, which replay nothing
};

/// The ranges of a segment whose steps are in their final order; null where it has nothing on a stream.
std::shared_ptr<CapturePlan> find_capture_ranges(const Segment& segment, const Program& program);

}  // namespace backplane::core
