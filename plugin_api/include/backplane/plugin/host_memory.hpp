// Backplane SDK: the interface "bp.host_memory" of a provider whose devices share the host's memory. plugin.hpp does not
// include it: who wants it does.
//
//   struct Views {
//     static sdk::HostMemoryCaps caps(bp_device* device);  // may throw unsupported()
//     static bp_buffer* view(bp_device* device, void* memory, std::uint64_t bytes, sdk::ViewAccess access);
//     static void view_free(bp_device* device, bp_buffer* view) noexcept;
//     static void hand_over(bp_device* device, bp_stream* stream, bp_buffer* view);
//     static void hand_back(bp_device* device, bp_stream* stream, bp_buffer* view);
//   };
//   get_interface: if (std::strcmp(id, BP_HOST_MEMORY_INTERFACE) == 0) return &sdk::host_memory<Views>();
#pragma once

#include <cstdint>

#include "backplane/plugin/error.hpp"
#include "backplane/plugin_api/optional/host_memory.h"

namespace backplane::sdk {

/// See bp_host_memory_caps.
struct HostMemoryCaps {
  std::uint64_t alignment = 64;
  std::uint64_t least_bytes = 0;
};

/// What a device does with a view: see BP_VIEW_READ, BP_VIEW_WRITE.
enum class ViewAccess : std::int32_t { Read = BP_VIEW_READ, Write = BP_VIEW_WRITE };

/// The table over functions that throw; lives as long as the plugin.
template <class Views>
__attribute__((visibility("hidden"))) const bp_host_memory& host_memory() {
  static const bp_host_memory kTable = [] {
    bp_host_memory table = abi_struct<bp_host_memory>();
    table.caps = [](bp_device* device, bp_host_memory_caps* out) {
      return guarded([&] {
        if (!BP_HAS(bp_host_memory_caps, out, least_bytes))
          invalid("bp_host_memory_caps is too small");
        const HostMemoryCaps caps = Views::caps(device);
        out->alignment = caps.alignment;
        out->least_bytes = caps.least_bytes;
      });
    };
    table.view = [](bp_device* device, void* memory, std::uint64_t bytes, std::int32_t access,
                    bp_buffer** out) {
      return guarded([&] {
        if (access != BP_VIEW_READ && access != BP_VIEW_WRITE)
          invalid("there is no access ", access, " of a view");
        *out = Views::view(device, memory, bytes, static_cast<ViewAccess>(access));
      });
    };
    table.view_free = [](bp_device* device, bp_buffer* view) { Views::view_free(device, view); };
    table.hand_over = [](bp_device* device, bp_stream* stream, bp_buffer* view) {
      return guarded([&] { Views::hand_over(device, stream, view); });
    };
    table.hand_back = [](bp_device* device, bp_stream* stream, bp_buffer* view) {
      return guarded([&] { Views::hand_back(device, stream, view); });
    };
    return table;
  }();
  return kTable;
}

}  // namespace backplane::sdk
