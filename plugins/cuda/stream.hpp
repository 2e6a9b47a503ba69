// Streams and fences: CUDA streams, and counters made of events.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "plugins/common/device_ops/faults.hpp"
#include "plugins/cuda/driver.hpp"
#include "plugins/cuda/pinned_store.hpp"
#include "plugins/cuda/work_times.hpp"

namespace backplane::cuda {

class Device;
class Kernel;

/// Where a kernel leaves the number of its node when it meets values that it cannot compute with; looked at
/// when somebody waits for the stream.
class FaultWord {
 public:
  explicit FaultWord(Device& device);
  std::uint64_t* address() const { return word_.get(); }
  /// Said by a launch that may fault: only then is there anything to read.
  void arm() { launches_.add(); }
  /// How many said so.
  std::uint64_t armed() const { return launches_.count(); }
  /// Between the two calls nothing is done, only captured: the second tells whether a launch said so meanwhile.
  void begin_capture() { before_capture_ = armed(); }
  bool end_capture();
  /// When the first `armed` of these are done: throws BP_FAILED when a kernel reported something, once.
  void check(std::uint64_t armed);

 private:
  Device& device_;
  PinnedWord word_;
  device_ops::FaultyLaunches launches_;
  std::uint64_t before_capture_ = 0;
  std::mutex reading_;
};

class Stream final : public KernelQueue {
 public:
  /// `users` is the calling program's stream, or null for one of its own.
  Stream(Device& device, StreamHandle users);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Where work is put; while that is captured for the program's stream, one beside it. Who asks puts something there which
  /// no kernel is to overlap with.
  StreamHandle handle() {
    note(Put::kOther);
    return handle_;
  }
  StreamHandle for_library() override {
    note(Put::kKernels);
    return handle_;
  }
  /// It may begin before the one before it has ended where that is known to be a kernel, too: whatever else a stream
  /// or a graph has before it (nothing, copies, events, work of the program's), what the driver makes of it is not relied on.
  void launch(const Kernel& kernel, const Extent& groups, const Extent& group,
              void** arguments) override;
  FaultWord& faults() { return *faults_; }
  const std::shared_ptr<FaultWord>& shared_faults() const { return faults_; }
  /// Waits for everything; throws the first error.
  void sync();
  /// As Device's, for a stream of the program.
  void refuse_while_programs_capture() const;
  /// Between the two calls what is put on the stream becomes a graph. It is captured on a stream that is nobody else's: on
  /// the program's, the program and other runs may put work meanwhile.
  void begin_capture();
  struct CaptureEnd {
    StreamHandle captured;
    bool may_fault;      ///< whether some kernel may report a fault
    bool overlaps;       ///< whether some kernel may begin before the one before it has ended
    std::uint64_t form;  ///< by which kinds of work in other orders differ, but for chance
  };
  CaptureEnd end_capture();
  /// Nothing is on the stream. Errors: BP_UNSUPPORTED while the program captures its own stream.
  void record_times(bool on);
  /// Null where nobody wants them, and of work that is captured: it is not done.
  WorkTimes* times() { return is_capturing_ ? nullptr : times_.get(); }

 private:
  enum class Put : std::uint8_t { kOther = 1, kKernels, kKernel, kEarlyKernel };
  void note(Put put) {
    last_ = put;
    form_ = form_ * 1099511628211u + static_cast<std::uint64_t>(put);  // as in FNV
  }

  Device& device_;
  StreamHandle users_;  ///< null: handle_ is of its own
  StreamHandle handle_;
  StreamHandle aside_ = nullptr;  ///< on which work for the program's stream is captured
  std::shared_ptr<FaultWord> faults_;
  std::unique_ptr<WorkTimes> times_;
  bool is_capturing_ = false;
  Put last_ = Put::kOther;
  std::uint64_t form_ = 0;     ///< of what was put there since a capture began
  bool has_overlaps_ = false;  ///< the same
};

/// A counter that streams raise. Its mutex guards the list of marks and is never held while waiting for the
/// device.
class Fence {
 public:
  explicit Fence(Device& device);
  ~Fence();
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  void signal(Stream& stream, std::uint64_t value);
  /// The stream goes on when the counter has reached `value`. One that nobody has signalled yet is waited for
  /// by a word in memory, which later signals then write; `BP_UNSUPPORTED` where the device cannot.
  void wait(Stream& stream, std::uint64_t value);
  /// False when the time ran out. Throws what the work before the signal failed with.
  bool host_wait(std::uint64_t value, std::uint64_t timeout_ns);

 private:
  struct Mark {
    std::uint64_t value;
    std::shared_ptr<CUevent_st> event;
    std::shared_ptr<FaultWord> faults;
    std::uint64_t armed = 0;  ///< of the launches before the signal
  };
  const Mark* find(std::uint64_t value) const;
  std::shared_ptr<CUevent_st> take_event();

  Device& device_;
  std::mutex mutex_;
  std::condition_variable signalled_;
  std::deque<Mark> marks_;
  std::unique_ptr<PinnedWord> early_;  ///< where somebody waited before the signal
};

}  // namespace backplane::cuda
