#include "core/plugin_host/device.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "core/base/error.hpp"
#include "core/plugin_host/copy_mode.hpp"
#include "core/plugin_host/host_memory.hpp"
#include "core/plugin_host/imported_memory.hpp"
#include "core/plugin_host/optional_interface.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// A larger alignment is a mistake that would waste every block.
constexpr std::uint64_t kMaxAlignment = 1u << 20;

std::string hex(const std::uint8_t (&uuid)[16]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (const std::uint8_t byte : uuid) {
    digits += kDigits[byte >> 4];
    digits += kDigits[byte & 15];
  }
  return digits;
}

/// All that a packed constant depends on besides its sources and key.
std::string make_identity(const Plugin& plugin, const bp_provider& provider,
                          const bp_device_info& info, const OptionList& options) {
  std::string identity =
      text(plugin.name(), '|', plugin.version(), '|', provider.name, '|', provider.version, '|',
           plugin_text(info.name), '|', plugin_text(info.driver), '|', hex(info.uuid));
  for (const auto& [name, value] : options)
    identity.append("|").append(name).append("=").append(value);
  return identity;
}

bp_str view(const std::string& string) { return {string.data(), string.size()}; }

}  // namespace

DevicePtr Device::open(PluginPtr plugin, const bp_provider* provider, const bp_device_info* info,
                       std::string label, const OptionList& options, bp_threads* threads) {
  DevicePtr device(new Device());
  device->plugin_ = std::move(plugin);
  device->provider_ = provider;
  device->info_ = info;
  device->label_ = std::move(label);
  device->provider_name_ = provider->name;
  device->options_ = complete_options(*provider, options);
  device->identity_ = make_identity(*device->plugin_, *provider, *info, device->options_);

  std::vector<bp_key_value> pairs;
  for (const auto& [name, value] : device->options_) pairs.push_back({view(name), view(value)});
  bp_open_ctx ctx{};
  ctx.struct_size = sizeof(ctx);
  ctx.options = pairs.data();
  ctx.option_count = pairs.size();
  ctx.threads = threads;
  const std::string what = "device '" + device->label_ + "'";
  const bp_device_api* api = nullptr;
  bp_device* raw = nullptr;
  check_status(
      call_plugin(what, [&] { return provider->open(provider->self, info, &ctx, &raw, &api); }),
      what + " cannot be opened");
  if (raw == nullptr) throw Error(Code::Internal, what + ": open gave no device and no error");
  try {
    check_device_api(api, *info);
  } catch (const Error& error) {
    // Only a device with a sound table can be closed; the other one is lost.
    throw Error(Code::Internal, error.message()).within(what);
  }
  device->api_ = api;
  device->raw_ = raw;
  if (!device->on_host_memory()) {
    device->read_heaps();
    check_copies(*device);
    device->host_memory_ = find_host_memory(*device);
    device->read_plan_capture();
    device->import_memory_ = find_import_memory(*device);
  }
  return device;
}

Device::~Device() {
  if (raw_ != nullptr && !process_is_ending()) tell("close", api_->close);
}

void Device::read_heaps() {
  const auto collect = [](void* sink_ctx, const bp_heap* heap) {
    return status_of([&] {
      auto* heaps = static_cast<std::vector<Heap>*>(sink_ctx);
      check_struct(heap, BP_SIZE_V1(bp_heap, max_bytes), "a heap");
      if (!std::has_single_bit(heap->alignment) || heap->alignment > kMaxAlignment) {
        invalid("a heap's alignment of ", heap->alignment, " is no power of two up to ",
                kMaxAlignment);
      }
      if (heaps->size() >= kMaxCount) invalid("more heaps than there can be");
      heaps->push_back({heap->kind, heap->alignment, heap->max_bytes});
    });
  };
  const std::string what = "device '" + label_ + "'";
  const bp_heap_sink sink = collect;
  check_status(call(api_->heaps, &heaps_, sink), what + ": its heaps");
  if (heap(BP_MEMORY_DEVICE) == nullptr) {
    throw Error(Code::Internal, what + ": it has no heap of BP_MEMORY_DEVICE");
  }
}

void Device::read_plan_capture() {
  const std::string what = "device '" + label_ + "'";
  const auto* const table = static_cast<const bp_plan_capture*>(
      find_interface(*provider_, what, BP_PLAN_CAPTURE_INTERFACE,
                     BP_SIZE_V1(bp_plan_capture, release), "bp_plan_capture"));
  if (table == nullptr) return;
  if (table->begin == nullptr || table->end == nullptr || table->abandon == nullptr ||
      table->replay == nullptr || table->release == nullptr)
    throw Error(Code::Internal, what + ": its bp_plan_capture lacks a function");
  plan_capture_ = table;
}

const Device::Heap* Device::heap(bp_memory_kind kind) const {
  const auto found = std::find_if(heaps_.begin(), heaps_.end(),
                                  [&](const Heap& candidate) { return candidate.kind == kind; });
  return found == heaps_.end() ? nullptr : &*found;
}

std::uint64_t Device::alignment(bp_memory_kind kind) const {
  const Heap* found = heap(kind);
  return found == nullptr ? kHostAlignment : found->alignment;
}

bool Device::has_pinned() const { return heap(BP_MEMORY_PINNED) != nullptr; }

std::uint64_t Device::max_buffer_bytes(bp_memory_kind kind) const {
  const Heap* found = heap(kind);
  return found == nullptr || found->max_bytes == 0 ? std::numeric_limits<std::uint64_t>::max()
                                                   : found->max_bytes;
}

void Device::mark_lost(const std::string& why) {
  const std::lock_guard lock(lost_mutex_);
  if (is_lost_.load(std::memory_order_relaxed)) return;  // the first failure is the cause
  lost_ = why;
  is_lost_.store(true, std::memory_order_release);
}

void Device::throw_if_lost() const {
  if (!is_lost_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(lost_mutex_);
  throw Error(Code::DeviceLost, text("device '", label_, "' is lost (", lost_,
                                     "); close the sessions that use it and open them again"));
}

void Device::log_thrown_in(const char* name) const noexcept {
  try {
    log_thrown(text("device '", label_, "': ", name).c_str());
  } catch (const std::exception&) {  // out of memory for the line
  }
}

void Device::throw_status(bp_status* status, const char* what) {
  const Error error = take_error(status);
  if (error.code() == Code::DeviceLost) mark_lost(error.message());
  throw error.within(text("device '", label_, "': ", what));
}

}  // namespace backplane::core
