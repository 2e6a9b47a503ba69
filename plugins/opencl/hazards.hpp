// Which of a stream's commands a new one has to wait for, by the memory that they read and write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/opencl/cl_api.hpp"

namespace backplane::opencl {

/// Bytes that a command reads or writes: of an OpenCL buffer from its beginning on, or of the process (`memory` is null,
/// the bytes are addresses).
struct Access {
  const void* memory = nullptr;
  std::uint64_t begin = 0, end = 0;
  bool writes = false;
};

/// The accesses of commands whose order still matters. What is covered by a later write is forgotten: who would have to
/// wait for it waits for that write.
/// Threads: one at a time.
class Hazards {
 public:
  /// Above so many, the stream is better off with a barrier.
  static constexpr std::size_t kMost = 256;

  Hazards() { entries_.reserve(kMost + 8); }
  /// Adds the events, each once, that a command with this access waits for: the last write of what it reads, and
  /// every reader since of what it writes.
  void find(const Access& access, std::vector<cl_event>& events) const;
  /// The command has been enqueued. `event` is retained.
  void add(const Access& access, cl_event event);
  /// Everything before is waited for by another way: a barrier, or the host.
  void clear() { entries_.clear(); }
  std::size_t count() const { return entries_.size(); }

 private:
  struct Entry {
    Access access;
    Event event;
  };
  std::vector<Entry> entries_;
};

}  // namespace backplane::opencl
