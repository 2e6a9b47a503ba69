#include "core/plugin_host/plugin_description.hpp"

#include <functional>
#include <gtest/gtest.h>
#include <string>

namespace backplane::core {
namespace {

/// A plugin of one provider with one option, all of which a test may spoil.
struct Description {
  Description() {
    option.struct_size = sizeof(option);
    option.name = "level";
    option.default_value = "3";
    option.range = "1..9";
    option.type = BP_OPTION_INT;
    provider.struct_size = sizeof(provider);
    provider.name = "fake";
    provider.version = "1";
    provider.options = &options;
    provider.option_count = 1;
    provider.enumerate = [](void*, void*, bp_device_sink) -> bp_status* { return nullptr; };
    provider.open = [](void*, const bp_device_info*, const bp_open_ctx*, bp_device**,
                       const bp_device_api**) -> bp_status* { return nullptr; };
    raw.struct_size = sizeof(raw);
    raw.name = "fake plugin";
    raw.version = "1";
    raw.providers = &providers;
    raw.provider_count = 1;
    raw.init = [](void*, const bp_host_api*) -> bp_status* { return nullptr; };
    raw.shutdown = [](void*) {};
  }
  bp_option option{};
  const bp_option* options = &option;
  bp_provider provider{};
  const bp_provider* providers = &provider;
  bp_plugin raw{};
};

TEST(PluginDescription, NamesAndRangesThatUsersCouldNotUseAreRefused) {
  const Description right;
  EXPECT_NO_THROW(check_description(&right.raw));
  const struct {
    std::function<void(Description&)> spoil;
    const char* words;
  } faults[] = {
      {[](Description& d) { d.provider.name = "auto"; }, "'auto' is a word of the host's own"},
      {[](Description& d) { d.provider.name = "host"; }, "'host' is a word of the host's own"},
      {[](Description& d) { d.provider.name = "1"; }, "'1' begins with a digit"},
      {[](Description& d) { d.provider.name = "Fake"; }, "lower case letters"},
      {[](Description& d) { d.option.name = "a.b=c, d"; }, "may have letters, digits"},
      {[](Description& d) { d.option.range = "1-9"; },
       "'level': its range '1-9' is no range \"low..high\""},
      {[](Description& d) { d.option.range = "nine..one"; }, "is no range"},
      {[](Description& d) { d.option.default_value = "10"; }, "'10' is not in 1..9"}};
  for (const auto& [spoil, words] : faults) {
    Description description;
    spoil(description);
    try {
      check_description(&description.raw);
      ADD_FAILURE() << "accepted; expected: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::InvalidArgument);
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace backplane::core
