// The device as the ABI shows it.
#include "plugins/opencl/device_api.hpp"

#include <memory>

#include "op_table.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/opencl/device.hpp"
#include "plugins/opencl/rewrite/rewrite.hpp"

namespace backplane::opencl {
namespace {

/// A bp_device is the base, which the shared operators see.
Device& device_of(bp_device* handle) {
  return static_cast<Device&>(*reinterpret_cast<device_ops::Device*>(handle));
}
Stream& stream_of(bp_stream* handle) { return *reinterpret_cast<Stream*>(handle); }
Fence& fence_of(bp_fence* handle) { return *reinterpret_cast<Fence*>(handle); }

bp_status* show_kernels(bp_device*, void* sink_ctx, bp_kernel_sink sink) {
  return sdk::show_kernels(kernels(), sink_ctx, sink);
}

void close(bp_device* handle) { delete reinterpret_cast<device_ops::Device*>(handle); }

bp_status* heaps(bp_device* handle, void* sink_ctx, bp_heap_sink sink) {
  const DeviceTraits& traits = device_of(handle).traits();
  for (const bp_memory_kind kind : {BP_MEMORY_DEVICE, BP_MEMORY_PINNED}) {
    bp_heap heap = sdk::abi_struct<bp_heap>();
    heap.kind = kind;
    heap.alignment = traits.alignment;
    heap.max_bytes = traits.max_buffer_bytes;
    if (bp_status* status = sink(sink_ctx, &heap)) return status;
  }
  return nullptr;
}

bp_status* buffer_alloc(bp_device* handle, bp_memory_kind kind, std::uint64_t bytes, std::uint64_t,
                        bp_buffer** out) {
  return sdk::guarded([&] {
    *out = reinterpret_cast<bp_buffer*>(device_of(handle).allocate(kind, bytes).release());
  });
}

void buffer_free(bp_device*, bp_buffer* buffer) { delete reinterpret_cast<Buffer*>(buffer); }

void* buffer_host_ptr(bp_device*, bp_buffer* buffer) {
  return reinterpret_cast<Buffer*>(buffer)->host;
}

bp_status* stream_create(bp_device* handle, bp_stream** out) {
  return sdk::guarded(
      [&] { *out = reinterpret_cast<bp_stream*>(device_of(handle).create_stream().release()); });
}

void stream_destroy(bp_device*, bp_stream* stream) { delete reinterpret_cast<Stream*>(stream); }

bp_status* stream_sync(bp_device*, bp_stream* stream) {
  return sdk::guarded([&] { stream_of(stream).sync(); });
}

bp_status* fence_create(bp_device* handle, bp_fence** out) {
  return sdk::guarded([&] {
    *out = reinterpret_cast<bp_fence*>(std::make_unique<Fence>(device_of(handle)).release());
  });
}

void fence_destroy(bp_device*, bp_fence* fence) { delete reinterpret_cast<Fence*>(fence); }

bp_status* fence_signal(bp_device*, bp_stream* stream, bp_fence* fence, std::uint64_t value) {
  return sdk::guarded([&] { fence_of(fence).signal(stream_of(stream), value); });
}

bp_status* fence_wait(bp_device*, bp_stream* stream, bp_fence* fence, std::uint64_t value) {
  return sdk::guarded([&] { fence_of(fence).wait(stream_of(stream), value); });
}

bp_status* fence_host_wait(bp_device*, bp_fence* fence, std::uint64_t value,
                           std::uint64_t timeout_ns) {
  return sdk::guarded([&] {
    if (!fence_of(fence).host_wait(value, timeout_ns)) {
      throw sdk::Error(BP_TIMEOUT,
                       sdk::message("the fence did not reach ", value, " in ", timeout_ns, " ns"));
    }
  });
}

bp_status* copy_caps(bp_device* handle, bp_memory_kind from, bp_memory_kind to,
                     const bp_device* peer, bp_copy_caps* out) {
  return sdk::guarded([&] {
    Device& device = device_of(handle);
    // Two opened devices have contexts of their own, and memory belongs to a context.
    const bool is_peer = peer != nullptr && peer != handle;
    out->mode = is_peer ? BP_COPY_NONE : device.copy_mode(from, to);
    out->bytes_per_ns = 0;
    out->latency_ns = 0;
  });
}

bp_status* copy(bp_device* handle, bp_stream* stream, const bp_tensor* from, const bp_tensor* to) {
  return sdk::guarded([&] { device_of(handle).copy(stream_of(stream), *from, *to); });
}

bp_status* rewrite_nodes(bp_device* handle, const bp_graph* graph, bp_rewrite* editor,
                         const bp_rewrite_api* api) {
  return sdk::guarded([&] {
    sdk::Rewrite edit(editor, api);
    rewrite(device_of(handle), sdk::Graph(graph), edit);
  });
}

bp_status* native(bp_device* handle, std::int32_t kind, bp_stream* stream, bp_buffer* buffer,
                  std::uint64_t* out) {
  return sdk::guarded([&] {
    switch (kind) {
      case BP_NATIVE_DEVICE:
        *out = reinterpret_cast<std::uint64_t>(device_of(handle).context());
        return;
      case BP_NATIVE_STREAM:
        *out = reinterpret_cast<std::uint64_t>(stream_of(stream).queue());
        return;
      case BP_NATIVE_BUFFER:
        *out =
            buffer == nullptr
                ? 0
                : reinterpret_cast<std::uint64_t>(reinterpret_cast<Buffer*>(buffer)->memory.get());
        return;
      default:
        sdk::unsupported("provider 'opencl' has no native handle of kind ", kind);
    }
  });
}

bp_device_api make_table() {
  bp_device_api api = sdk::abi_struct<bp_device_api>();
  api.kernels = show_kernels;
  api.close = close;
  api.heaps = heaps;
  api.buffer_alloc = buffer_alloc;
  api.buffer_free = buffer_free;
  api.buffer_host_ptr = buffer_host_ptr;
  api.stream_create = stream_create;
  api.stream_destroy = stream_destroy;
  api.stream_sync = stream_sync;
  api.fence_create = fence_create;
  api.fence_destroy = fence_destroy;
  api.fence_signal = fence_signal;
  api.fence_wait = fence_wait;
  api.fence_host_wait = fence_host_wait;
  api.copy_caps = copy_caps;
  api.copy = copy;
  api.rewrite = rewrite_nodes;
  api.native = native;
  return api;
}

}  // namespace

const bp_device_api* device_api() {
  static const bp_device_api kTable = make_table();
  return &kTable;
}

const sdk::KernelList& kernels() {
  static const sdk::KernelList list = [] {
    sdk::KernelList joined = device_ops::shared_kernels();
    for (const sdk::KernelList& family : all_kernels())
      joined.insert(joined.end(), family.begin(), family.end());
    return joined;
  }();
  return list;
}

}  // namespace backplane::opencl
