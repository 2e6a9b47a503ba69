// What a provider offers besides its table, by name.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/plugin_api.h"

namespace backplane::core {

/// The provider's table of an interface, version 1; null where it has none. Throws where the table, a struct `table`,
/// has fewer than `least_bytes`, and what calls of a plugin throw; `what` is of whom that is told.
const void* find_interface(const bp_provider& provider, const std::string& what, const char* name,
                           std::uint64_t least_bytes, const char* table);

}  // namespace backplane::core
