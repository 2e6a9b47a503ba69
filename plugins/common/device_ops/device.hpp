// What the shared operators know of a device, and what its provider does with a node's work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "plugins/common/device_ops/work.hpp"

namespace backplane::device_ops {

/// What kernels depend on.
struct DeviceLimits {
  std::string name;
  std::string no_double;  ///< why there is no double precision; empty where there is
  std::size_t max_group_items = 1;
  std::uint64_t alignment = 128;  ///< of a tensor inside a buffer, in bytes
  /// A work item has a core to itself: loops over lines pay, a work item for each element does not.
  bool is_processor = false;
  std::int64_t vector_floats = 4;  ///< in a vector register; of meaning on processors
};

/// A node's work with its kernels built. Immutable.
class PreparedWork {
 public:
  PreparedWork() = default;
  PreparedWork(const PreparedWork&) = delete;
  PreparedWork& operator=(const PreparedWork&) = delete;
  virtual ~PreparedWork() = default;
  /// Puts the work on the run's stream. Threads: any.
  virtual void compute(const sdk::ComputeContext& ctx) const = 0;
};

/// Base of a provider's opened device, which is what its bp_device handles point to.
class Device {
 public:
  explicit Device(DeviceLimits limits) : limits_(std::move(limits)) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  const DeviceLimits& limits() const { return limits_; }
  bool has_double() const { return limits_.no_double.empty(); }
  /// Throws BP_UNSUPPORTED when the device has no arithmetic for the type.
  void require(sdk::DataType type) const {
    if (type == sdk::DataType::Double && !has_double())
      sdk::unsupported(limits_.name, " has no double precision", limits_.no_double);
  }
  /// Builds the kernels. Threads: any. Errors: BP_INTERNAL with the compiler's log, BP_OUT_OF_MEMORY.
  virtual std::unique_ptr<const PreparedWork> make_ready(const Work& work) = 0;

 private:
  DeviceLimits limits_;
};

}  // namespace backplane::device_ops
