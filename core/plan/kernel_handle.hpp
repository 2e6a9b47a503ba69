// Kernels and prepared kernels, owned.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "backplane/plugin_api.h"
#include "core/plugin_host/device.hpp"

namespace backplane::core {

/// A created kernel; keeps its plugin and device alive.
class KernelHandle {
 public:
  KernelHandle() = default;
  KernelHandle(DevicePtr device, PluginPtr plugin, const bp_kernel_def* def, bp_kernel* kernel)
      : device_(std::move(device)), plugin_(std::move(plugin)), def_(def), kernel_(kernel) {}
  KernelHandle(KernelHandle&& other) noexcept { swap(other); }
  KernelHandle& operator=(KernelHandle&& other) noexcept {
    KernelHandle taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~KernelHandle() {
    if (kernel_ != nullptr && def_->destroy != nullptr)
      call_without_status(def_->name, [&] { def_->destroy(kernel_); });
  }

  explicit operator bool() const { return kernel_ != nullptr; }
  const bp_kernel_def& def() const { return *def_; }
  bp_kernel* raw() const { return kernel_; }
  const DevicePtr& device() const { return device_; }
  /// Whoever registered it, if that is not the device's own plugin; else null.
  const Plugin* library() const {
    return plugin_ != nullptr && plugin_ != device_->plugin() ? plugin_.get() : nullptr;
  }

  /// BP_INPUT_* of an input; DATA where it is a weight.
  std::int32_t input_role(std::size_t index) const {
    const std::int32_t said = role(def_->input_roles, def_->input_role_count, index);
    return said == BP_INPUT_WEIGHT ? BP_INPUT_DATA : said;
  }
  /// Whether `prepare` reads no element of an input, though it be constant.
  bool is_weight(std::size_t index) const {
    return role(def_->input_roles, def_->input_role_count, index) == BP_INPUT_WEIGHT;
  }
  /// BP_OUTPUT_* of an output.
  std::int32_t output_role(std::size_t index) const {
    return role(def_->output_roles, def_->output_role_count, index);
  }

  static std::int32_t role(const std::int32_t* roles, std::uint32_t count, std::size_t index) {
    if (count == 0) return 0;
    return index < count ? roles[index] : roles[count - 1];
  }

 private:
  void swap(KernelHandle& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(plugin_, other.plugin_);
    std::swap(def_, other.def_);
    std::swap(kernel_, other.kernel_);
  }
  DevicePtr device_;
  PluginPtr plugin_;
  const bp_kernel_def* def_ = nullptr;
  bp_kernel* kernel_ = nullptr;
};

/// A prepared kernel, shared by the plans that use it; ends before the kernel it came from.
class PreparedHandle {
 public:
  PreparedHandle() = default;
  PreparedHandle(const bp_kernel_def* def, bp_prepared* prepared)
      : owned_(std::make_shared<Owned>(def, prepared)) {}

  const bp_prepared* raw() const { return owned_ != nullptr ? owned_->prepared : nullptr; }
  const bp_kernel_def& def() const { return *owned_->def; }
  /// To be held around `compute`; null where any number of calls may go on at a time.
  std::mutex* turn() const {
    const bool alone = raw() != nullptr && (def().flags & BP_KERNEL_NOT_CONCURRENT) != 0;
    return alone ? &owned_->turn : nullptr;
  }

  std::unique_lock<std::mutex> take_turn() const {
    std::mutex* const alone = turn();
    return alone != nullptr ? std::unique_lock(*alone) : std::unique_lock<std::mutex>();
  }

 private:
  struct Owned {
    Owned(const bp_kernel_def* of, bp_prepared* taken) : def(of), prepared(taken) {}
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() {
      if (prepared != nullptr && def->release != nullptr)
        call_without_status(def->name, [&] { def->release(prepared); });
    }
    const bp_kernel_def* def;
    bp_prepared* prepared;
    std::mutex turn;
  };
  std::shared_ptr<Owned> owned_;
};

}  // namespace backplane::core
