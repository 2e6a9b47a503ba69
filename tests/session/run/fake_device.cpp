#include "tests/session/run/fake_device.hpp"

#include <dlfcn.h>
#include <stdexcept>

#include "backplane/plugin_api.h"

namespace backplane::session_test {
namespace {

/// Of the fixture's functions: the test goes wrong where one fails.
void require(bp_status* status) {
  if (status != nullptr) throw std::runtime_error("a call of the fakegpu fixture failed");
}

}  // namespace

const fakegpu_api& fakegpu() {
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

fakegpu_counters counters() {
  fakegpu_counters all{};
  all.struct_size = sizeof(all);
  fakegpu().counters(FAKEGPU_ALL_DEVICES, &all);
  return all;
}

Environment device_environment() {
  return Environment(Options()
                         .set("environment.threads", "2")
                         .set("environment.log_level", "error")
                         .set("environment.plugin_path", BACKPLANE_TEST_BUILD_DIR
                              "/tests/session/plugins:" BACKPLANE_TEST_PLUGIN_DIR));
}

void NativeFloats::write(const std::vector<float>& elements, std::uint64_t stream) {
  require(
      fakegpu().memory_write(stream, memory_, 0, elements.data(), elements.size() * sizeof(float)));
}

std::vector<float> NativeFloats::read(std::uint64_t stream) const {
  std::vector<float> elements(count_);
  require(fakegpu().memory_read(stream, memory_, 0, elements.data(), bytes()));
  return elements;
}

}  // namespace backplane::session_test
