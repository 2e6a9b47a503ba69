// Streams and fences: command queues, and counters made of markers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "plugins/common/device_ops/faults.hpp"
#include "plugins/opencl/cl_api.hpp"
#include "plugins/opencl/command_times.hpp"
#include "plugins/opencl/hazards.hpp"

namespace backplane::opencl {

class Device;

/// A word on the device in which a kernel leaves the number of its node when it meets values that it
/// cannot compute with; read when somebody waits for the stream.
class FaultWord {
 public:
  FaultWord(Device& device, Memory word);
  cl_mem memory() const { return memory_.get(); }
  /// Said by a launch that may fault: only then is there anything to read.
  void arm() { launches_.add(); }
  /// How many said so.
  std::uint64_t armed() const { return launches_.count(); }
  /// When the first `armed` of these are done: throws BP_FAILED when a kernel reported something, once.
  void check(std::uint64_t armed);

 private:
  Device& device_;
  Memory memory_;
  device_ops::FaultyLaunches launches_;
};

/// A queue whose commands give results as if they were done one after the other. One that runs out of order is told of each
/// command what it waits for; see Command.
/// Threads: one at a time.
class Stream {
 public:
  Stream(Device& device, Queue queue, Memory fault_word);
  cl_command_queue queue() const { return queue_.get(); }
  /// What orders the commands of a queue that runs out of order; null for one in order.
  Hazards* hazards() { return hazards_.get(); }
  /// Everything that is enqueued from here on waits for everything before; in order it does anyway.
  void barrier();
  /// Gives the queue to somebody whose commands this class is not told of: barriers stand before and after them.
  cl_command_queue lend();
  /// Before each command of this provider: the barrier after what others may have enqueued, or when there is too much to
  /// look at.
  void settle();
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
  std::unique_ptr<Hazards> hazards_;
  bool is_lent_ = false;
  // Of the command that is being enqueued, kept for their memory.
  friend class Command;
  std::vector<Access> accesses_;
  std::vector<cl_event> awaited_;
};

/// A command that is about to be enqueued: what it waits for and its event, where the queue runs out of order or times are
/// taken.
///
///   Command command(stream);
///   command.uses({memory, begin, end, writes});   // all that it touches
///   clEnqueue...(..., command.wait_count(), command.wait_list(), command.event());
///   command.done("name in traces");
class Command {
 public:
  explicit Command(Stream& stream);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  /// False: nobody asks for what it uses.
  bool is_ordered_by_events() const { return hazards_ != nullptr; }
  void uses(const Access& access) {
    if (hazards_ == nullptr || access.begin >= access.end) return;
    hazards_->find(access, stream_.awaited_);
    stream_.accesses_.push_back(access);
  }
  cl_uint wait_count() const { return static_cast<cl_uint>(stream_.awaited_.size()); }
  const cl_event* wait_list() const {
    return stream_.awaited_.empty() ? nullptr : stream_.awaited_.data();
  }
  /// For the call that enqueues; null where nobody asks.
  cl_event* event() { return times_ != nullptr || hazards_ != nullptr ? &event_ : nullptr; }
  /// After the call.
  void done(std::string_view name);

 private:
  Stream& stream_;
  CommandTimes* times_;
  Hazards* hazards_;
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
    std::uint64_t armed = 0;  ///< of the launches before the signal
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
