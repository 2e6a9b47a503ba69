#include "core/runtime/download.hpp"

#include <cstring>

namespace backplane::core {

RuntimeValuePtr download(Device& device, const RuntimeValue& from) {
  auto to = std::make_shared<RuntimeValue>();
  const bool plain =
      from.description.format == BP_FORMAT_PLAIN && from.description.strides == nullptr;
  if (!plain || from.description.bytes == 0) {
    to->set_tensor(from.element(), from.dims);
    return to;
  }
  to->set_owned_tensor(from.element(), from.dims);
  bp_copy_caps caps{};
  caps.struct_size = sizeof(caps);
  device.check(
      device.call(device.api().copy_caps, BP_MEMORY_DEVICE, BP_MEMORY_HOST, nullptr, &caps),
      "could not tell how it copies");
  const bool pinned = caps.mode == BP_COPY_NONE;
  DeviceBuffer staging;
  bp_tensor target = to->description;
  if (pinned) {
    staging = DeviceBuffer(device.shared_from_this(), BP_MEMORY_PINNED, target.bytes,
                           device.alignment(BP_MEMORY_PINNED));
    target.buffer = staging.raw();
    target.memory = BP_MEMORY_PINNED;
    target.host_ptr = staging.host_ptr();
  }
  Stream stream(device.shared_from_this());
  device.check(device.call(device.api().copy, stream.raw(), &from.description, &target),
               "could not copy to the host");
  if (auto error = stream.drain()) throw error->within(device.label());
  if (pinned) std::memcpy(to->description.host_ptr, staging.host_ptr(), target.bytes);
  return to;
}

}  // namespace backplane::core
