#include "core/runtime/download.hpp"

#include <cstring>

#include "core/plugin_host/copy_mode.hpp"

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
  const bool pinned = copy_mode(device, BP_MEMORY_DEVICE, BP_MEMORY_HOST) == BP_COPY_NONE;
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
