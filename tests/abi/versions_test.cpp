// Plugins and hosts of different days. The test host's structs end in bytes of 0xA5 that no plugin knows, and its
// minor version is ahead: so every plugin here meets the host of a later day.
#include <gtest/gtest.h>

#include "tests/fixtures/test_host.hpp"

namespace backplane::test_host {
namespace {

const std::string kFolder = BACKPLANE_TEST_BUILD_DIR "/tests/fixtures/";

TEST(FrozenV1, ItsProviderRuns) {
  const LoadedPlugin plugin(kFolder + "frozen_v1.so");
  EXPECT_EQ(plugin->abi_minor_built, 0u);
  const OpenDevice device(plugin.provider("frozen_v1"));
  NodeUnderTest node("", "Neg", 13);
  node.input(BP_FLOAT, {2, 2});
  EXPECT_EQ(
      run_on_host(device.kernel("Neg"), device.raw(), node, {floats({2, 2}, {1, -2, 0.5f, 3})})[0]
          .as<float>(),
      (std::vector<float>{-1, 2, -0.5f, -3}));
}

TEST(FrozenV1, ItsCustomOperatorRuns) {
  const LoadedPlugin plugin(kFolder + "frozen_v1.so");
  NodeUnderTest node("frozen.v1", "Halve", 1);
  node.input(BP_FLOAT, {3}).attribute("by", 4.0f);
  EXPECT_EQ(infer(plugin.schema("Halve"), node)[0].dims, std::vector<std::int64_t>{3});
  EXPECT_EQ(
      run_on_host(plugin.guest_kernel("cpu", "Halve"), nullptr, node, {floats({3}, {4, 8, 2})})[0]
          .as<float>(),
      (std::vector<float>{1, 2, 0.5f}));
  NodeUnderTest zero("frozen.v1", "Halve", 1);
  zero.input(BP_FLOAT, {3}).attribute("by", 0.0f);
  EXPECT_THROW(KernelUnderTest(plugin.guest_kernel("cpu", "Halve"), nullptr, zero.raw()),
               StatusError);
  EXPECT_EQ(live_statuses(), 0);
}

TEST(FrozenV1, RefusesAnotherMajorVersion) {
  const LoadedPlugin plugin(kFolder + "frozen_v1.so");
  EXPECT_EQ(query(kFolder + "frozen_v1.so", BP_ABI_MAJOR + 1).first, BP_INCOMPATIBLE);
  EXPECT_EQ(query(kFolder + "null_provider.so", BP_ABI_MAJOR + 1).first, BP_INCOMPATIBLE);
}

TEST(NewerPlugin, ItsLongerStructsAreRead) {
  const LoadedPlugin plugin(kFolder + "newer.so");
  EXPECT_EQ(plugin->abi_minor_built, 900u);
  EXPECT_EQ(plugin->abi_minor_required, 0u);
  EXPECT_GT(plugin->struct_size, sizeof(bp_plugin));
  const OpenDevice device(plugin.provider("newer"));
  NodeUnderTest node("", "Abs", 13);
  node.input(BP_FLOAT, {2});
  EXPECT_EQ(
      run_on_host(device.kernel("Abs"), device.raw(), node, {floats({2}, {-1, 2})})[0].as<float>(),
      (std::vector<float>{1, 2}));
}

TEST(QueriedTwice, APluginGivesTheSameDescription) {
  for (const char* file : {"frozen_v1.so", "null_provider.so", "fakegpu.so", "newer.so"}) {
    const auto first = query(kFolder + file, BP_ABI_MAJOR),
               second = query(kFolder + file, BP_ABI_MAJOR);
    EXPECT_EQ(first.first, BP_OK) << file;
    EXPECT_EQ(first.second, second.second) << file;
  }
}

}  // namespace
}  // namespace backplane::test_host
