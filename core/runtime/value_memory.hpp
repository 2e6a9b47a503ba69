// Memory of values that belong to no arena: what bodies of control flow make and hand on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/plan/session_device.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// Makes the value a dense tensor with memory of its own in a space; keeps the memory it has where that is large enough
/// and nobody shares it. The memory that it has must be of that space.
void own_tensor(RuntimeValue& value, DataType type, const std::vector<std::int64_t>& dims,
                int space, const DeviceSet& devices);

/// Gives `to` what `from` holds, memory and all; `from` gets the memory that `to` had, for later. Both own their memory,
/// or hold none.
void move_value(RuntimeValue& from, RuntimeValue& to);

/// Points a tensor without memory of its own `offset` bytes into another one.
void point_into(RuntimeValue& value, const bp_tensor& whole, std::uint64_t offset);

/// Copies between tensors of one memory space, outside of any plan; done when it returns.
/// Threads: one at a time.
class SpaceCopies {
 public:
  explicit SpaceCopies(const DeviceSet& devices);
  ~SpaceCopies();
  SpaceCopies(const SpaceCopies&) = delete;
  SpaceCopies& operator=(const SpaceCopies&) = delete;

  /// Of `from.bytes` bytes; both dense.
  void copy(const bp_tensor& from, const bp_tensor& to, int space);
  /// Makes `to` a copy of any value; sequences and the like share their elements. A tensor gets memory of its own.
  void copy_value(const RuntimeValue& from, RuntimeValue& to, int space);

 private:
  struct Lane;
  Lane& lane(int device);
  void copy_over_host(Lane& lane, int device, const bp_tensor& from, const bp_tensor& to);

  const DeviceSet& devices_;
  std::vector<std::unique_ptr<Lane>> lanes_;  ///< by device; null until first used
};

}  // namespace backplane::core
