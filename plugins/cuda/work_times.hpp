// When the work of a stream began and ended, by the device's clock: for traces.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backplane/plugin_api/optional/device_times.h"
#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

class Stream;

/// Pairs of events around the work of a stream. Threads: as the stream.
class WorkTimes {
 public:
  /// Nothing is on the stream.
  WorkTimes(Context& context, StreamHandle stream);

  using Event = std::shared_ptr<CUevent_st>;
  /// An event that the stream passes now.
  Event mark();
  void add(const char* name, Event begin, Event end);
  /// Shows what was noted, and forgets it; all of it is done.
  bp_status* take(void* sink_ctx, bp_device_time_sink sink);

 private:
  /// Both clocks at one time. Anew with each trace that is taken: the driver tells differences in floats of
  /// milliseconds, which are coarse after hours.
  void compare_clocks();

  struct Work {
    const char* name;
    Event begin, end;
  };
  Context& context_;
  StreamHandle stream_;
  Event zero_;
  std::uint64_t zero_ns_ = 0;  ///< of the host's clock, when the stream passed zero_
  std::vector<Work> work_;
};

/// What is put on the stream while this lives is one piece of work, if the stream notes times. A piece that cannot be
/// noted is left out: the trace must not fail the run.
class TimedWork {
 public:
  /// `name` lives as long as the program.
  TimedWork(Stream& stream, const char* name) noexcept;
  ~TimedWork();
  TimedWork(const TimedWork&) = delete;
  TimedWork& operator=(const TimedWork&) = delete;

 private:
  WorkTimes* times_;
  const char* name_;
  WorkTimes::Event begin_;
};

}  // namespace backplane::cuda
