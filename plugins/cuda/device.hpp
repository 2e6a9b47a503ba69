// An opened CUDA device: its context, memory and kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "plugins/common/device_ops/device.hpp"
#include "plugins/common/device_ops/faults.hpp"
#include "plugins/cuda/convolution_store.hpp"
#include "plugins/cuda/engine.hpp"
#include "plugins/cuda/module_store.hpp"
#include "plugins/cuda/pinned_store.hpp"
#include "plugins/cuda/precision.hpp"
#include "plugins/cuda/product_store.hpp"
#include "plugins/cuda/stream.hpp"

namespace backplane::cuda {

/// What a device is opened with; see provider.cpp for what the options mean.
struct DeviceSettings {
  std::string cache_dir;                 ///< empty: no cache on disk
  std::uint64_t memory_limit_bytes = 0;  ///< 0: none
  StreamHandle user_stream = nullptr;
  bool fusion = true;
  PrecisionRules precision;  ///< of nodes of float32
  ImageLayout layout = ImageLayout::kAuto;
  GeluForm gelu = GeluForm::kExact;
  std::uint64_t attention_bytes = std::uint64_t{32} << 20;  ///< of scores at once
  bool tuning = true;            ///< what libraries offer is run, and the fastest taken
  bool overlap_launches = true;  ///< where the device and its driver do that
  TrialLimits trials;
};

/// Memory of the device, or pinned memory of the process.
struct Buffer {
  Device* device = nullptr;
  Address address = 0;
  void* host = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t pinned_bytes = 0;  ///< of the block that `host` is

  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
};

/// Where a tensor begins: in a buffer of a device, or pinned.
Address address_of(const bp_tensor& tensor);
/// The same of a run's tensor that is no table.
Address address_of(const device_ops::MemoryRef& ref, const sdk::ComputeContext& ctx);

/// Writes host memory to the target of a pack request, and waits.
void upload_packed(const sdk::PackContext& ctx, const void* data, std::uint64_t bytes);

/// Threads: as bp_device_api says; every function may be called by several at a time.
class Device final : public device_ops::Device {
 public:
  /// Errors: BP_UNSUPPORTED (compute capability), BP_INVALID_ARGUMENT (the user's stream), the driver's.
  Device(Driver& driver, Engine& engine, int ordinal, const DeviceSettings& settings);

  Context& context() { return *context_; }
  const DeviceTraits& traits() const { return traits_; }
  const DeviceSettings& settings() const { return settings_; }
  PinnedStore& pinned() { return *pinned_; }
  ModuleStore& modules() { return *modules_; }
  ProductStore& products() { return *products_; }
  ConvolutionStore& convolutions() { return *convolutions_; }
  AttentionStore& attentions() { return *attentions_; }
  /// Whether work of the program's, or of a plan, is being captured: then some calls are forbidden.
  bool is_captured();
  /// Whether a kernel may begin before those before it have ended; see Stream::launch.
  bool overlaps_launches() const { return overlaps_launches_.load(std::memory_order_relaxed); }
  /// Puts a kernel on a stream, to begin early where that and the kernel allow it; whether it does. Errors: as Context's.
  bool launch(StreamHandle stream, const Kernel& kernel, const Extent& groups, const Extent& group,
              void** arguments, bool may_begin_early);
  /// From here on none does: the driver has refused it, as `why` says, which is logged once.
  void stop_overlaps(const std::string& why);
  /// What the numbers mean that kernels leave in a stream's word.
  device_ops::FaultTable& faults() { return faults_; }

  std::unique_ptr<Buffer> allocate(bp_memory_kind kind, std::uint64_t bytes);
  void release(Buffer& buffer) noexcept;
  std::uint64_t used_bytes() const { return used_bytes_.load(); }
  std::uint64_t max_buffer_bytes() const;
  std::unique_ptr<Stream> create_stream();
  /// Throws BP_UNSUPPORTED while the program captures its own stream: work that is put there becomes the program's graph
  /// and is not done, and a wait for it spoils that.
  void refuse_while_programs_capture() const;
  /// Around each capture of a stream: meanwhile the pool is left alone, and nothing is chosen by time.
  void begin_capture() { captures_.fetch_add(1); }
  void end_capture() { captures_.fetch_sub(1); }
  /// Keeps a word that work on some stream may still read or write.
  void keep(std::unique_ptr<PinnedWord> word);
  void copy(Stream& stream, const bp_tensor& from, const bp_tensor& to);
  /// Writes host memory to the device's, and waits.
  void upload(const void* data, std::uint64_t bytes, Address to);
  /// A BP_COPY_* mode. `peer`: another opened device, or null.
  std::int32_t copy_mode(bp_memory_kind from, bp_memory_kind to, Device* peer);
  /// A BP_NATIVE_* handle.
  std::uint64_t native(std::int32_t kind, Stream* stream, Buffer* buffer) const;
  std::unique_ptr<const device_ops::PreparedWork> make_ready(const device_ops::Work& work) override;

 private:
  Address allocate_on_device(std::uint64_t bytes);
  /// Gives what the pool keeps back to the device where much was freed and little is in use.
  void note_freed(std::uint64_t bytes) noexcept;

  DeviceTraits traits_;
  DeviceSettings settings_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<PinnedStore> pinned_;
  std::unique_ptr<ModuleStore> modules_;
  std::unique_ptr<Trials> trials_;
  std::unique_ptr<ProductLibrary> product_library_;
  std::unique_ptr<ProductStore> products_;
  std::unique_ptr<ConvolutionLibrary> convolution_library_;
  std::unique_ptr<ConvolutionStore> convolutions_;
  std::unique_ptr<AttentionLibrary> attention_library_;
  std::unique_ptr<AttentionStore> attentions_;
  device_ops::FaultTable faults_;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<std::uint64_t> peak_bytes_{0}, freed_bytes_{0};  ///< since the pool was trimmed
  std::atomic<int> captures_{0};
  std::atomic<bool> overlaps_launches_;
  std::mutex mutex_, uploading_;
  std::unique_ptr<Stream> uploads_;  // null before the first
  std::vector<std::unique_ptr<PinnedWord>> kept_words_;
  const std::uint64_t number_;     // in the order in which devices were opened
  std::set<std::uint64_t> peers_;  // by number: whose memory this one can use
};

}  // namespace backplane::cuda
