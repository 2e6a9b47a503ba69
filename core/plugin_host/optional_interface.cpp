#include "core/plugin_host/optional_interface.hpp"

#include "core/plugin_host/plugin_call.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {

const void* find_interface(const bp_provider& provider, const std::string& what, const char* name,
                           std::uint64_t least_bytes, const char* table) {
  if (!BP_HAS_FN(bp_provider, &provider, get_interface)) return nullptr;
  const void* const found =
      call_plugin(what, [&] { return provider.get_interface(provider.self, name, 1); });
  if (found != nullptr) check_struct(found, least_bytes, what + ": its " + table);
  return found;
}

}  // namespace backplane::core
