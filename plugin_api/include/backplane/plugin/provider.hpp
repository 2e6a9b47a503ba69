// Backplane SDK: a provider whose device works on host memory. A provider with memory and streams of its own
// fills bp_device_api itself: tests/fixtures/fakegpu is an example.
//
//   class Mine : public sdk::HostDevice {
//    public:
//     explicit Mine(const sdk::OpenContext& ctx);
//     const sdk::KernelList& kernels() const;
//   };
//   const sdk::HostProvider<Mine> provider({.name = "mine", ...});
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/plugin/rewrite.hpp"

namespace backplane::sdk {

/// What a device's constructor gets: its options (all of them, defaults filled in) and the thread pool.
class OpenContext {
 public:
  OpenContext(const bp_device_info* info, const bp_open_ctx* raw) : info_(info), raw_(raw) {}
  /// A copy of its value, which the host has checked; an Error where the provider declares no such option.
  std::string option(std::string_view name) const {
    for (std::uint64_t i = 0; i < raw_->option_count; ++i) {
      const bp_key_value& option = raw_->options[i];
      if (std::string_view(option.key.data, option.key.size) == name)
        return {option.value.data, static_cast<std::size_t>(option.value.size)};
    }
    invalid("the provider has no option '", name, "'");
  }
  Threads threads() const { return Threads(raw_->threads); }
  /// The device that is opened, one that the provider enumerated.
  const bp_device_info* info() const { return info_; }

 private:
  const bp_device_info* info_;
  const bp_open_ctx* raw_;
};

/// An option of a provider, with its storage: see bp_option.
class Option {
 public:
  /// `type` is BP_OPTION_*; `range` as in bp_option: "all|none", "1..64".
  Option(std::string name, std::int32_t type, std::string default_value, std::string range,
         std::string doc)
      : name_(std::move(name)),
        default_(std::move(default_value)),
        range_(std::move(range)),
        doc_(std::move(doc)),
        type_(type) {}
  /// Points into this object, which then stays where it is.
  const bp_option* raw() {
    raw_ = abi_struct<bp_option>();
    raw_.name = name_.c_str();
    raw_.doc = doc_.c_str();
    raw_.default_value = default_.c_str();
    raw_.range = range_.c_str();
    raw_.type = type_;
    return &raw_;
  }

 private:
  std::string name_, default_, range_, doc_;
  std::int32_t type_;
  bp_option raw_{};
};

/// Base of a device on host memory. A derived class has `kernels()`; it may have `rewrite(graph, editor)`.
class HostDevice {
 public:
  HostDevice() = default;
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;
  /// Leaves the graph as it is.
  void rewrite(const Graph&, Rewrite&) {}

 protected:
  ~HostDevice() = default;
};

/// What a HostProvider says of itself.
struct HostProviderInfo {
  const char* name;
  const char* version;
  const char* device_name;
  std::int32_t score;         // see bp_device_info
  std::uint64_t extra_flags;  // BP_DEVICE_HOST_EVALUATOR or 0
};

/// A provider with one device, of class Device, on host memory.
template <class Device>
class HostProvider {
 public:
  explicit HostProvider(const HostProviderInfo& about, std::vector<Option> options = {})
      : options_(std::move(options)) {
    info_.name = about.device_name;
    info_.vendor = "";
    info_.driver = "";
    info_.flags = BP_DEVICE_HOST_MEMORY | about.extra_flags;
    info_.type = BP_DEVICE_TYPE_CPU;
    info_.score = about.score;
    for (Option& option : options_) option_pointers_.push_back(option.raw());
    raw_.name = about.name;
    raw_.version = about.version;
    raw_.options = option_pointers_.data();
    raw_.option_count = option_pointers_.size();
    raw_.self = this;
    raw_.enumerate = [](void* self, void* sink_ctx, bp_device_sink sink) {
      return sink(sink_ctx, &static_cast<HostProvider*>(self)->info_);
    };
    raw_.open = [](void* self, const bp_device_info* info, const bp_open_ctx* ctx, bp_device** out,
                   const bp_device_api** api) {
      return guarded([&] {
        *out = reinterpret_cast<bp_device*>(new Device(OpenContext(info, ctx)));
        *api = &static_cast<HostProvider*>(self)->api_;
      });
    };
    api_.kernels = [](bp_device* device, void* sink_ctx, bp_kernel_sink sink) {
      return show_kernels(reinterpret_cast<Device*>(device)->kernels(), sink_ctx, sink);
    };
    api_.close = [](bp_device* device) { delete reinterpret_cast<Device*>(device); };
    api_.rewrite = [](bp_device* device, const bp_graph* graph, bp_rewrite* editor,
                      const bp_rewrite_api* api) {
      return guarded([&] {
        Rewrite edit(editor, api);
        reinterpret_cast<Device*>(device)->rewrite(Graph(graph), edit);
      });
    };
  }
  HostProvider(const HostProvider&) = delete;
  HostProvider& operator=(const HostProvider&) = delete;

  /// To be filled in further, before the plugin is described.
  bp_device_info& info() { return info_; }
  /// Valid as long as this object, which the plugin keeps until it is shut down.
  const bp_provider* raw() const { return &raw_; }

 private:
  std::vector<Option> options_;
  std::vector<const bp_option*> option_pointers_;
  bp_device_info info_ = abi_struct<bp_device_info>();
  bp_provider raw_ = abi_struct<bp_provider>();
  bp_device_api api_ = abi_struct<bp_device_api>();
};

}  // namespace backplane::sdk
