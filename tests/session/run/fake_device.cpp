#include "tests/session/run/fake_device.hpp"

#include <stdexcept>

#include "backplane/plugin_api.h"

namespace backplane::session_test {
namespace {

/// Of the fixture's functions: the test goes wrong where one fails.
void require(bp_status* status) {
  if (status != nullptr) throw std::runtime_error("a call of the fakegpu fixture failed");
}

}  // namespace

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
