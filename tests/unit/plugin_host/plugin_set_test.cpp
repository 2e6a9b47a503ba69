#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin_host/plugin.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

class PluginSetTest : public testing::Test {
 protected:
  PluginSetTest() {
    fs::remove_all(root_);
    fs::create_directories(root_ / "one");
    fs::create_directories(root_ / "two");
  }
  ~PluginSetTest() override { fs::remove_all(root_); }

  /// Copies a fixture, so that it is a library of its own, to `to` below the root.
  fs::path put(const std::string& fixture, const std::string& to) {
    fs::copy_file(fs::path(BACKPLANE_TEST_FIXTURES_DIR) / fixture, root_ / to);
    return root_ / to;
  }
  PluginSet both() { return PluginSet({root_ / "one", root_ / "two"}); }
  Error error_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {Code::Ok, ""};
  }
  static void expect_in(const std::string& text, const std::string& words) {
    EXPECT_NE(text.find(words), std::string::npos) << "'" << words << "' is not in: " << text;
  }
  // Libraries stay mapped under their path, so each test has a folder of its own.
  fs::path root_ = fs::path(testing::TempDir()) /
                   ("backplane_plugin_set_" + std::to_string(getpid()) + "_" +
                    testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(PluginSetTest, ListsEveryFileInOrder) {
  put("null_provider.so", "two/a.so");
  put("broken/same_operator_a.so", "one/c.so");
  put("broken/same_provider_a.so", "one/b.so");
  std::ofstream(root_ / "one/readme.txt") << "not a plugin, and not listed";
  std::ofstream(root_ / "one/text.so") << "This is a text.";
  fs::create_directories(root_ / "one/folder.so");
  PluginSet set({root_ / "one", root_ / "none", root_ / "two", root_ / "one"});
  std::vector<PluginRow> rows = set.rows();
  ASSERT_EQ(rows.size(), 5U);
  const auto absent = std::find_if(
      rows.begin(), rows.end(), [&](const PluginRow& row) { return row.file == root_ / "none"; });
  ASSERT_NE(absent, rows.end());
  expect_in(absent->reason, "cannot be searched for plugins");
  rows.erase(absent);
  EXPECT_EQ(rows[0].file, root_ / "one/b.so");
  EXPECT_EQ(rows[0].provider, "twin");
  EXPECT_TRUE(rows[0].loaded);
  EXPECT_EQ(rows[0].devices.size(), 1U);
  EXPECT_EQ(rows[1].provider, "");
  EXPECT_TRUE(rows[1].loaded);
  EXPECT_EQ(rows[1].name, "broken_operator");
  EXPECT_FALSE(rows[2].loaded);
  EXPECT_EQ(rows[2].plugin, nullptr);
  expect_in(rows[2].reason, "shared object");
  EXPECT_EQ(rows[3].provider, "null");
  EXPECT_EQ(rows[3].abi, std::to_string(BP_ABI_MAJOR) + "." + std::to_string(BP_ABI_MINOR));
  EXPECT_EQ(rows[3].provider_version, "1.0.0");
  const std::vector<PluginRow> again = set.rows();
  ASSERT_EQ(again.size(), rows.size() + 1);
  EXPECT_EQ(again[1].plugin, rows[0].plugin);
}

TEST_F(PluginSetTest, CountsKernels) {
  put("null_provider.so", "one/null.so");
  PluginSet set = both();
  const std::vector<PluginRow> rows = set.counted_rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].kernel_count, 2U);
  EXPECT_EQ(rows[0].reason, "");
}

TEST_F(PluginSetTest, TheSecondProviderOfANameIsRefused) {
  const fs::path first = put("broken/same_provider_a.so", "one/b.so");
  const fs::path second = put("broken/same_provider_b.so", "two/a.so");
  PluginSet set = both();
  const std::vector<PluginRow> rows = set.rows();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].loaded);
  EXPECT_FALSE(rows[1].loaded);
  expect_in(rows[1].reason, "'twin'");
  expect_in(rows[1].reason, first.native());
  expect_in(rows[1].reason, second.native());
  EXPECT_EQ(rows[1].plugin, nullptr);
  const Error error = error_of([&] { set.load(second); });
  EXPECT_EQ(error.code(), Code::InvalidArgument);
  expect_in(error.message(), first.native());
}

TEST_F(PluginSetTest, FindsAProviderByTheNameOfItsFileFirst) {
  put("null_provider.so", "two/libnull.so");
  // Had it been loaded, its init would have failed, and a row would say so.
  put("broken/init_fails.so", "one/other.so");
  PluginSet set = both();
  const bp_provider* provider = nullptr;
  const PluginPtr plugin = set.find_provider("null", &provider);
  ASSERT_NE(provider, nullptr);
  EXPECT_STREQ(provider->name, "null");
  EXPECT_EQ(plugin->file(), root_ / "two/libnull.so");
  EXPECT_EQ(set.find_provider("null", nullptr), plugin);
  EXPECT_EQ(set.rows().size(), 2U);
}

TEST_F(PluginSetTest, FindsAProviderInAnyFile) {
  put("null_provider.so", "two/something.so");
  PluginSet set = both();
  EXPECT_NE(set.find_provider("null", nullptr), nullptr);
}

TEST_F(PluginSetTest, AProviderThatIsNotThereIsExplained) {
  put("null_provider.so", "one/null.so");
  put("broken/init_fails.so", "one/broken.so");
  put("broken/missing_library.so", "two/nul1.so");
  PluginSet set({root_ / "one", root_ / "two", root_ / "gone"});
  const Error error = error_of([&] { set.find_provider("nul1", nullptr); });
  EXPECT_EQ(error.code(), Code::NotFound);
  expect_in(error.message(), "'nul1'");
  expect_in(error.message(), "did you mean 'null'");
  expect_in(error.message(), (root_ / "two").native());
  expect_in(error.message(), "gone' (is not there)");
  expect_in(error.message(), "no licence for this machine");
  expect_in(error.message(), "libbackplane_absent.so.7");
  EXPECT_LT(error.message().find("absent"), error.message().find("licence")) << error.message();
  EXPECT_EQ(error.message().find('\n'), std::string::npos);
  PluginSet none({});
  expect_in(error_of([&] { none.find_provider("null", nullptr); }).message(),
            "no folder was searched");
}

TEST_F(PluginSetTest, LoadsFilesByPathOnce) {
  const fs::path file = put("null_provider.so", "two/extra.so");
  PluginSet set({root_ / "one"});
  const PluginPtr plugin = set.load(file);
  EXPECT_EQ(set.load(root_ / "one/../two/extra.so"), plugin);
  const bp_provider* provider = nullptr;
  EXPECT_EQ(set.find_provider("null", &provider), plugin);
  ASSERT_EQ(set.rows().size(), 1U);
  EXPECT_EQ(set.rows()[0].file, file);
  EXPECT_EQ(error_of([&] { set.load(root_ / "two/none.so"); }).code(), Code::NotFound);
}

TEST_F(PluginSetTest, ServesManyThreads) {
  put("null_provider.so", "one/null.so");
  put("broken/same_provider_a.so", "one/twin.so");
  PluginSet set = both();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_NE(set.find_provider(i % 2 == 0 ? "null" : "twin", nullptr), nullptr);
      EXPECT_EQ(set.rows().size(), 2U);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace backplane::core
