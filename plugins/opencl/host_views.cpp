#include "plugins/opencl/host_views.hpp"

#include <memory>

#include "backplane/plugin/host_memory.hpp"
#include "plugins/common/device_ops/device_table.hpp"
#include "plugins/opencl/device.hpp"

namespace backplane::opencl {
namespace {

/// Mapped while the host has it, as OpenCL asks for memory given by CL_MEM_USE_HOST_PTR: the device sees what the host
/// wrote once it is unmapped, the host what kernels wrote once it is mapped. Both are only words to a driver whose
/// kernels work on the very bytes.
struct Views {
  /// Kernels of processors load vectors of floats. GPUs work on whole pages, and copy what begins elsewhere.
  static constexpr std::uint64_t kProcessorAlignment = 64, kPage = 4096;
  /// Mapping and unmapping cost about as much as copying so many bytes: see README.md.
  static constexpr std::uint64_t kLeastBytes = 16 << 10;

  static Device& device_of(bp_device* handle) {
    return *static_cast<Device*>(reinterpret_cast<device_ops::Device*>(handle));
  }
  static Buffer& buffer_of(bp_buffer* handle) { return *reinterpret_cast<Buffer*>(handle); }

  static sdk::HostMemoryCaps caps(bp_device* handle) {
    const DeviceTraits& traits = device_of(handle).traits();
    if (!traits.shares_host_memory) sdk::unsupported(traits.name, " has memory of its own");
    return {traits.is_cpu ? kProcessorAlignment : kPage, kLeastBytes};
  }

  static bp_buffer* view(bp_device* handle, void* memory, std::uint64_t bytes,
                         sdk::ViewAccess access) {
    Device& device = device_of(handle);
    auto buffer = std::make_unique<Buffer>();
    buffer->bytes = bytes;
    const bool is_read = access == sdk::ViewAccess::Read;
    buffer->view_flags = is_read ? CL_MAP_WRITE : CL_MAP_READ;
    cl_int code = CL_SUCCESS;
    buffer->memory = Memory(clCreateBuffer(
        device.context(), CL_MEM_USE_HOST_PTR | (is_read ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE),
        bytes, memory, &code));
    if (code != CL_SUCCESS)
      throw_cl(code, "clCreateBuffer",
               sdk::message("a view of ", bytes, " bytes for ", device.traits().name));
    cl_command_queue queue = device.side_queue();
    check_cl(clRetainCommandQueue(queue), "clRetainCommandQueue");
    buffer->mapping_queue = Queue(queue);
    buffer->view_mapping =
        clEnqueueMapBuffer(queue, buffer->memory.get(), CL_TRUE, buffer->view_flags, 0, bytes, 0,
                           nullptr, nullptr, &code);
    if (code != CL_SUCCESS) throw_cl(code, "clEnqueueMapBuffer", device.traits().name);
    return reinterpret_cast<bp_buffer*>(buffer.release());
  }

  static void view_free(bp_device*, bp_buffer* handle) {
    const std::unique_ptr<Buffer> buffer(&buffer_of(handle));
    if (buffer->view_mapping == nullptr) return;
    cl_command_queue queue = buffer->mapping_queue.get();
    clEnqueueUnmapMemObject(queue, buffer->memory.get(), buffer->view_mapping, 0, nullptr, nullptr);
    clFinish(queue);
  }

  static void hand_over(bp_device*, bp_stream* raw, bp_buffer* handle) {
    Stream& stream = *reinterpret_cast<Stream*>(raw);
    Buffer& buffer = buffer_of(handle);
    Command command(stream);
    command.uses({buffer.memory.get(), 0, buffer.bytes, true});
    check_cl(clEnqueueUnmapMemObject(stream.queue(), buffer.memory.get(), buffer.view_mapping,
                                     command.wait_count(), command.wait_list(), command.event()),
             "clEnqueueUnmapMemObject");
    buffer.view_mapping = nullptr;
    command.done("hand over to the device");
  }

  static void hand_back(bp_device*, bp_stream* raw, bp_buffer* handle) {
    Stream& stream = *reinterpret_cast<Stream*>(raw);
    Buffer& buffer = buffer_of(handle);
    Command command(stream);
    command.uses({buffer.memory.get(), 0, buffer.bytes, true});
    cl_int code = CL_SUCCESS;
    void* const mapping = clEnqueueMapBuffer(
        stream.queue(), buffer.memory.get(), CL_FALSE, buffer.view_flags, 0, buffer.bytes,
        command.wait_count(), command.wait_list(), command.event(), &code);
    if (code != CL_SUCCESS) throw_cl(code, "clEnqueueMapBuffer", "");
    buffer.view_mapping = mapping;
    command.done("hand back to the host");
  }
};

}  // namespace

const bp_host_memory& host_views() { return sdk::host_memory<Views>(); }

}  // namespace backplane::opencl
