// Constants in the forms that kernels want, shared by everything in an environment.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/graph/constant.hpp"
#include "core/plan/prepare.hpp"
#include "core/plan/saved_weights.hpp"
#include "core/plugin_host/device.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// A constant on a device: plain, packed, or computed.
struct Weight {
  RuntimeValue value;                ///< describes the memory
  DeviceBuffer buffer;               ///< empty where the memory is the constant's own
  ConstantPtr source;                ///< kept where the memory is the constant's own
  std::shared_ptr<const void> file;  ///< kept where the memory is a saved plan's
  std::string key;  ///< the same in every process, for saved plans; "": not to be saved
};
using WeightPtr = std::shared_ptr<const Weight>;

class WeightStore;

/// A constant that a rewrite added: computed when its elements are first needed, from other constants.
///
/// Threads: all functions may run concurrently.
class LazyConstant {
 public:
  LazyConstant(std::string name, DataType type, std::vector<std::int64_t> dims);
  ~LazyConstant();
  LazyConstant(const LazyConstant&) = delete;
  LazyConstant& operator=(const LazyConstant&) = delete;

  const std::string& name() const { return name_; }
  DataType type() const { return type_; }
  const std::vector<std::int64_t>& dims() const { return dims_; }
  ContentHash hash() const;
  ConstantPtr get(WeightStore& store, bp_threads* threads) const;

  PluginPtr plugin;      ///< whose functions these are
  std::string identity;  ///< of the device: part of the key
  std::string key;
  std::vector<struct ConstantRef> sources;
  void* self = nullptr;
  bp_status* (*compute)(void* self, const bp_pack_ctx* ctx) = nullptr;
  void (*drop)(void* self) = nullptr;

 private:
  std::string name_;
  DataType type_;
  std::vector<std::int64_t> dims_;
};

/// A constant, there or yet to be computed.
struct ConstantRef {
  ConstantPtr known;
  std::shared_ptr<const LazyConstant> lazy;

  explicit operator bool() const { return known != nullptr || lazy != nullptr; }
  DataType type() const { return known != nullptr ? known->type() : lazy->type(); }
  const std::vector<std::int64_t>& dims() const {
    return known != nullptr ? known->dims() : lazy->dims();
  }
  ContentHash hash() const { return known != nullptr ? known->hash() : lazy->hash(); }
  ConstantPtr get(WeightStore& store, bp_threads* threads) const {
    return known != nullptr ? known : lazy->get(store, threads);
  }
};

/// Keeps weights by content; an entry lives as long as somebody holds it.
///
/// Threads: all functions may run concurrently; the same weight is made once.
class WeightStore {
 public:
  /// The constant in the device's memory, plain layout. On host memory it is used where it lies, if aligned.
  WeightPtr plain(const DevicePtr& device, const ConstantRef& constant, bp_threads* threads);
  /// What a kernel asked to be packed.
  WeightPtr packed(const DevicePtr& device, const PackWish& wish,
                   const std::vector<ConstantRef>& sources, bp_threads* threads);
  /// The contents of a lazy constant, on the host.
  WeightPtr computed(const LazyConstant& constant, bp_threads* threads);

  /// Weights are looked for in the file before they are packed or computed, as long as somebody holds it.
  void use_saved(const std::shared_ptr<const SavedWeights>& weights);
  /// How many weights were packed, and how many found in saved plans.
  std::uint64_t packed_count() const { return packed_count_.load(); }
  std::uint64_t restored_count() const { return restored_count_.load(); }

 private:
  struct Cell {
    std::mutex making;                   ///< taken before mutex_: one makes it, the others wait
    std::weak_ptr<const Weight> weight;  ///< under mutex_
  };
  void sweep_cells();
  WeightPtr find_or_make(const std::string& key, const std::function<WeightPtr()>& make);
  /// A weight of `bytes` from a saved plan, on the device; null when there is none.
  std::shared_ptr<Weight> find_saved(const DevicePtr& device, const std::string& key, DataType type,
                                     const std::vector<std::int64_t>& dims, std::uint64_t bytes,
                                     std::uint64_t alignment);

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Cell>> cells_;
  std::size_t sweep_at_ = 64;  ///< so many cells are worth a sweep
  std::vector<std::weak_ptr<const SavedWeights>> saved_;
  std::atomic<std::uint64_t> packed_count_{0}, restored_count_{0};
};

/// Copies a host tensor into device memory and waits: for constants, not for runs.
void upload(const DevicePtr& device, const bp_tensor& from, const bp_tensor& to);
/// The bytes of a weight, from wherever it is; waits.
std::vector<std::byte> download(const DevicePtr& device, const Weight& weight);

}  // namespace backplane::core
