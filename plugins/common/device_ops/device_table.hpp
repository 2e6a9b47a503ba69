// The ABI's table of functions for a device with memory, streams and fences of its own, over a provider's classes.
#pragma once

#include <cstdint>
#include <memory>

#include "plugins/common/device_ops/device.hpp"

namespace backplane::device_ops {

/// `Types` names Device (derived from device_ops::Device), Buffer (with `host`), Stream and Fence, and has the
/// static functions `kernels()` and `rewrite(device, graph, edit)`. What is called of them stands below.
template <class Types>
struct DeviceTable {
  using OwnDevice = typename Types::Device;
  using Buffer = typename Types::Buffer;
  using Stream = typename Types::Stream;
  using Fence = typename Types::Fence;

  /// A bp_device is the base, which the shared operators see.
  static OwnDevice* device_of(const bp_device* handle) {
    const auto* const base = reinterpret_cast<const Device*>(handle);
    return static_cast<OwnDevice*>(const_cast<Device*>(base));
  }
  static bp_device* handle_of(std::unique_ptr<OwnDevice> device) {
    Device* const base = device.release();
    return reinterpret_cast<bp_device*>(base);
  }
  static Stream& stream_of(bp_stream* handle) { return *reinterpret_cast<Stream*>(handle); }
  static Fence& fence_of(bp_fence* handle) { return *reinterpret_cast<Fence*>(handle); }

  static void close(bp_device* handle) { delete device_of(handle); }

  static bp_status* heaps(bp_device* handle, void* sink_ctx, bp_heap_sink sink) {
    for (const bp_memory_kind kind : {BP_MEMORY_DEVICE, BP_MEMORY_PINNED}) {
      bp_heap heap = sdk::abi_struct<bp_heap>();
      heap.kind = kind;
      heap.alignment = device_of(handle)->limits().alignment;
      heap.max_bytes = device_of(handle)->max_buffer_bytes();
      if (bp_status* status = sink(sink_ctx, &heap)) return status;
    }
    return nullptr;
  }

  static void fill_memory(bp_device_api& api) {
    api.buffer_alloc = [](bp_device* handle, bp_memory_kind kind, std::uint64_t bytes,
                          std::uint64_t, bp_buffer** out) {
      return sdk::guarded([&] {
        *out = reinterpret_cast<bp_buffer*>(device_of(handle)->allocate(kind, bytes).release());
      });
    };
    api.buffer_free = [](bp_device*, bp_buffer* buffer) {
      delete reinterpret_cast<Buffer*>(buffer);
    };
    api.buffer_host_ptr = [](bp_device*, bp_buffer* buffer) {
      return reinterpret_cast<Buffer*>(buffer)->host;
    };
    api.copy_caps = [](bp_device* handle, bp_memory_kind from, bp_memory_kind to,
                       const bp_device* peer, bp_copy_caps* out) {
      return sdk::guarded([&] {
        OwnDevice* const other = peer == nullptr ? nullptr : device_of(peer);
        out->mode = device_of(handle)->copy_mode(from, to, other);
        out->bytes_per_ns = 0;
        out->latency_ns = 0;
      });
    };
    api.copy = [](bp_device* handle, bp_stream* stream, const bp_tensor* from,
                  const bp_tensor* to) {
      return sdk::guarded([&] { device_of(handle)->copy(stream_of(stream), *from, *to); });
    };
  }

  static void fill_streams(bp_device_api& api) {
    api.stream_create = [](bp_device* handle, bp_stream** out) {
      return sdk::guarded([&] {
        *out = reinterpret_cast<bp_stream*>(device_of(handle)->create_stream().release());
      });
    };
    api.stream_destroy = [](bp_device*, bp_stream* stream) {
      delete reinterpret_cast<Stream*>(stream);
    };
    api.stream_sync = [](bp_device*, bp_stream* stream) {
      return sdk::guarded([&] { stream_of(stream).sync(); });
    };
    api.fence_create = [](bp_device* handle, bp_fence** out) {
      return sdk::guarded([&] {
        *out = reinterpret_cast<bp_fence*>(std::make_unique<Fence>(*device_of(handle)).release());
      });
    };
    api.fence_destroy = [](bp_device*, bp_fence* fence) { delete reinterpret_cast<Fence*>(fence); };
    api.fence_signal = [](bp_device*, bp_stream* stream, bp_fence* fence, std::uint64_t value) {
      return sdk::guarded([&] { fence_of(fence).signal(stream_of(stream), value); });
    };
    api.fence_wait = [](bp_device*, bp_stream* stream, bp_fence* fence, std::uint64_t value) {
      return sdk::guarded([&] { fence_of(fence).wait(stream_of(stream), value); });
    };
    api.fence_host_wait = [](bp_device*, bp_fence* fence, std::uint64_t value,
                             std::uint64_t timeout_ns) {
      return sdk::guarded([&] {
        if (!fence_of(fence).host_wait(value, timeout_ns)) {
          throw sdk::Error(BP_TIMEOUT, sdk::message("the fence did not reach ", value, " in ",
                                                    timeout_ns, " ns"));
        }
      });
    };
  }

  static bp_device_api make() {
    bp_device_api api = sdk::abi_struct<bp_device_api>();
    api.kernels = [](bp_device*, void* sink_ctx, bp_kernel_sink sink) {
      return sdk::show_kernels(Types::kernels(), sink_ctx, sink);
    };
    api.close = close;
    api.heaps = heaps;
    fill_memory(api);
    fill_streams(api);
    api.rewrite = [](bp_device* handle, const bp_graph* graph, bp_rewrite* editor,
                     const bp_rewrite_api* table) {
      return sdk::guarded([&] {
        sdk::Rewrite edit(editor, table);
        Types::rewrite(*device_of(handle), sdk::Graph(graph), edit);
      });
    };
    api.native = [](bp_device* handle, std::int32_t kind, bp_stream* stream, bp_buffer* buffer,
                    std::uint64_t* out) {
      return sdk::guarded([&] {
        *out = device_of(handle)->native(kind, reinterpret_cast<Stream*>(stream),
                                         reinterpret_cast<Buffer*>(buffer));
      });
    };
    return api;
  }
};

}  // namespace backplane::device_ops
