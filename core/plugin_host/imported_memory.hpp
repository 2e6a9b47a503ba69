// Memory that a program made by a device's native API, lent to values: the interface "bp.import_memory".
#pragma once

#include <cstdint>
#include <memory>

#include "core/plugin_host/device.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// The device's table; null where its provider has none. Throws for one that lacks a function, naming the device.
const bp_import_memory* find_import_memory(const Device& device);

/// A buffer of a device over memory of the program's: RAII over bp_import_memory::buffer_import.
///
/// Lifetime: holds the device, and `kept`; the memory outlives it.
/// Threads:  it never changes.
class ImportedMemory {
 public:
  /// Bytes of what the device's API calls `memory`.
  struct Extent {
    std::uint64_t memory = 0, offset = 0, bytes = 0;
  };

  /// Throws what the provider says of the memory, and Unsupported where it imports none, naming the device. Of no
  /// bytes, nothing is asked and there is no buffer.
  ImportedMemory(DevicePtr device, const Extent& extent, std::shared_ptr<const void> kept);
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;

  const Device& device() const { return *device_; }
  bp_buffer* raw() const { return raw_; }
  /// Where the bytes begin in the buffer.
  std::uint64_t offset() const { return extent_.offset; }
  bool may_write() const { return may_write_; }
  /// Whether both have a byte in common, as far as their numbers tell.
  bool overlaps(const ImportedMemory& other) const;

 private:
  std::shared_ptr<const void> kept_;
  DevicePtr device_;
  Extent extent_;
  bp_buffer* raw_ = nullptr;
  bool may_write_ = true;
};

/// Makes a tensor without memory lie in it.
void lay_over(RuntimeValue& value, std::shared_ptr<ImportedMemory> memory);

}  // namespace backplane::core
