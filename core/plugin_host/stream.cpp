#include <limits>
#include <utility>

#include "core/plugin_host/device.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

constexpr std::uint64_t kForEver = std::numeric_limits<std::uint64_t>::max();

}  // namespace

Stream::Stream(DevicePtr device) : device_(std::move(device)) {
  if (device_->on_host_memory()) return;
  device_->throw_if_lost();
  const bp_device_api& api = device_->api();
  device_->check(device_->call(api.stream_create, &raw_), "creating a stream");
  try {
    device_->check(device_->call(api.fence_create, &fence_), "creating a fence");
    if (raw_ == nullptr || fence_ == nullptr) {
      throw Error(Code::Internal, text("device '", device_->label(),
                                       "': it gave no stream or no fence, and no error"));
    }
  } catch (...) {
    if (fence_ != nullptr) device_->tell("fence_destroy", api.fence_destroy, fence_);
    if (raw_ != nullptr) device_->tell("stream_destroy", api.stream_destroy, raw_);
    throw;
  }
}

Stream::~Stream() {
  if (raw_ == nullptr || process_is_ending()) return;
  const bp_device_api& api = device_->api();
  // The host promises drained streams (rule 6 of the ABI); an error of the work was somebody's who
  // asked, or nobody's.
  status_free(device_->call(api.stream_sync, raw_));
  device_->tell("fence_destroy", api.fence_destroy, fence_);
  device_->tell("stream_destroy", api.stream_destroy, raw_);
}

std::uint64_t Stream::signal() {
  if (raw_ == nullptr) return 0;
  device_->check(device_->call(device_->api().fence_signal, raw_, fence_, last_mark_ + 1),
                 "signalling a fence");
  return ++last_mark_;
}

void Stream::wait(const Stream& other, std::uint64_t mark) {
  if (other.raw_ == nullptr || mark == 0) return;
  if (raw_ != nullptr && other.device_ == device_) {
    device_->check(device_->call(device_->api().fence_wait, raw_, other.fence_, mark),
                   "waiting for a fence");
    return;
  }
  Device& owner = *other.device_;
  owner.check(owner.call(owner.api().fence_host_wait, other.fence_, mark, kForEver),
              "waiting on the host for a fence");
}

void Stream::host_wait(std::uint64_t mark) {
  if (raw_ == nullptr || mark == 0) return;
  device_->check(device_->call(device_->api().fence_host_wait, fence_, mark, kForEver),
                 "waiting on the host for a fence");
}

std::optional<Error> Stream::drain() {
  if (raw_ == nullptr) return std::nullopt;
  bp_status* status = device_->call(device_->api().stream_sync, raw_);
  if (status == nullptr) return std::nullopt;
  Error error = take_error(status);
  if (error.code() == Code::DeviceLost) device_->mark_lost(error.message());
  return error.within("device '" + device_->label() + "'");
}

}  // namespace backplane::core
