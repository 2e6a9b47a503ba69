#include "core/plugin_host/plugin_description.hpp"

#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/quote.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/provider_options.hpp"

namespace backplane::core {
namespace {

/// Longer ones are garbage that was read as a size.
constexpr std::uint32_t kMaxStructSize = 1u << 20;

/// Collects the names of functions that are not there.
class MissingFunctions {
 public:
  template <class Function>
  void require(Function function, const char* name) {
    if (function != nullptr) return;
    if (!names_.empty()) names_ += ", ";
    names_ += name;
  }
  bool any() const { return !names_.empty(); }
  void throw_if_any(const Subject& what) const {
    if (any()) invalid(what, " lacks mandatory functions: ", names_);
  }

 private:
  std::string names_;
};

void check_text(const char* text, const std::string& what) {
  if (text == nullptr || text[0] == '\0') invalid(what, " is missing");
  if (!is_plain_text(text)) invalid(what, " is no printable UTF-8 text of up to 1024 bytes");
}

void check_provider_name(const char* name, const std::string& what) {
  check_text(name, what);
  for (const char* c = name; *c != '\0'; ++c) {
    const bool allowed = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_';
    if (!allowed) {
      invalid(what, " ", quoted(name), " may have lower case letters, digits and '_' only");
    }
  }
  if (*name >= '0' && *name <= '9') invalid(what, " ", quoted(name), " begins with a digit");
  for (const char* const word : {"auto", "host"}) {
    if (std::string_view(name) == word)
      invalid(what, " ", quoted(name), " is a word of the host's own, where users name providers");
  }
}

/// Users write provider.NAME.OPTION=VALUE, on command lines and in files.
void check_option_name(const char* name, const std::string& what) {
  check_text(name, what);
  for (const char* c = name; *c != '\0'; ++c) {
    const bool allowed = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                         (*c >= '0' && *c <= '9') || *c == '_' || *c == '-';
    if (!allowed) invalid(what, " ", quoted(name), " may have letters, digits, '_' and '-' only");
  }
}

void check_options(const bp_provider& provider, const std::string& what) {
  check_array(provider.options, provider.option_count, what + ": its options");
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < provider.option_count; ++i) {
    const bp_option* option = provider.options[i];
    const std::string which = text(what, ": option ", i);
    check_struct(option, BP_SIZE_V1(bp_option, reserved0), which);
    check_option_name(option->name, which + ": its name");
    if (option->default_value == nullptr) invalid(which, ": its default value is missing");
    if (!names.insert(option->name).second) {
      invalid(which, ": the name ", quoted(option->name), " stands there twice");
    }
    if (const auto why = wrong_range(*option))
      invalid(which, " ", quoted(option->name), ": its range ", *why);
    if (const auto why = wrong_value(*option, option->default_value)) {
      invalid(which, " ", quoted(option->name), ": its default value ", *why);
    }
  }
}

void check_provider(const bp_provider* provider, std::uint32_t index) {
  std::string what = text("provider ", index);
  check_struct(provider, BP_SIZE_V1(bp_provider, open), what);
  check_provider_name(provider->name, what + ": its name");
  what = text("provider ", quoted(provider->name));
  check_text(provider->version, what + ": its version");
  MissingFunctions missing;
  missing.require(provider->enumerate, "enumerate");
  missing.require(provider->open, "open");
  missing.throw_if_any(what);
  check_options(*provider, what);
}

/// Roles are counted from 0; `last` is the last one that this host knows.
void check_roles(const std::int32_t* roles, std::uint32_t count, std::int32_t last,
                 const char* word, const char* list) {
  check_array(roles, count, list);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (roles[i] < 0 || roles[i] > last)
      invalid("the role ", roles[i], " of ", word, " ", i, " is not known to this host");
  }
}

void check_versions(const bp_plugin& plugin) {
  if (plugin.abi_minor_required <= BP_ABI_MINOR) return;
  throw Error(Code::Incompatible,
              text("the plugin requires plugin ABI ", BP_ABI_MAJOR, ".", plugin.abi_minor_required,
                   " (it was built with ", BP_ABI_MAJOR, ".", plugin.abi_minor_built,
                   "), and this host offers ", BP_ABI_MAJOR, ".", BP_ABI_MINOR,
                   "; update the host, or use an older version of the plugin"));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Subject& subject) {
  out << subject.words_;
  if (subject.index_) out << ' ' << *subject.index_;
  return out << subject.rest_;
}

void check_struct(const void* pointer, std::uint64_t least, const Subject& what) {
  if (pointer == nullptr) invalid(what, " is NULL");
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignof(void*) != 0) {
    invalid(what, " is at a misaligned address");
  }
  const auto* head = static_cast<const std::uint32_t*>(pointer);
  const std::uint32_t size = head[0];
  const std::uint32_t flags = head[1];
  if (size < least) {
    invalid(what, ": its struct_size is ", size, ", at least ", least, " was expected");
  }
  if (size > kMaxStructSize) invalid(what, ": its struct_size of ", size, " is no real size");
  if ((flags & BP_MUST_UNDERSTAND_MASK) != 0) {
    throw Error(Code::Unimplemented,
                text(what, " uses a feature that this host's plugin ABI ", BP_ABI_MAJOR, ".",
                     BP_ABI_MINOR, " does not know (struct_flags ", flags, "); update the host"));
  }
}

void check_array(const void* array, std::uint64_t count, const Subject& what) {
  if (count > kMaxCount) invalid(what, " are said to be ", count, ", which no plugin has");
  if (count > 0 && array == nullptr) invalid(what, " are said to be ", count, ", but are NULL");
}

void check_description(const bp_plugin* plugin) {
  const std::string what = "its description (bp_plugin)";
  check_struct(plugin, BP_SIZE_V1(bp_plugin, kernels_for), what);
  check_versions(*plugin);
  check_text(plugin->name, what + ": the plugin's name");
  check_text(plugin->version, what + ": the plugin's version");
  MissingFunctions missing;
  missing.require(plugin->init, "init");
  missing.require(plugin->shutdown, "shutdown");
  missing.throw_if_any(what);
  check_array(plugin->providers, plugin->provider_count, what + ": its providers");
  check_array(plugin->schemas, plugin->schema_count, what + ": its schemas");
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < plugin->provider_count; ++i) {
    check_provider(plugin->providers[i], i);
    if (!names.insert(plugin->providers[i]->name).second) {
      invalid("the provider ", quoted(plugin->providers[i]->name), " stands there twice");
    }
  }
}

void check_kernel(const bp_kernel_def& def, bool is_registered) {
  if (!is_plain_text(def.name)) invalid("its name is missing, or no printable UTF-8 text");
  MissingFunctions missing;
  if (is_registered) missing.require(def.create, "create");
  missing.require(def.destroy, "destroy");
  missing.require(def.prepare, "prepare");
  missing.require(def.release, "release");
  missing.require(def.compute, "compute");
  if (missing.any()) missing.throw_if_any("kernel " + quoted(plugin_text(def.name)));
  check_roles(def.input_roles, def.input_role_count, BP_INPUT_WEIGHT, "input", "its input roles");
  check_roles(def.output_roles, def.output_role_count, BP_OUTPUT_HOST, "output",
              "its output roles");
}

void check_device_info(const bp_device_info* info) {
  check_struct(info, BP_SIZE_V1(bp_device_info, score), "a device's info");
  check_text(info->name, "a device's info: the name");
  if ((info->flags & BP_DEVICE_HOST_EVALUATOR) != 0 && (info->flags & BP_DEVICE_HOST_MEMORY) == 0) {
    invalid("device ", quoted(info->name),
            " has BP_DEVICE_HOST_EVALUATOR without BP_DEVICE_HOST_MEMORY");
  }
}

void check_device_api(const bp_device_api* api, const bp_device_info& info) {
  check_struct(api, BP_SIZE_V1(bp_device_api, native), "its table of functions");
  MissingFunctions missing;
  missing.require(api->kernels, "kernels");
  missing.require(api->close, "close");
  if ((info.flags & BP_DEVICE_HOST_MEMORY) == 0) {
    missing.require(api->heaps, "heaps");
    missing.require(api->buffer_alloc, "buffer_alloc");
    missing.require(api->buffer_free, "buffer_free");
    missing.require(api->buffer_host_ptr, "buffer_host_ptr");
    missing.require(api->stream_create, "stream_create");
    missing.require(api->stream_destroy, "stream_destroy");
    missing.require(api->stream_sync, "stream_sync");
    missing.require(api->fence_create, "fence_create");
    missing.require(api->fence_destroy, "fence_destroy");
    missing.require(api->fence_signal, "fence_signal");
    missing.require(api->fence_wait, "fence_wait");
    missing.require(api->fence_host_wait, "fence_host_wait");
    missing.require(api->copy_caps, "copy_caps");
    missing.require(api->copy, "copy");
  }
  if (api->claims != nullptr) missing.require(api->compile, "compile (needed with claims)");
  missing.throw_if_any("its table of functions");
}

}  // namespace backplane::core
