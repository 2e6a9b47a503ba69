// What the cases of devices are made of: streams, fences, copies, bytes to tell apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/backplane/check/suite.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {

std::vector<std::uint8_t> pattern(std::uint64_t bytes, std::uint64_t seed);
/// The first byte that is not as it should be; "" when there is none.
std::string compared(const std::vector<std::uint8_t>& got, const std::vector<std::uint8_t>& want);

/// A stream, and a fence, that end by themselves.
class Stream {
 public:
  explicit Stream(const OpenDevice& device) : device_(device) {
    enter("stream_create");
    need([&] { return device->stream_create(device.raw(), &stream_); });
  }
  ~Stream() { device_->stream_destroy(device_.raw(), stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  bp_stream* raw() const { return stream_; }
  void sync() const {
    enter("stream_sync");
    need([&] { return device_->stream_sync(device_.raw(), stream_); });
  }

 private:
  const OpenDevice& device_;
  bp_stream* stream_ = nullptr;
};

class Fence {
 public:
  explicit Fence(const OpenDevice& device) : device_(device) {
    enter("fence_create");
    need([&] { return device->fence_create(device.raw(), &fence_); });
  }
  ~Fence() { device_->fence_destroy(device_.raw(), fence_); }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  void signal(const Stream& stream, std::uint64_t value) const {
    enter(text("fence_signal of ", value));
    need([&] { return device_->fence_signal(device_.raw(), stream.raw(), fence_, value); });
  }
  void wait(const Stream& stream, std::uint64_t value) const {
    enter(text("fence_wait for ", value));
    need([&] { return device_->fence_wait(device_.raw(), stream.raw(), fence_, value); });
  }
  Outcome host_wait(std::uint64_t value, std::uint64_t timeout_ns) const {
    enter(text("fence_host_wait for ", value));
    return ask([&] { return device_->fence_host_wait(device_.raw(), fence_, value, timeout_ns); });
  }

 private:
  const OpenDevice& device_;
  bp_fence* fence_ = nullptr;
};

/// Puts a copy of so many bytes on a stream.
void copy(const OpenDevice& device, const Stream& stream, const bp_tensor& from,
          const bp_tensor& to);
/// Puts a copy of whole insides on a stream.
void copy(const OpenDevice& device, const Stream& stream, const Memory& from, const Memory& to);

/// Memory on the process's side that the device copies with: pinned, or any where it takes that.
bp_memory_kind outer_kind(const OpenDevice& device);

/// Thrown where a device that offers an optional interface will not do what it asks for, with the device's reason.
struct Refused {
  std::string reason;
};
/// An optional interface of the piece's provider; null where it has none.
const void* interface_of(Subject& subject, const Piece& piece, const char* id);

std::vector<Row> not_applicable(const std::string& name, const Piece& piece);
/// Passed when nothing is wrong.
std::vector<Row> verdict(const std::string& name, const Piece& piece, const std::string& wrong);

}  // namespace backplane::cli::check
