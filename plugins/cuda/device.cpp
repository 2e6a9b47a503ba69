#include "plugins/cuda/device.hpp"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "plugins/cuda/few_channels.hpp"
#include "plugins/cuda/launch.hpp"
#include "plugins/cuda/row_products.hpp"
#include "plugins/cuda/short_attention.hpp"
#include "plugins/cuda/tile_convolutions.hpp"
#include "plugins/cuda/tile_products.hpp"

namespace backplane::cuda {
namespace {

/// What vector loads and copies of any kind want, and what the driver gives.
constexpr std::uint64_t kAlignment = 256;
/// Trimming waits for what was freed, and what is allocated afterwards takes the driver's time again: only after so much.
constexpr std::uint64_t kFreedBeforeTrim = std::uint64_t{256} << 20;

void raise(std::atomic<std::uint64_t>& peak, std::uint64_t value) {
  std::uint64_t known = peak.load();
  while (known < value && !peak.compare_exchange_weak(known, value)) {
  }
}

DeviceTraits usable_traits(Driver& driver, int ordinal) {
  DeviceTraits traits = driver.traits(ordinal);
  if (traits.is_prohibited)
    sdk::unsupported(traits.name,
                     " is in compute mode 'prohibited'; nvidia-smi -c DEFAULT allows programs");
  return traits;
}

/// Not an address: another device may be opened where one was that is closed.
std::uint64_t next_number() {
  static std::atomic<std::uint64_t> next{0};
  return next++;
}

/// The driver follows a stream's handle, whatever it is: what is no address would end the process there.
bool may_be_followed(StreamHandle handle) {
  if (reinterpret_cast<std::uintptr_t>(handle) % alignof(std::uint64_t) != 0) return false;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(handle) / page * page;
  unsigned char is_resident = 0;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the beginning of the page that the pointer is in
  return ::mincore(reinterpret_cast<void*>(begin), page, &is_resident) == 0;
}

void check_user_stream(Context& context, StreamHandle handle, const std::string& device) {
  // Two numbers stand for streams in cuda.h: CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
  constexpr std::uintptr_t kLegacy = 1, kPerThread = 2;
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  const auto refuse = [](const std::string& why) {
    sdk::invalid("option 'user_stream' of provider 'cuda': ", why);
  };
  if (number == kPerThread)
    refuse("2 is a stream of each thread's own, and a session works on more than one thread");
  if (number != kLegacy && !may_be_followed(handle))
    refuse(sdk::message(number, " is no stream of this process"));
  if (!context.owns(handle))
    refuse(sdk::message("that stream is not of the primary context of ", device));
}

bool is_on_device(const bp_tensor& tensor) {
  const auto* const buffer = reinterpret_cast<const Buffer*>(tensor.buffer);
  return buffer != nullptr && buffer->host == nullptr;
}

}  // namespace

Address address_of(const bp_tensor& tensor) {
  const auto* const buffer = reinterpret_cast<const Buffer*>(tensor.buffer);
  if (buffer != nullptr) return buffer->address + tensor.offset;
  return reinterpret_cast<Address>(tensor.host_ptr);
}

Address address_of(const device_ops::MemoryRef& ref, const sdk::ComputeContext& ctx) {
  return address_of(device_ops::tensor_of(ctx, ref)) + ref.offset;
}

void upload_packed(const sdk::PackContext& ctx, const void* data, std::uint64_t bytes) {
  const bp_tensor& target = *ctx.target().raw();
  Device& device = *reinterpret_cast<const Buffer*>(target.buffer)->device;
  Stream& stream = *reinterpret_cast<Stream*>(ctx.stream());
  const std::unique_ptr<Buffer> staging = device.allocate(BP_MEMORY_PINNED, bytes);
  std::memcpy(staging->host, data, bytes);
  device.context().copy(stream.handle(), address_of(target), staging->address, bytes);
  stream.sync();
}

Buffer::~Buffer() {
  if (device != nullptr) device->release(*this);
}

Device::Device(Driver& driver, Engine& engine, int ordinal, const DeviceSettings& settings)
    : device_ops::Device({driver.traits(ordinal).name, "", 256, kAlignment}),
      traits_(usable_traits(driver, ordinal)),
      settings_(settings),
      overlaps_launches_(settings.overlap_launches && traits_.has_early_launches),
      number_(next_number()) {
  const std::string architecture = choose_architecture(engine.compiler().architectures(), traits_);
  context_ = driver.open(ordinal);
  if (settings_.user_stream != nullptr)
    check_user_stream(*context_, settings_.user_stream, traits_.name);
  pinned_ = std::make_unique<PinnedStore>(*context_);
  modules_ = std::make_unique<ModuleStore>(*context_, engine.compiler(), architecture,
                                           settings_.cache_dir);
  trials_ = std::make_unique<Trials>(*this, settings_.trials, settings_.tuning);
  product_library_ =
      with_tile_products(*this, with_row_products(*this, engine.open_products(*context_)));
  products_ = std::make_unique<ProductStore>(*product_library_, traits_, settings_.cache_dir,
                                             trials_.get());
  convolution_library_ =
      with_tile_convolutions(*this, with_few_channels(*this, engine.open_convolutions(*context_)));
  convolutions_ = std::make_unique<ConvolutionStore>(convolution_library_.get(), traits_,
                                                     settings_.cache_dir, trials_.get());
  attention_library_ = with_short_attention(*this, engine.open_attentions(*context_));
  attentions_ = std::make_unique<AttentionStore>(attention_library_.get(), traits_,
                                                 settings_.cache_dir, trials_.get());
}

bool Device::launch(StreamHandle stream, const Kernel& kernel, const Extent& groups,
                    const Extent& group, void** arguments, bool may_begin_early) {
  if (may_begin_early && kernel.waits() && overlaps_launches()) {
    if (context_->launch_early(kernel.function(), groups, group, kernel.local_bytes(), stream,
                               arguments))
      return true;
    stop_overlaps("the driver takes no launch of that kind");
  }
  context_->launch(kernel.function(), groups, group, kernel.local_bytes(), stream, arguments);
  return false;
}

void Device::stop_overlaps(const std::string& why) {
  if (!overlaps_launches_.exchange(false)) return;
  const std::string text = sdk::message(traits_.name,
                                        ": kernels begin one after the other from here on, as with "
                                        "overlap_launches=off of provider 'cuda': ",
                                        why);
  sdk::host().log(BP_LOG_WARNING, text.data(), text.size());
}

bool Device::is_captured() {
  if (captures_.load() > 0) return true;
  if (settings_.user_stream == nullptr) return false;
  try {
    return context_->is_captured(settings_.user_stream);
  } catch (const sdk::Error&) {
    return true;  // the legacy stream cannot be asked while another is captured
  }
}

std::uint64_t Device::max_buffer_bytes() const {
  return settings_.memory_limit_bytes != 0 ? settings_.memory_limit_bytes : traits_.memory_bytes;
}

std::unique_ptr<Buffer> Device::allocate(bp_memory_kind kind, std::uint64_t bytes) {
  auto buffer = std::make_unique<Buffer>();
  buffer->bytes = bytes;
  if (kind == BP_MEMORY_PINNED) {
    const PinnedStore::Block block = pinned_->allocate(bytes);
    buffer->host = block.memory;
    buffer->pinned_bytes = block.bytes;
    buffer->address = reinterpret_cast<Address>(buffer->host);
  } else if (kind == BP_MEMORY_DEVICE) {
    buffer->address = allocate_on_device(bytes);
  } else {
    sdk::invalid("provider 'cuda' has no heap of memory kind ", kind);
  }
  buffer->device = this;
  return buffer;
}

Address Device::allocate_on_device(std::uint64_t bytes) {
  const std::uint64_t limit = settings_.memory_limit_bytes;
  const std::uint64_t before = used_bytes_.fetch_add(bytes);
  const auto refuse = [&](const std::string& why) {
    used_bytes_.fetch_sub(bytes);
    throw sdk::Error(BP_OUT_OF_MEMORY,
                     sdk::message(why, ", ", bytes, " bytes on ", traits_.name, ", which has ",
                                  traits_.memory_bytes, "; this device holds ", before));
  };
  if (limit != 0 && (bytes > limit || before > limit - bytes))
    refuse(sdk::message("option 'memory_limit_mb' of provider 'cuda' allows ", limit, " bytes"));
  try {
    const Address memory = retry_trimmed(*context_, [&] { return context_->allocate(bytes); });
    raise(peak_bytes_, before + bytes);
    return memory;
  } catch (const sdk::Error& error) {
    if (error.code() == BP_OUT_OF_MEMORY) refuse(error.what());
    used_bytes_.fetch_sub(bytes);
    throw;
  }
}

void Device::release(Buffer& buffer) noexcept {
  if (buffer.host != nullptr) {
    pinned_->release({buffer.host, buffer.pinned_bytes});
  } else {
    context_->free(buffer.address);
    used_bytes_.fetch_sub(buffer.bytes);
    note_freed(buffer.bytes);
  }
}

void Device::note_freed(std::uint64_t bytes) noexcept {
  if (freed_bytes_.fetch_add(bytes) + bytes < kFreedBeforeTrim) return;
  const std::uint64_t used = used_bytes_.load();
  if (used >= peak_bytes_.load() / 2 || captures_.load() != 0) return;
  freed_bytes_.store(0);
  peak_bytes_.store(used);
  context_->trim();
}

std::unique_ptr<Stream> Device::create_stream() {
  refuse_while_programs_capture();
  return std::make_unique<Stream>(*this, settings_.user_stream);
}

void Device::refuse_while_programs_capture() const {
  if (settings_.user_stream != nullptr && context_->is_captured(settings_.user_stream))
    sdk::unsupported(
        "the program is capturing the stream that option 'user_stream' names; it must "
        "run the session outside of its capture");
}

void Device::keep(std::unique_ptr<PinnedWord> word) {
  const std::lock_guard lock(mutex_);
  kept_words_.push_back(std::move(word));
}

std::int32_t Device::copy_mode(bp_memory_kind from, bp_memory_kind to, Device* peer) {
  if (from != BP_MEMORY_DEVICE && to != BP_MEMORY_DEVICE) return BP_COPY_NONE;
  // The driver would copy plain memory by way of a pinned buffer of its own, and wait for it.
  if (from == BP_MEMORY_HOST || to == BP_MEMORY_HOST) return BP_COPY_NONE;
  // A device that is open twice has one context; each pool is there for the device that it is of.
  if (peer == nullptr || peer->context().native() == context_->native()) return BP_COPY_ASYNC;
  const std::lock_guard lock(mutex_);
  if (peers_.count(peer->number_) == 0) {
    if (!context_->enable_peer(peer->context())) return BP_COPY_NONE;
    peers_.insert(peer->number_);
  }
  return BP_COPY_ASYNC;
}

void Device::upload(const void* data, std::uint64_t bytes, Address to) {
  if (bytes == 0) return;
  const std::unique_ptr<Buffer> staging = allocate(BP_MEMORY_PINNED, bytes);
  std::memcpy(staging->host, data, bytes);
  const std::lock_guard lock(uploading_);
  if (uploads_ == nullptr) uploads_ = std::make_unique<Stream>(*this, nullptr);
  context_->copy(uploads_->handle(), to, staging->address, bytes);
  uploads_->sync();
}

void Device::copy(Stream& stream, const bp_tensor& from, const bp_tensor& to) {
  if (from.bytes != to.bytes)
    sdk::invalid("a copy of ", from.bytes, " bytes to ", to.bytes, " bytes");
  if (from.bytes == 0) return;
  if (!is_on_device(from) && !is_on_device(to))
    sdk::invalid("neither end of a copy is in memory of a CUDA device");
  const TimedWork timed(stream, !is_on_device(from) ? "copy to the device"
                                : !is_on_device(to) ? "copy to the host"
                                                    : "copy");
  context_->copy(stream.handle(), address_of(to), address_of(from), from.bytes);
}

std::uint64_t Device::native(std::int32_t kind, Stream* stream, Buffer* buffer) const {
  switch (kind) {
    case BP_NATIVE_DEVICE:
      return reinterpret_cast<std::uint64_t>(context_->native());
    case BP_NATIVE_STREAM:
      return reinterpret_cast<std::uint64_t>(stream->handle());
    case BP_NATIVE_BUFFER:
      return buffer == nullptr ? 0 : buffer->address;
    default:
      sdk::unsupported("provider 'cuda' has no native handle of kind ", kind);
  }
}

std::unique_ptr<const device_ops::PreparedWork> Device::make_ready(const device_ops::Work& work) {
  return std::make_unique<Launches>(*this, work);
}

}  // namespace backplane::cuda
