// Streams and fences: in-order command queues, and counters made of markers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "plugins/opencl/cl_api.hpp"
#include "plugins/opencl/command_times.hpp"

namespace backplane::opencl {

class Device;

/// A word on the device in which a kernel leaves the number of its node when it meets values that it
/// cannot compute with; read when somebody waits for the stream.
class FaultWord {
 public:
  FaultWord(Device& device, Memory word);
  cl_mem memory() const { return memory_.get(); }
  /// Said by a launch that may fault: only then is there anything to read.
  void arm() { armed_.store(true, std::memory_order_release); }
  /// After the work is done: throws BP_FAILED when a kernel reported something, once.
  void check();

 private:
  Device& device_;
  Memory memory_;
  std::atomic<bool> armed_{false};
};

/// An in-order queue.
class Stream {
 public:
  Stream(Device& device, Queue queue, Memory fault_word);
  cl_command_queue queue() const { return queue_.get(); }
  FaultWord& faults() { return *faults_; }
  const std::shared_ptr<FaultWord>& shared_faults() const { return faults_; }
  /// Waits for everything; throws the first error, which is forgotten.
  void sync();

  /// Starts or ends the taking of times, which another queue does; nothing is on this one. Errors: BP_UNSUPPORTED for the
  /// user's queue, when it takes none.
  void record_times(bool on);
  /// Null while none are taken.
  CommandTimes* times() { return times_.get(); }

 private:
  Device& device_;
  Queue queue_;
  std::shared_ptr<FaultWord> faults_;
  std::unique_ptr<CommandTimes> times_;
};

/// The event of a command that is about to be enqueued, where times are taken.
class TimedCommand {
 public:
  explicit TimedCommand(Stream& stream) : times_(stream.times()) {
    if (times_ != nullptr) enqueued_ns_ = CommandTimes::now();
  }
  /// For the call that enqueues; null where nobody asks.
  cl_event* event() { return times_ != nullptr ? &event_ : nullptr; }
  /// After the call.
  void done(const std::string& name) {
    if (event_ != nullptr) times_->add(name, enqueued_ns_, Event(event_));
  }

 private:
  CommandTimes* times_;
  std::uint64_t enqueued_ns_ = 0;
  cl_event event_ = nullptr;
};

/// A counter that streams raise. Its mutex guards the list of markers and is never held while waiting
/// for the device.
class Fence {
 public:
  explicit Fence(Device& device) : device_(device) {}
  ~Fence();
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  void signal(Stream& stream, std::uint64_t value);
  /// The stream goes on when the counter has reached `value`, which may be signalled later.
  void wait(Stream& stream, std::uint64_t value);
  /// False when the time ran out. Throws what the work before the signal failed with.
  bool host_wait(std::uint64_t value, std::uint64_t timeout_ns);

 private:
  struct Mark {
    std::uint64_t value;
    Event event;
    std::shared_ptr<FaultWord> faults;
  };
  /// A stream that waits for a value nobody has signalled yet, by an event that the host ends.
  struct Pending {
    std::uint64_t value;
    Event event;
  };
  const Mark* find(std::uint64_t value) const;

  Device& device_;
  std::mutex mutex_;
  std::condition_variable signalled_;
  std::deque<Mark> marks_;
  std::vector<Pending> pending_;
};

}  // namespace backplane::opencl
