#include "plugins/cuda/imported_memory.hpp"

#include <memory>

#include "backplane/plugin/import_memory.hpp"
#include "plugins/common/device_ops/device_table.hpp"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {
namespace {

struct Imports {
  static sdk::ImportedBuffer buffer_import(bp_device* handle, std::uint64_t memory,
                                           std::uint64_t offset, std::uint64_t bytes) {
    auto& device = *static_cast<Device*>(reinterpret_cast<device_ops::Device*>(handle));
    const PointerTraits pointer = device.context().traits_of(memory);
    if (!pointer.is_known) sdk::invalid("the address is of no memory that CUDA knows");
    if (!pointer.is_on_device)
      sdk::invalid("the address is of memory of the host; give a value in host memory");
    if (!pointer.is_here)
      sdk::invalid("the memory is not of the primary context of ", device.traits().name);
    // The address may be one inside an allocation.
    if (pointer.bytes != 0)
      sdk::check_imported_range("memory from that address on",
                                pointer.begin + pointer.bytes - memory, offset, bytes);
    sdk::check_imported_alignment("the address", memory + offset, device.limits().alignment);
    auto buffer = std::make_unique<Buffer>();  // of no device: its end frees nothing
    buffer->address = memory;
    buffer->bytes = offset + bytes;
    return {reinterpret_cast<bp_buffer*>(buffer.release()), true};
  }

  static void buffer_release(bp_device*, bp_buffer* buffer) {
    const std::unique_ptr<Buffer> owned(reinterpret_cast<Buffer*>(buffer));
  }
};

}  // namespace

const bp_import_memory& imported_memory() { return sdk::import_memory<Imports>(); }

}  // namespace backplane::cuda
