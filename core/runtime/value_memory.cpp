#include "core/runtime/value_memory.hpp"

#include <cstring>
#include <utility>

#include "core/plugin_host/copy_mode.hpp"

namespace backplane::core {
namespace {

void own_on_device(RuntimeValue& value, DataType type, const std::vector<std::int64_t>& dims,
                   Device& device) {
  value.set_tensor(type, dims);
  auto held = std::static_pointer_cast<DeviceBuffer>(value.memory);
  const std::uint64_t bytes = value.description.bytes;
  // Two owners are this function's variable and the value.
  if (bytes > 0 && (held == nullptr || held->bytes() < bytes || held.use_count() > 2)) {
    held.reset();
    value.memory.reset();
    held = std::make_shared<DeviceBuffer>(device.shared_from_this(), BP_MEMORY_DEVICE, bytes,
                                          device.alignment(BP_MEMORY_DEVICE));
    value.memory = held;
  }
  value.description.buffer = held != nullptr ? held->raw() : nullptr;
  value.description.memory = BP_MEMORY_DEVICE;
}

}  // namespace

void own_tensor(RuntimeValue& value, DataType type, const std::vector<std::int64_t>& dims,
                int space, const DeviceSet& devices) {
  if (space == kHostSpace) {
    value.set_owned_tensor(type, dims);
  } else {
    own_on_device(value, type, dims, devices.at(DeviceSet::device_of_space(space)));
  }
}

void move_value(RuntimeValue& from, RuntimeValue& to) {
  std::swap(from.memory, to.memory);
  if (!from.is_tensor()) {
    if (from.kind == BP_VALUE_ABSENT) {
      to.set_absent();
    } else {
      to.set_type(from.type);
      to.elements.swap(from.elements);
    }
    return;
  }
  const bp_tensor description = from.description;
  to.set_tensor(from.element(), from.dims);
  to.strings.swap(from.strings);
  to.description.buffer = description.buffer;
  to.description.offset = description.offset;
  to.description.host_ptr = description.host_ptr;
  to.description.memory = description.memory;
  from.description.buffer = nullptr;
  from.description.host_ptr = nullptr;
}

void point_into(RuntimeValue& value, const bp_tensor& whole, std::uint64_t offset) {
  value.description.buffer = whole.buffer;
  value.description.offset = whole.buffer != nullptr ? whole.offset + offset : 0;
  value.description.host_ptr =
      whole.host_ptr != nullptr ? static_cast<std::byte*>(whole.host_ptr) + offset : nullptr;
  value.description.memory = whole.memory;
}

/// What copying on one device takes.
struct SpaceCopies::Lane {
  Stream stream;
  bool direct = false;      ///< the device copies within its memory
  bool from_plain = false;  ///< it copies from and to memory that is not pinned
  DeviceBuffer staging;
  explicit Lane(const DevicePtr& device) : stream(device) {}
};

SpaceCopies::SpaceCopies(const DeviceSet& devices)
    : devices_(devices), lanes_(devices.devices.size()) {}

SpaceCopies::~SpaceCopies() {
  for (const auto& lane : lanes_) {
    if (lane != nullptr) lane->stream.drain();
  }
}

SpaceCopies::Lane& SpaceCopies::lane(int device) {
  std::unique_ptr<Lane>& made = lanes_[static_cast<std::size_t>(device)];
  if (made != nullptr) return *made;
  Device& executing = devices_.at(device);
  made = std::make_unique<Lane>(devices_.entry(device).device);
  made->direct = copy_mode(executing, BP_MEMORY_DEVICE, BP_MEMORY_DEVICE) != BP_COPY_NONE;
  made->from_plain = copy_mode(executing, BP_MEMORY_DEVICE, BP_MEMORY_HOST) != BP_COPY_NONE &&
                     copy_mode(executing, BP_MEMORY_HOST, BP_MEMORY_DEVICE) != BP_COPY_NONE;
  return *made;
}

void SpaceCopies::copy(const bp_tensor& from, const bp_tensor& to, int space) {
  if (from.bytes == 0) return;
  if (space == kHostSpace) {
    std::memcpy(to.host_ptr, from.host_ptr, from.bytes);
    return;
  }
  const int device = DeviceSet::device_of_space(space);
  Lane& way = lane(device);
  if (!way.direct) {
    copy_over_host(way, device, from, to);
    return;
  }
  Device& executing = devices_.at(device);
  executing.check(executing.call(executing.api().copy, way.stream.raw(), &from, &to), "a copy");
  if (auto error = way.stream.drain()) throw std::move(*error);
}

void SpaceCopies::copy_over_host(Lane& way, int device, const bp_tensor& from,
                                 const bp_tensor& to) {
  Device& executing = devices_.at(device);
  const bp_memory_kind kind = way.from_plain ? BP_MEMORY_HOST : BP_MEMORY_PINNED;
  if (way.staging.bytes() < from.bytes) {
    way.staging = DeviceBuffer();
    way.staging =
        DeviceBuffer(devices_.entry(device).device, kind, from.bytes, executing.alignment(kind));
  }
  bp_tensor staged = from;
  staged.buffer = way.staging.raw();
  staged.offset = 0;
  staged.host_ptr = way.staging.host_ptr();
  staged.memory = kind;
  for (const auto& [source, target] : {std::pair(&from, static_cast<const bp_tensor*>(&staged)),
                                       std::pair(static_cast<const bp_tensor*>(&staged), &to)}) {
    executing.check(executing.call(executing.api().copy, way.stream.raw(), source, target),
                    "a copy");
    if (auto error = way.stream.drain()) throw std::move(*error);
  }
}

void SpaceCopies::copy_value(const RuntimeValue& from, RuntimeValue& to, int space) {
  if (from.kind == BP_VALUE_ABSENT) {
    to.set_absent();
    return;
  }
  if (!from.is_tensor()) {
    to.set_type(from.type);
    to.elements = from.elements;
    return;
  }
  own_tensor(to, from.element(), from.dims, space, devices_);
  to.strings = from.strings;
  copy(from.description, to.description, space);
}

}  // namespace backplane::core
