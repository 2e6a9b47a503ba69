// The fake device's own interface, beside a session that a test made through the host interface.
#pragma once

#include <cstdint>
#include <dlfcn.h>
#include <stdexcept>

#include "tests/fixtures/fakegpu/fakegpu.h"

namespace backplane::session_test {

/// Of the very library that sessions load: it is there once in a process.
inline const fakegpu_api& fakegpu() {
  static const fakegpu_api* const api = [] {
    void* library = ::dlopen(BACKPLANE_TEST_BUILD_DIR "/tests/fixtures/fakegpu.so", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    const auto query =
        reinterpret_cast<bp_plugin_query_fn>(::dlsym(library, BP_PLUGIN_QUERY_SYMBOL));
    bp_query_args args{};
    args.struct_size = sizeof(args);
    args.host_major = BP_ABI_MAJOR;
    args.host_minor = BP_ABI_MINOR;
    args.host_version = {"test", 4};
    const bp_plugin* plugin = nullptr;
    if (query(&args, &plugin) != BP_OK) throw std::runtime_error("fakegpu refused the query");
    const bp_provider* provider = plugin->providers[0];
    return static_cast<const fakegpu_api*>(
        provider->get_interface(provider->self, FAKEGPU_INTERFACE, 1));
  }();
  return *api;
}

/// Of all fake devices.
inline fakegpu_counters counters() {
  fakegpu_counters all{};
  all.struct_size = sizeof(all);
  fakegpu().counters(FAKEGPU_ALL_DEVICES, &all);
  return all;
}

/// Races, reads of what nobody wrote, and misuses since the last reset.
inline std::uint64_t findings() {
  const fakegpu_counters all = counters();
  return all.races + all.uninitialized + all.misuses;
}

}  // namespace backplane::session_test
