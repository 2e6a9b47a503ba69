#include "core/plugin_host/copy_mode.hpp"

#include "core/plugin_host/status.hpp"

namespace backplane::core {

std::int32_t copy_mode(Device& device, bp_memory_kind from, bp_memory_kind to, const Device* peer) {
  bp_copy_caps caps{};
  caps.struct_size = sizeof(caps);
  bp_device* const other = peer != nullptr ? peer->raw() : nullptr;
  device.check(device.call(device.api().copy_caps, from, to, other, &caps),
               "could not tell how it copies");
  return caps.mode == BP_COPY_SYNC || caps.mode == BP_COPY_ASYNC ? caps.mode : BP_COPY_NONE;
}

void check_copies(Device& device) {
  const auto has_way = [&](bool to_device, bp_memory_kind other) {
    return (to_device ? copy_mode(device, other, BP_MEMORY_DEVICE)
                      : copy_mode(device, BP_MEMORY_DEVICE, other)) != BP_COPY_NONE;
  };
  for (const bool to_device : {true, false}) {
    if (has_way(to_device, BP_MEMORY_HOST)) continue;
    const std::string direction = to_device ? "to its memory" : "from its memory";
    const std::string what = text("device '", device.label(), "': copy_caps has no way ", direction,
                                  to_device ? " from BP_MEMORY_HOST" : " to BP_MEMORY_HOST");
    if (!device.has_pinned()) {
      throw Error(Code::Internal, what + ", and it has no heap of BP_MEMORY_PINNED to go through");
    }
    if (!has_way(to_device, BP_MEMORY_PINNED))
      throw Error(Code::Internal, what + ", and none with BP_MEMORY_PINNED either");
  }
}

}  // namespace backplane::core
