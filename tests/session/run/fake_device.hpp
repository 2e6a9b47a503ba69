// The fake device as session tests see it: its books and its native memory, reached beside the session.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tests/session/fake_device_books.hpp"

namespace backplane::session_test {

/// Finds the fake devices and the cpu.
Environment device_environment();

/// Floats that the test itself put into a fake device's memory.
class NativeFloats {
 public:
  NativeFloats(std::uint32_t device, std::size_t count, bool is_read_only = false)
      : count_(count),
        memory_(fakegpu().memory_new(device, count * sizeof(float), is_read_only ? 1 : 0)) {}
  NativeFloats(std::uint32_t device, const std::vector<float>& elements)
      : NativeFloats(device, elements.size()) {
    write(elements);
  }
  ~NativeFloats() { fakegpu().memory_free(memory_); }
  NativeFloats(const NativeFloats&) = delete;
  NativeFloats& operator=(const NativeFloats&) = delete;

  std::uint64_t number() const { return memory_; }
  std::uint64_t bytes() const { return count_ * sizeof(float); }
  /// On a stream of the test's (0: at once).
  void write(const std::vector<float>& elements, std::uint64_t stream = 0);
  std::vector<float> read(std::uint64_t stream = 0) const;
  /// A tensor over them in the memory of a session's device.
  Value as(const Session& session, const std::vector<std::int64_t>& dims,
           const std::string& device = "fakegpu:0") const {
    return session.borrow_on(device, ElementType::Float, dims, memory_, 0, bytes());
  }

 private:
  std::size_t count_;
  std::uint64_t memory_;
};

}  // namespace backplane::session_test
