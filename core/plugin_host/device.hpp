// Opened devices, their memory, streams and kernels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin_api.h"
#include "core/base/error.hpp"
#include "core/plugin_host/plugin.hpp"
#include "core/plugin_host/plugin_call.hpp"
#include "core/plugin_host/provider_options.hpp"
#include "core/plugin_host/thread_pool.hpp"

struct bp_host_memory;
struct bp_import_memory;
struct bp_plan_capture;

namespace backplane::core {

/// Of host memory, and of devices that say nothing, in bytes.
inline constexpr std::uint64_t kHostAlignment = 64;

class Device;
using DevicePtr = std::shared_ptr<Device>;

/// Which memory of the host a device works on without a copy: see host_memory.hpp.
struct HostMemory {
  const bp_host_memory* table = nullptr;
  std::uint64_t alignment = kHostAlignment;  ///< of the memory's address
  std::uint64_t least_bytes = 1;             ///< of less, copies are cheaper
};

/// Memory of a device: RAII over bp_buffer, or aligned host memory for a device on host memory (also
/// for no device, and for BP_MEMORY_HOST of any). Its contents are undefined.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// `alignment` is a power of two; of no bytes there is no memory. Throws OutOfMemory naming device
  /// and size, DeviceLost, or what the provider said.
  DeviceBuffer(DevicePtr device, bp_memory_kind kind, std::uint64_t bytes, std::uint64_t alignment);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  bp_buffer* raw() const { return raw_; }        ///< null for plain host memory
  std::byte* host_ptr() const { return host_; }  ///< null where the host cannot touch it
  std::uint64_t bytes() const { return bytes_; }
  explicit operator bool() const { return bytes_ != 0; }

 private:
  void allocate_host(std::uint64_t alignment);
  void allocate_on_device(bp_memory_kind kind, std::uint64_t alignment);
  void swap(DeviceBuffer& other) noexcept;
  DevicePtr device_;
  bp_buffer* raw_ = nullptr;
  std::byte* host_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// A kernel that a device offers: of its own registry or a guest's.
struct RegisteredKernel {
  const bp_kernel_def* def = nullptr;
  PluginPtr plugin;             ///< who registered it
  bool guest = false;           ///< registered by another plugin: create gets no device
  bool first = false;           ///< of a session's custom registries: before the provider's own
  bool last = false;            ///< for what the provider's own kernels do not take: behind them
  bool is_provisional = false;  ///< see KernelRegistry::add_provisionally, which sets it
  int rank = 0;                 ///< order of registration, later is larger; set by KernelRegistry
};

/// The kernels of a device, by operator, best first: session's custom registries before the
/// provider's own, those behind it last, then priority, then the later registered.
///
/// Threads: const functions may run concurrently.
class KernelRegistry {
 public:
  /// Checks the definition, by itself and against the schemas: domain and operator known (a private
  /// "backplane.*" domain needs no schema), type parameters real, since range, indices. A broken one
  /// is refused with a message, kept in refused(). So is one about types of a constraint that nobody knows, which refuse
  /// nothing.
  /// A type parameter must exist in a version that the kernel covers; its constraint holds in the
  /// versions that have it.
  void add(const RegisteredKernel& kernel, const SchemaRegistry& schemas, bool first);
  /// As `add`, for providers that came with this library: their kernels are of hundreds of operators, and
  /// a model has a few. Those of an operator are checked against its schemas when it is first looked for; what is refused
  /// then is told to the function of `check_later_against`, which comes before. Not after a `find`.
  void add_provisionally(const RegisteredKernel& kernel);
  using Warn = std::function<void(const std::string& refused)>;
  /// `schemas` outlives this.
  void check_later_against(const SchemaRegistry& schemas, Warn warn);
  /// Candidates for an operator; empty when there is none.
  const std::vector<RegisteredKernel>& find(const std::string& domain,
                                            const std::string& op_type) const;
  std::size_t size() const;
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  struct Operator {
    mutable std::vector<RegisteredKernel> kernels;
    mutable std::once_flag checked;  ///< the provisional ones of them
  };
  void insert(const RegisteredKernel& kernel, bool first);
  void check_provisional(const Operator& one) const;

  std::map<std::pair<std::string, std::string>, Operator> operators_;
  const SchemaRegistry* schemas_ = nullptr;  ///< for provisional kernels, as is warn_
  Warn warn_;
  std::vector<std::string> refused_;
  int registered_ = 0;
};

/// An opened device.
///
/// Lifetime: holds its plugin. Closed when the last shared_ptr goes.
/// Threads:  as the ABI says of each function.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Opens a device that the provider showed, with options, which are checked first (unknown name:
  /// nearest known one; value out of range) and completed by their defaults. `label` is how users
  /// call it: the provider's name, "name:1" for its second device.
  static DevicePtr open(PluginPtr plugin, const bp_provider* provider, const bp_device_info* info,
                        std::string label, const OptionList& options, bp_threads* threads);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& label() const { return label_; }
  /// Every option of the provider with its value.
  const OptionList& options() const { return options_; }
  const std::string& provider_name() const { return provider_name_; }
  const bp_provider& provider() const { return *provider_; }
  const bp_device_info& info() const { return *info_; }
  const bp_device_api& api() const { return *api_; }
  bp_device* raw() const { return raw_; }
  const PluginPtr& plugin() const { return plugin_; }
  bool on_host_memory() const { return (info_->flags & BP_DEVICE_HOST_MEMORY) != 0; }
  bool is_host_evaluator() const { return (info_->flags & BP_DEVICE_HOST_EVALUATOR) != 0; }
  /// Alignment of a tensor inside a buffer of the kind; 64 on host memory.
  std::uint64_t alignment(bp_memory_kind kind) const;
  bool has_pinned() const;
  /// Null for a device that views none.
  const HostMemory* host_memory() const { return host_memory_ ? &*host_memory_ : nullptr; }
  /// How its streams record work and do it again; null where they do not.
  const bp_plan_capture* plan_capture() const { return plan_capture_; }
  /// How it works on memory that the program made: see imported_memory.hpp. Null where it does not.
  const bp_import_memory* import_memory() const { return import_memory_; }
  /// A device that was lost is only closed.
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }
  /// The largest buffer of the kind; UINT64_MAX when no limit is known.
  std::uint64_t max_buffer_bytes(bp_memory_kind kind) const;
  /// Provider, version, device and options: what packed constants are keyed by.
  const std::string& identity() const { return identity_; }
  /// After BP_DEVICE_LOST: every later use throws.
  void mark_lost(const std::string& why);
  void throw_if_lost() const;
  /// Calls a function of one of its tables: `device.call(device.api().copy, stream, &from, &to)`. What it throws comes back
  /// as a status. Costs what the call does.
  template <class... Params, class... Args>
  bp_status* call(bp_status* (*function)(bp_device*, Params...), Args... args) const noexcept {
    return call_for_status([&] { return function(raw_, args...); });
  }
  /// One that has no status to give: what it throws is logged, and the result then `Result()`. `name` is the function's.
  template <class Result, class... Params, class... Args>
  Result tell(const char* name, Result (*function)(bp_device*, Params...),
              Args... args) const noexcept {
    try {
      return function(raw_, args...);
    } catch (...) {
      log_thrown_in(name);
    }
    return Result();
  }
  /// Throws what a function of this device returned, naming device and `what`, and frees it; marks the
  /// device as lost where that is what it says. Success costs nothing.
  void check(bp_status* status, const char* what) {
    if (status != nullptr) throw_status(status, what);
  }

 private:
  struct Heap {
    bp_memory_kind kind;
    std::uint64_t alignment;
    std::uint64_t max_bytes;
  };
  Device() = default;
  void read_heaps();
  void read_plan_capture();
  const Heap* heap(bp_memory_kind kind) const;
  void log_thrown_in(const char* name) const noexcept;
  [[noreturn]] void throw_status(bp_status* status, const char* what);

  PluginPtr plugin_;
  const bp_provider* provider_ = nullptr;
  const bp_device_info* info_ = nullptr;
  const bp_device_api* api_ = nullptr;
  bp_device* raw_ = nullptr;
  const bp_plan_capture* plan_capture_ = nullptr;
  const bp_import_memory* import_memory_ = nullptr;
  std::string label_, provider_name_, identity_;
  OptionList options_;
  std::vector<Heap> heaps_;
  std::optional<HostMemory> host_memory_;
  std::atomic<bool> is_lost_{false};
  mutable std::mutex lost_mutex_;
  std::string lost_;
};

/// The number of buffers that all devices ever allocated: the steady state adds none.
std::uint64_t device_allocation_count();

/// An in-order queue of a device with the fence that counts what was put on it. For a device without
/// streams all functions do nothing. Functions throw what the device says, marked lost where it is.
/// Threads: one at a time; host_wait and drain may run while another stream waits for this one.
class Stream {
 public:
  explicit Stream(DevicePtr device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bp_stream* raw() const { return raw_; }
  Device& device() const { return *device_; }
  /// Puts a mark on the stream; the result is what to wait for.
  std::uint64_t signal();
  /// This stream goes on when `other` has passed the mark; the host waits where they are not of the
  /// same device.
  void wait(const Stream& other, std::uint64_t mark);
  /// The calling thread goes on when the mark is passed. Throws what the work before it failed with.
  void host_wait(std::uint64_t mark);
  /// Waits for everything; returns the first error of the work instead of throwing.
  std::optional<Error> drain();

 private:
  DevicePtr device_;
  bp_stream* raw_ = nullptr;
  bp_fence* fence_ = nullptr;
  std::uint64_t last_mark_ = 0;
};

}  // namespace backplane::core
