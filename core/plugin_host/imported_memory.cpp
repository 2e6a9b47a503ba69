#include "core/plugin_host/imported_memory.hpp"

#include <utility>

#include "backplane/plugin_api/optional/import_memory.h"
#include "core/plugin_host/optional_interface.hpp"
#include "core/plugin_host/plugin_description.hpp"

namespace backplane::core {

const bp_import_memory* find_import_memory(const Device& device) {
  const std::string what = "device '" + device.label() + "'";
  const auto* const table = static_cast<const bp_import_memory*>(
      find_interface(device.provider(), what, BP_IMPORT_MEMORY_INTERFACE,
                     BP_SIZE_V1(bp_import_memory, buffer_release), "bp_import_memory"));
  if (table == nullptr) return nullptr;
  if (table->buffer_import == nullptr || table->buffer_release == nullptr)
    throw Error(Code::Internal, what + ": its bp_import_memory lacks a function");
  return table;
}

ImportedMemory::ImportedMemory(DevicePtr device, const Extent& extent,
                               std::shared_ptr<const void> kept)
    : kept_(std::move(kept)), device_(std::move(device)), extent_(extent) {
  const bp_import_memory* const table = device_->import_memory();
  if (table == nullptr) {
    throw Error(Code::Unsupported,
                text("device '", device_->label(), "' imports no memory: its provider lacks the ",
                     "interface '", BP_IMPORT_MEMORY_INTERFACE,
                     "'; give values in host memory, or bind outputs to the device"));
  }
  device_->throw_if_lost();
  if (extent.bytes == 0) return;
  std::int32_t access = 0;
  device_->check(device_->call(table->buffer_import, extent.memory, extent.offset, extent.bytes,
                               &access, &raw_),
                 "importing memory");
  const bool is_known = access == BP_IMPORT_READ || access == (BP_IMPORT_READ | BP_IMPORT_WRITE);
  if (raw_ != nullptr && is_known) {
    may_write_ = (access & BP_IMPORT_WRITE) != 0;
    return;
  }
  if (raw_ != nullptr) device_->tell("buffer_release", table->buffer_release, raw_);
  throw Error(Code::Internal, text("device '", device_->label(), "': buffer_import gave ",
                                   raw_ == nullptr ? "no buffer and no error" : "no such access"));
}

ImportedMemory::~ImportedMemory() {
  if (raw_ != nullptr && !process_is_ending())
    device_->tell("buffer_release", device_->import_memory()->buffer_release, raw_);
}

bool ImportedMemory::overlaps(const ImportedMemory& other) const {
  const std::uint64_t end = extent_.offset + extent_.bytes;
  const std::uint64_t other_end = other.extent_.offset + other.extent_.bytes;
  return device_ == other.device_ && extent_.memory == other.extent_.memory &&
         extent_.offset < other_end && other.extent_.offset < end;
}

void lay_over(RuntimeValue& value, std::shared_ptr<ImportedMemory> memory) {
  value.description.buffer = memory->raw();
  value.description.offset = memory->raw() != nullptr ? memory->offset() : 0;
  value.description.memory = BP_MEMORY_DEVICE;
  value.imported = std::move(memory);
}

}  // namespace backplane::core
