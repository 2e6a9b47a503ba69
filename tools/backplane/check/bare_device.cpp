#include "tools/backplane/check/bare_device.hpp"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>

#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

constexpr std::uint64_t kHostAlignment = 64;
/// More than the difference between most shapes of the recipes: work on another shape's size stays in there.
constexpr std::uint64_t kGuardBytes = 8192;
constexpr std::uint8_t kGuard = 0xC3;

/// A sink that collects pointers.
template <class Entry>
bp_status* collect(void* list, const Entry* entry) {
  static_cast<std::vector<const Entry*>*>(list)->push_back(entry);
  return nullptr;
}

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

Tensor byte_shape(std::uint64_t bytes) {
  return {BP_UINT8, {static_cast<std::int64_t>(bytes)}, {}};
}

/// A buffer of pinned memory for one transfer.
class Pinned {
 public:
  Pinned(const OpenDevice& device, std::uint64_t bytes) : device_(device) {
    enter(text("buffer_alloc of ", bytes, " bytes of pinned memory"));
    need([&] {
      return device->buffer_alloc(device.raw(), BP_MEMORY_PINNED, bytes,
                                  device.alignment(BP_MEMORY_PINNED), &buffer_);
    });
    host_ = static_cast<std::uint8_t*>(
        across([&] { return device->buffer_host_ptr(device.raw(), buffer_); }));
    if (host_ == nullptr) throw Broken("buffer_host_ptr of a pinned buffer is NULL");
  }
  ~Pinned() { device_->buffer_free(device_.raw(), buffer_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::uint8_t* host() const { return host_; }
  bp_buffer* raw() const { return buffer_; }

 private:
  const OpenDevice& device_;
  bp_buffer* buffer_ = nullptr;
  std::uint8_t* host_ = nullptr;
};

void copy_and_wait(const OpenDevice& device, const bp_tensor& from, const bp_tensor& to,
                   const char* what) {
  enter(text("copy of ", from.bytes, " bytes ", what));
  need([&] { return device->copy(device.raw(), device.stream(), &from, &to); });
  const Outcome done = device.sync();
  if (!done.is_ok()) throw Broken(current_step() + " failed: " + described(done));
}

}  // namespace

bp_plugin_query_fn PluginFile::open(const std::string& path) {
  enter("loading " + path);
  void* library = across([&] { return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); });
  if (library == nullptr) throw Broken(text("it cannot be loaded: ", ::dlerror()));
  const auto query = reinterpret_cast<bp_plugin_query_fn>(::dlsym(library, BP_PLUGIN_QUERY_SYMBOL));
  if (query == nullptr) throw Broken(text("it exports no ", BP_PLUGIN_QUERY_SYMBOL));
  return query;
}

PluginFile::PluginFile(const std::string& path) : query_(open(path)) {
  Grown<bp_query_args> args;
  args.base.host_major = BP_ABI_MAJOR;
  args.base.host_minor = BP_ABI_MINOR;
  args.base.host_version = {"0", 1};
  enter(BP_PLUGIN_QUERY_SYMBOL);
  const bp_code code = across([&] { return query_(&args.base, &plugin_); });
  if (code != BP_OK || plugin_ == nullptr)
    throw Broken(text(BP_PLUGIN_QUERY_SYMBOL, " gives code ", code,
                      plugin_ == nullptr ? " and no plugin" : ""));
}

void PluginFile::start() {
  if (is_started_) return;
  enter("init");
  need([&] { return plugin_->init(plugin_->self, host_api()); });
  is_started_ = true;
}

void PluginFile::stop() {
  if (!is_started_) return;
  is_started_ = false;
  enter("shutdown");
  if (plugin_->shutdown != nullptr) plugin_->shutdown(plugin_->self);
}

std::vector<const bp_device_info*> PluginFile::devices(const bp_provider* provider) {
  std::vector<const bp_device_info*> list;
  enter(text("enumerate of provider ", provider->name));
  need([&] { return provider->enumerate(provider->self, &list, collect<bp_device_info>); });
  return list;
}

std::vector<const bp_kernel_def*> PluginFile::guest_kernels(const std::string& provider) const {
  std::vector<const bp_kernel_def*> list;
  if (!BP_HAS_FN(bp_plugin, plugin_, kernels_for)) return list;
  enter("kernels_for " + provider);
  need([&] {
    return plugin_->kernels_for(plugin_->self, provider.c_str(), &list, collect<bp_kernel_def>);
  });
  return list;
}

OptionValues all_options(const bp_provider* provider, const OptionValues& values) {
  OptionValues all;
  for (std::uint64_t i = 0; i < provider->option_count; ++i) {
    const bp_option& option = *provider->options[i];
    std::string value = option.default_value == nullptr ? "" : option.default_value;
    for (const auto& [name, given] : values) {
      if (name == option.name) value = given;
    }
    all.emplace_back(option.name, value);
  }
  return all;
}

OpenDevice::OpenDevice(const bp_provider* provider, const bp_device_info* info,
                       const OptionValues& values)
    : info_(info) {
  if (provider == nullptr) return;
  const OptionValues options = all_options(provider, values);
  std::vector<bp_key_value> pairs;
  for (const auto& [name, value] : options)
    pairs.push_back({{name.data(), name.size()}, {value.data(), value.size()}});
  Grown<bp_open_ctx> ctx;
  ctx.base.options = pairs.data();
  ctx.base.option_count = pairs.size();
  ctx.base.threads = host_threads();
  enter(text("open of ", info->name));
  need([&] { return provider->open(provider->self, info, &ctx.base, &device_, &api_); });
  if (device_ == nullptr || api_ == nullptr)
    throw Broken(current_step() + " succeeds and gives no device");
  own_memory_ = (info->flags & BP_DEVICE_HOST_MEMORY) == 0;
  if (!own_memory_) return;
  read_heaps();
  enter("stream_create");
  need([&] { return api_->stream_create(device_, &stream_); });
}

OpenDevice::~OpenDevice() {
  if (device_ == nullptr) return;
  if (stream_ != nullptr) api_->stream_destroy(device_, stream_);
  enter("close");
  api_->close(device_);
}

void OpenDevice::read_heaps() {
  enter("heaps");
  need([&] {
    return api_->heaps(device_, &heaps_, [](void* list, const bp_heap* heap) -> bp_status* {
      static_cast<std::vector<Heap>*>(list)->push_back(
          {heap->kind, std::max<std::uint64_t>(heap->alignment, 1)});
      return nullptr;
    });
  });
}

std::vector<const bp_kernel_def*> OpenDevice::kernels() const {
  std::vector<const bp_kernel_def*> list;
  if (device_ == nullptr) return list;
  enter("kernels");
  need([&] { return api_->kernels(device_, &list, collect<bp_kernel_def>); });
  return list;
}

std::uint64_t OpenDevice::alignment(bp_memory_kind kind) const {
  for (const Heap& heap : heaps_) {
    if (heap.kind == kind) return heap.alignment;
  }
  return kHostAlignment;
}

bool OpenDevice::has_heap(bp_memory_kind kind) const {
  return std::any_of(heaps_.begin(), heaps_.end(),
                     [&](const Heap& heap) { return heap.kind == kind; });
}

int OpenDevice::copy_mode(bp_memory_kind from, bp_memory_kind to) const {
  Grown<bp_copy_caps> caps;
  enter(text("copy_caps from kind ", from, " to kind ", to));
  need([&] { return api_->copy_caps(device_, from, to, nullptr, &caps.base); });
  return caps.base.mode;
}

Outcome OpenDevice::sync() const {
  if (stream_ == nullptr) return {};
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): enter() changes what it refers to
  const std::string work = current_step();
  enter("stream_sync after " + work);
  Outcome outcome = ask([&] { return api_->stream_sync(device_, stream_); });
  enter(work);
  return outcome;
}

Memory::Memory(const OpenDevice* device, bp_memory_kind kind, std::uint64_t bytes)
    : device_(device != nullptr && device->has_own_memory() && kind != BP_MEMORY_HOST ? device
                                                                                      : nullptr),
      kind_(device_ != nullptr ? kind : BP_MEMORY_HOST),
      bytes_(bytes) {
  const std::uint64_t alignment = device_ != nullptr ? device_->alignment(kind) : kHostAlignment;
  guard_ = rounded_up(kGuardBytes, alignment);
  const std::uint64_t total = guard_ + bytes_ + guard_;
  if (device_ != nullptr) {
    const OpenDevice& owner = *device_;
    enter(text("buffer_alloc of ", total, " bytes"));
    need([&] { return owner->buffer_alloc(owner.raw(), kind, total, alignment, &buffer_); });
    if (kind == BP_MEMORY_PINNED) {
      host_start_ = static_cast<std::uint8_t*>(
          across([&] { return owner->buffer_host_ptr(owner.raw(), buffer_); }));
      if (host_start_ == nullptr) throw Broken("buffer_host_ptr of a pinned buffer is NULL");
    }
  } else {
    host_ = std::make_unique_for_overwrite<std::uint8_t[]>(total + kHostAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(host_.get());
    host_start_ = host_.get() + (rounded_up(address, kHostAlignment) - address);
  }
  fill(0);
}

Memory::~Memory() {
  if (buffer_ != nullptr) (*device_)->buffer_free(device_->raw(), buffer_);
}

void Memory::write(const void* data) {
  std::vector<std::uint8_t> all(guard_ + bytes_ + guard_, kGuard);
  if (bytes_ > 0) std::memcpy(all.data() + guard_, data, bytes_);
  write_all(all);
}

void Memory::fill(std::uint8_t value) {
  const std::vector<std::uint8_t> inside(bytes_, value);
  write(inside.data());
}

void Memory::write_all(const std::vector<std::uint8_t>& all) {
  if (host_start_ != nullptr) {
    std::memcpy(host_start_, all.data(), all.size());
    return;
  }
  const OpenDevice& device = *device_;
  const Tensor shape = byte_shape(all.size());
  Grown<bp_tensor> to = check::describe(shape, nullptr);
  to.base.buffer = buffer_;
  to.base.memory = kind_;
  Grown<bp_tensor> from = check::describe(shape, all.data());
  if (device.copy_mode(BP_MEMORY_HOST, kind_) != BP_COPY_NONE) {
    copy_and_wait(device, from.base, to.base, "from host memory to the device");
    return;
  }
  const Pinned staging(device, all.size());
  std::memcpy(staging.host(), all.data(), all.size());
  from.base.buffer = staging.raw();
  from.base.host_ptr = staging.host();
  from.base.memory = BP_MEMORY_PINNED;
  copy_and_wait(device, from.base, to.base, "from pinned memory to the device");
}

std::vector<std::uint8_t> Memory::read_all() const {
  std::vector<std::uint8_t> all(guard_ + bytes_ + guard_);
  if (host_start_ != nullptr) {
    std::memcpy(all.data(), host_start_, all.size());
    return all;
  }
  const OpenDevice& device = *device_;
  const Tensor shape = byte_shape(all.size());
  Grown<bp_tensor> from = check::describe(shape, nullptr);
  from.base.buffer = buffer_;
  from.base.memory = kind_;
  Grown<bp_tensor> to = check::describe(shape, all.data());
  if (device.copy_mode(kind_, BP_MEMORY_HOST) != BP_COPY_NONE) {
    copy_and_wait(device, from.base, to.base, "from the device to host memory");
    return all;
  }
  const Pinned staging(device, all.size());
  to.base.buffer = staging.raw();
  to.base.host_ptr = staging.host();
  to.base.memory = BP_MEMORY_PINNED;
  copy_and_wait(device, from.base, to.base, "from the device to pinned memory");
  std::memcpy(all.data(), staging.host(), all.size());
  return all;
}

std::vector<std::uint8_t> Memory::read() const {
  const std::vector<std::uint8_t> all = read_all();
  const auto start = all.begin() + static_cast<std::ptrdiff_t>(guard_);
  return {start, start + static_cast<std::ptrdiff_t>(bytes_)};
}

std::string Memory::damage() const {
  const std::vector<std::uint8_t> all = read_all();
  const auto is_whole = [&](const std::uint8_t* first) {  // by more than a byte at a time
    return *first == kGuard && std::memcmp(first, first + 1, guard_ - 1) == 0;
  };
  if (is_whole(all.data()) && is_whole(all.data() + guard_ + bytes_)) return "";
  std::uint64_t before = 0, past = 0;
  for (std::uint64_t i = 0; i < guard_; ++i) {
    if (all[i] != kGuard) before = std::max(before, guard_ - i);
    if (all[guard_ + bytes_ + i] != kGuard) past = i + 1;
  }
  if (past > 0) return text("bytes were written up to ", past, " past the end");
  if (before > 0) return text("bytes were written from ", before, " before the start on");
  return "";
}

Grown<bp_tensor> Memory::describe(const Tensor& shape) const {
  Grown<bp_tensor> grown =
      check::describe(shape, host_start_ == nullptr ? nullptr : host_start_ + guard_);
  grown.base.buffer = buffer_;
  grown.base.offset = buffer_ == nullptr ? 0 : guard_;
  grown.base.memory = device_ == nullptr ? BP_MEMORY_HOST : kind_;
  return grown;
}

Grown<bp_tensor> Memory::describe_bytes(const std::vector<std::int64_t>& size,
                                        std::uint64_t offset) const {
  Grown<bp_tensor> grown;
  bp_tensor& raw = grown.base;
  raw.bytes = static_cast<std::uint64_t>(size.at(0));
  raw.host_ptr = host_start_ == nullptr ? nullptr : host_start_ + guard_ + offset;
  raw.dims = size.data();
  raw.rank = 1;
  raw.dtype = BP_UINT8;
  raw.memory = device_ == nullptr ? BP_MEMORY_HOST : kind_;
  raw.buffer = buffer_;
  raw.offset = buffer_ == nullptr ? 0 : guard_ + offset;
  return grown;
}

}  // namespace backplane::cli::check
