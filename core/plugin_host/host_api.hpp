// What the host offers to plugins besides graphs and values: its log, memory, threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backplane/plugin_api.h"
#include "core/base/log.hpp"

namespace backplane::core {

/// The host's whole table. One for all plugins of the process.
const bp_host_api& host_api();

/// Where lines go that plugins log; null: to standard error, from warnings on. A process has one
/// place, since a plugin may serve several environments: the last one set.
/// Threads: any.
void set_plugin_logger(std::shared_ptr<const Logger> logger);

/// From now on, lines that come from the library at `address` carry `name`.
void name_plugin_code(const void* address, const std::string& name);

/// Offers a table of functions to all plugins by bp_host_api::get_interface: what lies in folders that
/// this one does not know. The last one offered under an id counts; `table` lives until the process
/// ends. Threads: any.
void offer_interface(const std::string& id, std::uint32_t version, const void* table);

/// Host memory that plugins took by bp_host_api::alloc: blocks ever, and blocks not yet given back.
struct PluginMemoryCounts {
  std::uint64_t allocations;
  std::uint64_t live;
};
PluginMemoryCounts plugin_memory_counts();

}  // namespace backplane::core
