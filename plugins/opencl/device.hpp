// An opened OpenCL device: its context, what it can do, its memory and its programs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/common/device_ops/device.hpp"
#include "plugins/common/device_ops/faults.hpp"
#include "plugins/opencl/cl_api.hpp"
#include "plugins/opencl/program_store.hpp"
#include "plugins/opencl/stream.hpp"
#include "plugins/opencl/tuner.hpp"

namespace backplane::opencl {

/// What a device is and can do, read once.
struct DeviceTraits {
  std::string name, vendor, driver, platform;
  bool is_cpu = false;
  bool shares_host_memory = false;
  bool has_double = false;
  bool runs_out_of_order = false;  ///< has queues that do
  std::uint32_t compute_units = 1;
  std::uint32_t vector_width = 4;  ///< floats in a vector register; of meaning on processors
  std::size_t max_group_items = 1;
  std::uint64_t memory_bytes = 0;
  std::uint64_t max_buffer_bytes = 0;
  std::uint64_t alignment = 128;
};

DeviceTraits read_traits(cl_device_id id);

Context make_context(cl_device_id id);

/// An empty `cache_dir` means none on disk.
std::shared_ptr<ProgramStore> make_programs(cl_context context, cl_device_id id,
                                            const DeviceTraits& traits,
                                            const std::string& cache_dir);

/// Memory of the device that is free now: what the driver says (AMD's), what the machine has available where the device
/// shares the host's, else what is left beside `used` bytes of this process.
std::uint64_t free_bytes(cl_device_id id, const DeviceTraits& traits, std::uint64_t used);

/// What a device is opened with; see plugin.cpp for what the options mean.
struct DeviceSettings {
  std::string cache_dir;  ///< empty: no cache on disk
  cl_context user_context = nullptr;
  cl_context kept_context =
      nullptr;  ///< to work in where the user gives none; or null: one of its own
  std::shared_ptr<ProgramStore> kept_programs;  ///< of `kept_context`
  cl_command_queue user_queue = nullptr;
  std::string tiles;  ///< "auto", "vector" or "local"
  bool fusion = true;
  bool tuning = false;        ///< ways of products and convolutions are measured
  bool out_of_order = false;  ///< streams are queues that run out of order
  std::shared_ptr<std::atomic<std::uint64_t>>
      used_bytes;  ///< of the device's memory, by this process
};

/// Memory of the device, or memory of the process that is mapped for it.
struct Buffer {
  Memory memory;
  Queue mapping_queue;  ///< keeps the mapping of pinned memory until the end
  void* host = nullptr;
  std::uint64_t bytes = 0;
  std::shared_ptr<std::atomic<std::uint64_t>>
      used_bytes;               ///< in which `bytes` are counted; or null
  cl_map_flags view_flags = 0;  ///< of a view: how the host maps it while it has it
  void* view_mapping = nullptr;

  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
};

/// Part of a tensor that a command touches.
Access access_of(const bp_tensor& tensor, std::uint64_t offset, std::uint64_t bytes, bool writes);

/// Threads: as bp_device_api says; every function may be called by several at a time.
class Device final : public device_ops::Device {
 public:
  Device(cl_device_id id, const DeviceSettings& settings);

  cl_device_id id() const { return id_; }
  cl_context context() const { return context_.get(); }
  const DeviceTraits& traits() const { return traits_; }
  const DeviceSettings& settings() const { return settings_; }
  ProgramStore& programs() { return *programs_; }
  /// Chooses for nodes that are prepared: what it knows is no part of what the device is.
  Tuner& tuner() const { return tuner_; }
  /// Whether products and convolutions use vectors of one work item (processors) or tiles in local
  /// memory (everything else).
  bool vector_tiles() const;

  std::unique_ptr<Buffer> allocate(bp_memory_kind kind, std::uint64_t bytes);
  std::unique_ptr<Stream> create_stream();
  /// A stream of the device's own, whatever queue the user gave.
  std::unique_ptr<Stream> create_side_stream();
  /// A queue beside all streams, for what has to be done at once.
  cl_command_queue side_queue() const { return side_queue_.get(); }
  /// Whether streams are queues that run out of order.
  bool runs_out_of_order() const { return settings_.out_of_order; }
  /// A queue for a stream; `takes_times`: of its commands.
  Queue make_stream_queue(bool takes_times = false) const;
  void copy(Stream& stream, const bp_tensor& from, const bp_tensor& to);
  /// A BP_COPY_* mode. `peer`: another opened device, or null.
  std::int32_t copy_mode(bp_memory_kind from, bp_memory_kind to, Device* peer) const;
  std::uint64_t max_buffer_bytes() const { return traits_.max_buffer_bytes; }
  /// A BP_NATIVE_* handle.
  std::uint64_t native(std::int32_t kind, Stream* stream, Buffer* buffer) const;

  /// What the numbers mean that kernels leave in a stream's word.
  device_ops::FaultTable& faults() { return faults_; }

  std::unique_ptr<const device_ops::PreparedWork> make_ready(const device_ops::Work& work) override;

 private:
  Queue make_queue(cl_command_queue_properties properties) const;
  std::unique_ptr<Stream> make_stream(Queue queue);

  cl_device_id id_;
  DeviceTraits traits_;
  DeviceSettings settings_;
  Context context_;
  Queue side_queue_;
  std::shared_ptr<ProgramStore> programs_;
  device_ops::FaultTable faults_;
  mutable Tuner tuner_;
};

}  // namespace backplane::opencl
