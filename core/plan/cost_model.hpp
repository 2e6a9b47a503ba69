// What copies and kernels of a session's devices cost, as far as it is known before a run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/plan/session_device.hpp"

namespace backplane::core {

/// A copy takes latency_ns and then bytes / bytes_per_ns. Rate 0: there is no such copy.
struct CopyRate {
  double latency_ns = 0;
  double bytes_per_ns = 0;
  bool operator==(const CopyRate&) const = default;
};

/// What the work of kernels is counted by where they do not say what they take themselves.
struct ComputeRate {
  double launch_ns = 0;
  double flops_per_ns = 1;
  double bytes_per_ns = 1;
};

/// Costs, in nanoseconds. Immutable once made: the same rates place the same graph the same way.
class CostModel {
 public:
  /// Nothing is known of copies: all are free until they are set.
  explicit CostModel(const DeviceSet& devices);
  /// With memory spaces by device, instead of those that the devices have.
  CostModel(const DeviceSet& devices, std::vector<int> spaces);

  /// Copies by `device` between its memory and the host's.
  void set_host_copies(int device, const CopyRate& to_device, const CopyRate& to_host);
  /// Copies from one device's memory to another's without the host.
  void set_peer_copy(int from, int to, const CopyRate& rate);
  void set_compute(int device, const ComputeRate& rate);

  std::size_t device_count() const { return compute_.size(); }
  /// See DeviceSet::space_of.
  int space_of(int device) const { return spaces_[static_cast<std::size_t>(device)]; }
  std::size_t space_count() const { return space_count_; }
  bool has_peer_copy(int from, int to) const { return rate(from, to).bytes_per_ns > 0; }
  /// One copy between spaces, of which one is the host's unless they are peers.
  double copy_ns(int from, int to, std::uint64_t bytes) const;
  /// A kernel that needs so much arithmetic and memory traffic.
  double exec_ns(int device, double flops, double bytes) const;

 private:
  const CopyRate& rate(int from, int to) const {
    return copies_[static_cast<std::size_t>(from) * space_count_ + static_cast<std::size_t>(to)];
  }
  CopyRate& rate(int from, int to) {
    return copies_[static_cast<std::size_t>(from) * space_count_ + static_cast<std::size_t>(to)];
  }

  std::vector<int> spaces_;
  std::size_t space_count_;
  std::vector<CopyRate> copies_;  ///< by spaces, from and to
  std::vector<ComputeRate> compute_;
};

}  // namespace backplane::core
