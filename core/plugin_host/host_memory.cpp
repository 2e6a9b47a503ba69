#include "core/plugin_host/host_memory.hpp"

#include <algorithm>
#include <bit>

#include "backplane/plugin_api/optional/host_memory.h"
#include "core/plugin_host/optional_interface.hpp"
#include "core/plugin_host/plugin_call.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// Memory that is aligned more than this is not to be had from anybody.
constexpr std::uint64_t kMaxViewAlignment = 1u << 20;

}  // namespace

static_assert(static_cast<std::int32_t>(ViewAccess::Read) == BP_VIEW_READ);
static_assert(static_cast<std::int32_t>(ViewAccess::Write) == BP_VIEW_WRITE);

std::optional<HostMemory> find_host_memory(const Device& device) {
  const std::string what = "device '" + device.label() + "'";
  const auto* const table = static_cast<const bp_host_memory*>(
      find_interface(device.provider(), what, BP_HOST_MEMORY_INTERFACE,
                     BP_SIZE_V1(bp_host_memory, hand_back), "bp_host_memory"));
  if (table == nullptr) return std::nullopt;
  if (table->caps == nullptr || table->view == nullptr || table->view_free == nullptr ||
      table->hand_over == nullptr || table->hand_back == nullptr)
    invalid(what, ": its bp_host_memory lacks a function");
  bp_host_memory_caps caps{};
  caps.struct_size = sizeof(caps);
  bp_status* const status = device.call(table->caps, &caps);
  if (status != nullptr && status_code(status) == BP_UNSUPPORTED) {
    status_free(status);
    return std::nullopt;
  }
  check_status(status, what + ": which host memory it views");
  if (!std::has_single_bit(caps.alignment) || caps.alignment > kMaxViewAlignment)
    invalid(what, ": an alignment of ", caps.alignment, " of the memory that it views is no power ",
            "of two up to ", kMaxViewAlignment);
  return HostMemory{table, caps.alignment, std::max<std::uint64_t>(caps.least_bytes, 1)};
}

HostView::HostView(DevicePtr device, const Extent& extent, bp_status*& status)
    : device_(std::move(device)), extent_(extent) {
  status = device_->call(device_->host_memory()->table->view, extent.memory, extent.bytes,
                         static_cast<std::int32_t>(extent.access), &raw_);
  if (status == nullptr && raw_ == nullptr)
    status = make_status(Code::Internal, "bp_host_memory::view gave no buffer and no error");
}

HostView::~HostView() {
  if (raw_ != nullptr && !process_is_ending())
    device_->tell("view_free", device_->host_memory()->table->view_free, raw_);
}

bp_status* HostView::hand_over(bp_stream* stream) {
  return device_->call(device_->host_memory()->table->hand_over, stream, raw_);
}

bp_status* HostView::hand_back(bp_stream* stream) {
  return device_->call(device_->host_memory()->table->hand_back, stream, raw_);
}

}  // namespace backplane::core
