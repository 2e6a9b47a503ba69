#include "plugins/opencl/imported_memory.hpp"

#include <cstddef>
#include <memory>

#include "backplane/plugin/import_memory.hpp"
#include "plugins/common/device_ops/device_table.hpp"
#include "plugins/opencl/device.hpp"

namespace backplane::opencl {
namespace {

template <class T>
T memory_value(cl_mem memory, cl_mem_info property) {
  T value{};
  const cl_int code = clGetMemObjectInfo(memory, property, sizeof(value), &value, nullptr);
  if (code == CL_INVALID_MEM_OBJECT) sdk::invalid("the memory is no cl_mem");
  check_cl(code, "clGetMemObjectInfo");
  return value;
}

struct Imports {
  /// Of memory of the process that kernels of processors work on where it lies: as of views.
  static constexpr std::uint64_t kProcessorAlignment = 64;

  static sdk::ImportedBuffer buffer_import(bp_device* handle, std::uint64_t number,
                                           std::uint64_t offset, std::uint64_t bytes) {
    const auto& device = *static_cast<Device*>(reinterpret_cast<device_ops::Device*>(handle));
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI's native handles are numbers
    auto* const memory = reinterpret_cast<cl_mem>(static_cast<std::uintptr_t>(number));
    if (memory_value<cl_mem_object_type>(memory, CL_MEM_TYPE) != CL_MEM_OBJECT_BUFFER)
      sdk::invalid("the cl_mem is no buffer");
    if (memory_value<cl_context>(memory, CL_MEM_CONTEXT) != device.context()) {
      sdk::invalid("the cl_mem is of another context than ", device.traits().name,
                   " works in; give its context as option 'user_context' of provider 'opencl'");
    }
    const auto size = memory_value<std::size_t>(memory, CL_MEM_SIZE);
    sdk::check_imported_range("cl_mem", size, offset, bytes);
    check_alignment(device, memory, offset);
    const auto flags = memory_value<cl_mem_flags>(memory, CL_MEM_FLAGS);
    if ((flags & CL_MEM_WRITE_ONLY) != 0)
      sdk::invalid(
          "the cl_mem is CL_MEM_WRITE_ONLY, and runs read what they wrote; make it "
          "CL_MEM_READ_WRITE");
    auto buffer = std::make_unique<Buffer>();
    check_cl(clRetainMemObject(memory), "clRetainMemObject");
    buffer->memory = Memory(memory);
    buffer->bytes = size;
    return {reinterpret_cast<bp_buffer*>(buffer.release()), (flags & CL_MEM_READ_ONLY) == 0};
  }

  static void buffer_release(bp_device*, bp_buffer* buffer) {
    const std::unique_ptr<Buffer> owned(reinterpret_cast<Buffer*>(buffer));
  }

 private:
  static void check_alignment(const Device& device, cl_mem memory, std::uint64_t offset) {
    // Of a sub-buffer: where it begins in the memory that it is part of.
    const auto origin = memory_value<std::size_t>(memory, CL_MEM_OFFSET);
    sdk::check_imported_alignment("the beginning in device memory, byte", origin + offset,
                                  device.traits().alignment);
    const auto* const host = memory_value<void*>(memory, CL_MEM_HOST_PTR);
    if (host == nullptr || !device.traits().is_cpu) return;
    sdk::check_imported_alignment("the address of the memory given by CL_MEM_USE_HOST_PTR,",
                                  reinterpret_cast<std::uintptr_t>(host) + offset,
                                  kProcessorAlignment);
  }
};

}  // namespace

const bp_import_memory& imported_memory() { return sdk::import_memory<Imports>(); }

}  // namespace backplane::opencl
