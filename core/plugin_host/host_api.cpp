#include "core/plugin_host/host_api.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/base/quote.hpp"
#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/plugin_call.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/runtime_value.hpp"
#include "core/plugin_host/status.hpp"
#include "core/plugin_host/thread_pool.hpp"

namespace backplane::core {
namespace {

constexpr std::uint64_t kMaxLogBytes = 16 * 1024;

/// Never destroyed: threads of plugins may log while the process ends.
struct LogState {
  std::mutex mutex;
  std::shared_ptr<const Logger> logger = std::make_shared<const Logger>();
  std::map<const void*, std::string> names;  ///< by the address that a library is mapped at
};

LogState& log_state() {
  static auto* const state = new LogState();
  return *state;
}

const void* library_of(const void* address, std::string* file) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return nullptr;
  if (file != nullptr && info.dli_fname != nullptr) {
    *file = std::filesystem::path(info.dli_fname).stem().native();
  }
  return info.dli_fbase;
}

LogLevel log_level(std::int32_t level) {
  return static_cast<LogLevel>(std::clamp<std::int32_t>(level, BP_LOG_TRACE, BP_LOG_ERROR));
}
static_assert(static_cast<int>(LogLevel::Trace) == BP_LOG_TRACE);
static_assert(static_cast<int>(LogLevel::Error) == BP_LOG_ERROR);

/// The table is the same for all plugins, so the caller's address tells which one it is.
void log_from(const void* caller, std::int32_t level, std::string_view message) {
  try {
    std::string name;
    const void* library = library_of(caller, &name);
    std::shared_ptr<const Logger> logger;
    {
      LogState& state = log_state();
      const std::lock_guard lock(state.mutex);
      logger = state.logger;
      const auto known = state.names.find(library);
      if (known != state.names.end()) name = known->second;
    }
    if (logger->enabled(log_level(level))) {
      logger->log(log_level(level), name + ": " + single_line(message, kMaxLogBytes));
    }
  } catch (const std::exception&) {  // a line of the log is not worth a failure
  }
}

std::atomic<std::uint64_t> allocations{0};
std::atomic<std::uint64_t> live_allocations{0};

void* alloc(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t least = std::max<std::uint64_t>(alignment, sizeof(void*));
  void* memory = nullptr;
  if (!std::has_single_bit(alignment) ||
      posix_memalign(&memory, least, std::max<std::uint64_t>(bytes, 1)) != 0) {
    return nullptr;
  }
  allocations.fetch_add(1, std::memory_order_relaxed);
  live_allocations.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void dealloc(void* memory) {
  if (memory == nullptr) return;
  live_allocations.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

std::uint32_t thread_count(const bp_threads* threads) {
  if (threads == nullptr || threads->pool == nullptr) return 1;
  return std::max(1U, std::min(threads->max_threads, threads->pool->thread_count()));
}

void parallel_for(bp_threads* threads, std::uint64_t n, std::uint64_t grain, bp_range_fn fn,
                  void* argument) {
  if (threads != nullptr && threads->pool != nullptr) {
    threads->pool->parallel_for(threads->max_threads, n, grain, fn, argument);
  } else if (n > 0) {
    fn(argument, 0, n, 0);
  }
}

struct Interface {
  std::uint32_t version;
  const void* table;
};

/// Never destroyed, as LogState.
struct InterfaceTable {
  std::mutex mutex;
  std::map<std::string, Interface> by_id;
};

InterfaceTable& interface_table() {
  static auto* const table = new InterfaceTable();
  return *table;
}

const void* get_interface(const char* id, std::uint32_t min_version) {
  if (!is_plain_text(id)) return nullptr;
  InterfaceTable& table = interface_table();
  const std::lock_guard lock(table.mutex);
  const auto found = table.by_id.find(id);
  return found == table.by_id.end() || found->second.version < min_version ? nullptr
                                                                           : found->second.table;
}

}  // namespace

const bp_host_api& host_api() {
  static const bp_host_api api = [] {
    bp_host_api table{};
    table.struct_size = sizeof(table);
    table.abi_major = BP_ABI_MAJOR;
    table.abi_minor = BP_ABI_MINOR;
    table.status_new = status_new;
    table.status_code = status_code;
    table.status_message = status_message;
    table.status_free = status_free;
    table.log = [](std::int32_t level, const char* message, std::uint64_t size) {
      if (message == nullptr) return;
      log_from(__builtin_return_address(0), level,
               {message, static_cast<std::size_t>(std::min(size, kMaxLogBytes))});
    };
    table.alloc = alloc;
    table.dealloc = dealloc;
    table.thread_count = thread_count;
    table.parallel_for = parallel_for;
    table.graph = &graph_api();
    table.value = &value_api();
    table.get_interface = get_interface;
    return table;
  }();
  return api;
}

void set_plugin_logger(std::shared_ptr<const Logger> logger) {
  if (logger == nullptr) logger = std::make_shared<const Logger>();
  const std::lock_guard lock(log_state().mutex);
  log_state().logger.swap(logger);
}

bp_status* status_of_thrown() noexcept {
  constexpr char kWhat[] = "it threw an exception across the plugin interface";
  return status_of([&] {
    try {
      throw;
    } catch (const Error&) {
      throw;  // ours: from a callback of the host
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(Code::Internal, text(kWhat, ": ", error.what()));
    } catch (...) {
      throw Error(Code::Internal, kWhat);
    }
  });
}

void log_thrown(const char* where) noexcept {
  bp_status* const status = status_of_thrown();
  try {
    const Error error = take_error(status);
    std::shared_ptr<const Logger> logger;
    {
      const std::lock_guard lock(log_state().mutex);
      logger = log_state().logger;
    }
    logger->error(where, ": ", error.message());
  } catch (const std::exception&) {  // a line of the log is not worth a failure
  }
}

void offer_interface(const std::string& id, std::uint32_t version, const void* table) {
  InterfaceTable& interfaces = interface_table();
  const std::lock_guard lock(interfaces.mutex);
  interfaces.by_id[id] = {version, table};
}

void name_plugin_code(const void* address, const std::string& name) {
  const void* library = library_of(address, nullptr);
  const std::lock_guard lock(log_state().mutex);
  if (library != nullptr) log_state().names[library] = name;
}

PluginMemoryCounts plugin_memory_counts() {
  return {allocations.load(std::memory_order_relaxed),
          live_allocations.load(std::memory_order_relaxed)};
}

}  // namespace backplane::core
