// Backplane SDK: the plugin itself.
//
//   BP_PLUGIN("my_plugin", "1.0.0", [](sdk::Plugin& plugin) {
//     static sdk::HostProvider<Mine> provider({...});
//     plugin.provider(provider.raw());
//   })
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin/op.hpp"
#include "backplane/plugin/provider.hpp"

namespace backplane::sdk {

/// What a plugin brings; filled once, by the first query.
class Plugin {
 public:
  Plugin(const char* name, const char* version) {
    raw_.abi_minor_built = BP_ABI_MINOR;
    raw_.abi_minor_required = 0;
    raw_.name = name;
    raw_.vendor = "";
    raw_.version = version;
    raw_.self = this;
    raw_.init = [](void* self, const bp_host_api* api) -> bp_status* {
      if (host_table != nullptr && host_table != api) {
        const char* const why =
            "it is in use by another copy of Backplane in this process; give each one its own copy "
            "of the file";
        return api->status_new(BP_FAILED, why, std::strlen(why));
      }
      host_table = api;
      const auto& hook = static_cast<Plugin*>(self)->init_hook_;
      bp_status* status = hook ? guarded([&] { hook(*api); }) : nullptr;
      if (status != nullptr) host_table = nullptr;
      return status;
    };
    raw_.shutdown = [](void* self) {
      const auto& hook = static_cast<Plugin*>(self)->shutdown_hook_;
      if (hook) hook();
      host_table = nullptr;
    };
    raw_.kernels_for = [](void* self, const char* provider, void* sink_ctx,
                          bp_kernel_sink sink) -> bp_status* {
      bp_status* status = nullptr;
      bp_status* caught = guarded([&] {
        status = static_cast<Plugin*>(self)->show_guest_kernels(provider, sink_ctx, sink);
      });
      return caught != nullptr ? caught : status;
    };
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  /// The least host minor version that the plugin needs; 0 unless it uses something newer without asking.
  void require_minor(std::uint32_t minor) { raw_.abi_minor_required = minor; }
  void vendor(const char* name) { raw_.vendor = name; }
  void provider(const bp_provider* provider) { providers_.push_back(provider); }
  void schema(OpSchema schema) {
    schemas_.push_back(std::move(schema));
    schema_pointers_.push_back(schemas_.back().raw());
  }
  /// Called when the plugin starts, with the host's table (host() is there too); what it throws refuses the
  /// plugin with the message, and is not followed by the other hook.
  void on_init(std::function<void(const bp_host_api& host)> hook) { init_hook_ = std::move(hook); }
  /// Called when the plugin ends, after everything made from it is gone; must not throw.
  void on_shutdown(std::function<void()> hook) { shutdown_hook_ = std::move(hook); }
  /// Kernels of custom operators for devices of the provider with that name. The list is made when first asked for.
  void kernels_for(const std::string& provider_name, KernelList (*make)()) {
    makers_[provider_name].push_back(make);
  }

  const bp_plugin* raw() {
    raw_.providers = providers_.data();
    raw_.provider_count = static_cast<std::uint32_t>(providers_.size());
    raw_.schemas = schema_pointers_.data();
    raw_.schema_count = static_cast<std::uint32_t>(schema_pointers_.size());
    return &raw_;
  }

 private:
  bp_status* show_guest_kernels(const char* provider, void* sink_ctx, bp_kernel_sink sink) {
    const auto makers = makers_.find(provider);
    if (makers == makers_.end()) return nullptr;
    KernelList& list = guest_kernels_[provider];
    if (list.empty()) {
      for (KernelList (*make)() : makers->second) {
        for (KernelEntry& entry : make()) list.push_back(std::move(entry));
      }
    }
    return show_kernels(list, sink_ctx, sink);
  }

  bp_plugin raw_ = abi_struct<bp_plugin>();
  std::vector<const bp_provider*> providers_;
  std::deque<OpSchema> schemas_;
  std::vector<const bp_op_schema*> schema_pointers_;
  std::map<std::string, std::vector<KernelList (*)()>> makers_;
  std::map<std::string, KernelList> guest_kernels_;
  std::function<void(const bp_host_api&)> init_hook_;
  std::function<void()> shutdown_hook_;
};

/// The body of bp_plugin_query_v1.
template <class Fill>
bp_code answer_query(const bp_query_args* args, const bp_plugin** out, const char* name,
                     const char* version, Fill fill) noexcept {
  if (args == nullptr || out == nullptr) return BP_INVALID_ARGUMENT;
  *out = nullptr;
  if (!BP_HAS(bp_query_args, args, host_major) || args->host_major != BP_ABI_MAJOR)
    return BP_INCOMPATIBLE;
  try {
    static Plugin* const plugin = [&] {
      auto* made = new Plugin(
          name, version);  // lives until the process ends: the host keeps pointers into it
      fill(*made);
      return made;
    }();
    *out = plugin->raw();
    return BP_OK;
  } catch (...) {  // nothing may unwind into the host
    return BP_INTERNAL;
  }
}

}  // namespace backplane::sdk

/// Defines the exported symbol. `...` is a function that fills a sdk::Plugin&.
#define BP_PLUGIN(name, version, ...)                                           \
  extern "C" __attribute__((visibility("default"))) bp_code bp_plugin_query_v1( \
      const bp_query_args* args, const bp_plugin** out) {                       \
    return backplane::sdk::answer_query(args, out, name, version, __VA_ARGS__); \
  }                                                                             \
  static_assert(true, "BP_PLUGIN ends with a semicolon")
