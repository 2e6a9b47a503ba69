// One plugin file and one of its devices, driven through the ABI alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/backplane/check/bare_graph.hpp"

namespace backplane::cli::check {

/// A shared object, opened and queried; started by `start`, ended by the destructor or `stop`. It stays mapped.
class PluginFile {
 public:
  explicit PluginFile(const std::string& path);
  /// Its entry; nothing is asked yet. Throws Broken for what is no plugin.
  static bp_plugin_query_fn open(const std::string& path);
  ~PluginFile() { stop(); }
  PluginFile(const PluginFile&) = delete;
  PluginFile& operator=(const PluginFile&) = delete;

  bp_plugin_query_fn query() const { return query_; }
  const bp_plugin* operator->() const { return plugin_; }
  void start();
  void stop();
  /// The devices of a provider, in its order. Throws Broken, with its reason, where it has none.
  static std::vector<const bp_device_info*> devices(const bp_provider* provider);
  /// Kernels that it shows for devices of somebody's provider.
  std::vector<const bp_kernel_def*> guest_kernels(const std::string& provider) const;

 private:
  bp_plugin_query_fn query_ = nullptr;
  const bp_plugin* plugin_ = nullptr;
  bool is_started_ = false;
};

using OptionValues = std::vector<std::pair<std::string, std::string>>;

/// Where a device works: plain host memory, or buffers of its heaps with one stream. `provider` null: host memory without
/// a device, as guests on the CPU provider's devices have it.
class OpenDevice {
 public:
  OpenDevice(const bp_provider* provider, const bp_device_info* info,
             const OptionValues& values = {});
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  bp_device* raw() const { return device_; }
  const bp_device_api* operator->() const { return api_; }
  const bp_device_info* info() const { return info_; }
  bool has_own_memory() const { return own_memory_; }
  bp_stream* stream() const { return stream_; }
  std::vector<const bp_kernel_def*> kernels() const;
  std::uint64_t alignment(bp_memory_kind kind) const;
  bool has_heap(bp_memory_kind kind) const;
  int copy_mode(bp_memory_kind from, bp_memory_kind to) const;
  /// Waits for the stream; an error of its work.
  Outcome sync() const;

 private:
  struct Heap {
    bp_memory_kind kind;
    std::uint64_t alignment;
  };
  void read_heaps();

  const bp_device_info* info_;
  bp_device* device_ = nullptr;
  const bp_device_api* api_ = nullptr;
  bool own_memory_ = false;
  bp_stream* stream_ = nullptr;
  std::vector<Heap> heaps_;
};

/// Every option of a provider with `values` in the place of defaults.
OptionValues all_options(const bp_provider* provider, const OptionValues& values);

/// Bytes between two guards, in host memory or a buffer of a device. All bytes are filled, the guards with a pattern.
class Memory {
 public:
  /// `device` null: host memory.
  Memory(const OpenDevice* device, bp_memory_kind kind, std::uint64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  /// Fills the inside; waits. `data` has bytes() bytes.
  void write(const void* data);
  void fill(std::uint8_t value);
  std::vector<std::uint8_t> read() const;
  /// What happened to the guards: "" or "the 4 bytes past the end were written".
  std::string damage() const;
  /// A tensor that lies here, described by `shape`.
  Grown<bp_tensor> describe(const Tensor& shape) const;
  /// A run of bytes here, from `offset` of the inside on.
  Grown<bp_tensor> describe_bytes(const std::vector<std::int64_t>& size,
                                  std::uint64_t offset) const;

 private:
  void write_all(const std::vector<std::uint8_t>& all);
  std::vector<std::uint8_t> read_all() const;

  const OpenDevice* device_;
  bp_memory_kind kind_;
  std::uint64_t bytes_;
  std::uint64_t guard_;
  std::unique_ptr<std::uint8_t[]> host_;
  std::uint8_t* host_start_ = nullptr;  ///< of the front guard, for memory of the process
  bp_buffer* buffer_ = nullptr;
};

}  // namespace backplane::cli::check
