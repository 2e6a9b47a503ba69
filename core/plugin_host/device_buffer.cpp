#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <sys/mman.h>
#include <utility>

#include "core/base/error.hpp"
#include "core/plugin_host/device.hpp"

namespace backplane::core {
namespace {

/// From this size on, host memory is aligned and marked for huge pages: fewer misses of the TLB.
constexpr std::uint64_t kHugeBytes = 4u << 20;
constexpr std::uint64_t kHugePage = 2u << 20;

std::atomic<std::uint64_t> buffers_allocated{0};

std::string label_of(const DevicePtr& device) {
  return device == nullptr ? "the host" : "device '" + device->label() + "'";
}

}  // namespace

std::uint64_t device_allocation_count() {
  return buffers_allocated.load(std::memory_order_relaxed);
}

DeviceBuffer::DeviceBuffer(DevicePtr device, bp_memory_kind kind, std::uint64_t bytes,
                           std::uint64_t alignment)
    : device_(std::move(device)), bytes_(bytes) {
  if (bytes == 0) return;
  if (device_ == nullptr || device_->on_host_memory() || kind == BP_MEMORY_HOST) {
    allocate_host(alignment);
  } else {
    allocate_on_device(kind, alignment);
  }
  buffers_allocated.fetch_add(1, std::memory_order_relaxed);
}

void DeviceBuffer::allocate_host(std::uint64_t alignment) {
  const bool huge = bytes_ >= kHugeBytes;
  const std::uint64_t least = std::max({alignment, kHostAlignment, huge ? kHugePage : 0});
  void* memory = nullptr;
  if (posix_memalign(&memory, least, bytes_) != 0) {
    throw Error(Code::OutOfMemory,
                text(label_of(device_), " has no memory for a buffer of ", bytes_, " bytes"));
  }
  // Advice: a kernel without huge pages refuses it, and nothing is lost.
  if (huge) madvise(memory, bytes_, MADV_HUGEPAGE);
  host_ = static_cast<std::byte*>(memory);
}

void DeviceBuffer::allocate_on_device(bp_memory_kind kind, std::uint64_t alignment) {
  device_->throw_if_lost();
  if (bytes_ > device_->max_buffer_bytes(kind)) {
    throw Error(Code::OutOfMemory,
                text(label_of(device_), " has no buffers of ", bytes_, " bytes; the largest are ",
                     device_->max_buffer_bytes(kind)));
  }
  const bp_device_api& api = device_->api();
  const std::uint64_t least = std::max(alignment, device_->alignment(kind));
  device_->check(device_->call(api.buffer_alloc, kind, bytes_, least, &raw_),
                 "allocating a buffer");
  if (raw_ == nullptr) {
    throw Error(Code::Internal, label_of(device_) + ": buffer_alloc gave no buffer and no error");
  }
  if (kind != BP_MEMORY_PINNED) return;
  host_ = static_cast<std::byte*>(device_->tell("buffer_host_ptr", api.buffer_host_ptr, raw_));
  if (host_ == nullptr) {
    device_->tell("buffer_free", api.buffer_free, raw_);
    throw Error(Code::Internal,
                label_of(device_) + ": a pinned buffer has no address in the process");
  }
}

DeviceBuffer::~DeviceBuffer() {
  if (raw_ != nullptr) {
    if (!process_is_ending()) device_->tell("buffer_free", device_->api().buffer_free, raw_);
  } else {
    std::free(host_);
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  DeviceBuffer taken(std::move(other));
  swap(taken);
  return *this;
}

void DeviceBuffer::swap(DeviceBuffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(raw_, other.raw_);
  std::swap(host_, other.host_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace backplane::core
