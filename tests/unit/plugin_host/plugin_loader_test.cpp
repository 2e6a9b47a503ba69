// The loader against the broken plugins of tests/fixtures/broken, whose header lists what each reason
// must hold.
#include <algorithm>
#include <cctype>
#include <dlfcn.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "core/base/error.hpp"
#include "core/plugin_host/device.hpp"
#include "core/plugin_host/host_api.hpp"
#include "core/plugin_host/plugin.hpp"
#include "core/plugin_host/status.hpp"
#include "tests/fixtures/broken/broken_plugins.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

const fs::path kFixtures = BACKPLANE_TEST_FIXTURES_DIR;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void expect_words(const std::string& message, const std::vector<const char*>& words) {
  for (const char* word : words) {
    EXPECT_NE(lower(message).find(lower(word)), std::string::npos)
        << "'" << word << "' is not in: " << message;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

std::string refusal_of(const fs::path& file) {
  try {
    load_plugin(file);
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(file.filename().native()), std::string::npos) << error.message();
    return error.message();
  }
  ADD_FAILURE() << file << " was loaded";
  return "";
}

fs::path null_provider() {
  return fs::path(BACKPLANE_TEST_BUILD_DIR) / "tests/fixtures/null_provider.so";
}

TEST(PluginLoader, RefusesBrokenFilesWithAReason) {
  int tried = 0;
  for (const auto& broken : broken::broken_plugins()) {
    if (broken.when != broken::When::kLoad) continue;
    SCOPED_TRACE(broken.file);
    expect_words(refusal_of(kFixtures / "broken" / broken.file), broken.words);
    expect_words(refusal_of(kFixtures / "broken" / broken.file), broken.words);  // and again
    ++tried;
  }
  EXPECT_GE(tried, 20);
}

TEST(PluginLoader, RefusesAFileThatAnotherCopyOfTheLibraryUses) {
  const fs::path file = fs::temp_directory_path() / text("shared_provider_", ::getpid(), ".so");
  fs::copy_file(null_provider(), file, fs::copy_options::overwrite_existing);
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto query = reinterpret_cast<bp_plugin_query_fn>(::dlsym(library, BP_PLUGIN_QUERY_SYMBOL));
  bp_query_args args{};
  args.struct_size = sizeof(args);
  args.host_major = BP_ABI_MAJOR;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(query(&args, &plugin), BP_OK);
  const bp_host_api table_of_the_other_copy = host_api();
  ASSERT_EQ(plugin->init(plugin->self, &table_of_the_other_copy), nullptr);
  expect_words(refusal_of(file), {"another copy of backplane", "own copy of the file"});
  plugin->shutdown(plugin->self);
  EXPECT_NE(load_plugin(file), nullptr);  // it is free now
  fs::remove(file);
}

TEST(PluginLoader, RefusesSingleKernelsAndKeepsTheOthers) {
  ThreadPool pool(1);
  bp_threads threads{&pool, 1};
  const SchemaRegistry schemas;
  for (const auto& broken : broken::broken_plugins()) {
    if (broken.when != broken::When::kRegister) continue;
    SCOPED_TRACE(broken.file);
    const PluginPtr plugin = load_plugin(kFixtures / "broken" / broken.file);
    const bp_provider* provider = plugin->raw().providers[0];
    const auto devices = enumerate_devices(*provider, nullptr);
    ASSERT_EQ(devices.size(), 1U);
    const DevicePtr device = Device::open(plugin, provider, devices[0], "broken", {}, &threads);
    struct Sink {
      KernelRegistry registry;
      const SchemaRegistry& schemas;
      PluginPtr plugin;
    } sink{{}, schemas, plugin};
    const auto add = [](void* ctx, const bp_kernel_def* def) -> bp_status* {
      auto& s = *static_cast<Sink*>(ctx);
      s.registry.add({def, s.plugin, false, false, 0}, s.schemas, false);
      return nullptr;
    };
    check_status(device->api().kernels(device->raw(), &sink, add), "kernels");
    ASSERT_EQ(sink.registry.refused().size(), 1U);
    expect_words(sink.registry.refused()[0], broken.words);
    EXPECT_NE(sink.registry.refused()[0].find(broken.file), std::string::npos);
    EXPECT_EQ(sink.registry.find("", "Sin").size(), 1U);
  }
}

TEST(PluginLoader, MissingFilesAndFolders) {
  EXPECT_NE(refusal_of(kFixtures / "no_such_file.so").find("does not exist"), std::string::npos);
  EXPECT_NE(refusal_of(kFixtures / "broken").find("folder"), std::string::npos);
}

TEST(PluginLoader, LoadsAGoodPlugin) {
  const PluginPtr plugin = load_plugin(null_provider());
  EXPECT_EQ(plugin->name(), "null_provider");
  EXPECT_EQ(plugin->version(), "1.0.0");
  EXPECT_EQ(plugin->abi(), std::to_string(BP_ABI_MAJOR) + "." + std::to_string(BP_ABI_MINOR));
  EXPECT_TRUE(plugin->file().is_absolute());
  EXPECT_TRUE(plugin->schemas().empty());
  ASSERT_EQ(plugin->raw().provider_count, 1U);
}

TEST(PluginLoader, OneFileIsOnePluginHoweverItIsReached) {
  const PluginPtr first = load_plugin(null_provider());
  const fs::path link =
      fs::path(testing::TempDir()) / ("backplane_loader_" + std::to_string(getpid()) + ".so");
  fs::remove(link);
  fs::create_symlink(null_provider(), link);
  EXPECT_EQ(load_plugin(link), first);
  EXPECT_EQ(load_plugin(null_provider().parent_path() / "broken" / ".." / "null_provider.so"),
            first);
  fs::remove(link);
}

TEST(PluginLoader, APluginCanBeLoadedAgainAfterItsShutdown) {
  for (int round = 0; round < 3; ++round) {
    const PluginPtr plugin = load_plugin(null_provider());
    std::string reason;
    EXPECT_EQ(enumerate_devices(*plugin->raw().providers[0], &reason).size(), 1U) << reason;
  }
}

TEST(PluginLoader, ReadsTheSchemasOfCustomOperators) {
  const PluginPtr plugin = load_plugin(kFixtures / "broken/same_operator_a.so");
  ASSERT_EQ(plugin->schemas().size(), 1U);
  EXPECT_EQ(plugin->schemas()[0].domain, "broken.twins");
  EXPECT_EQ(plugin->schemas()[0].name, "TwinOperator");
  EXPECT_NE(plugin->schemas()[0].library.find("same_operator_a.so"), std::string::npos);
}

TEST(PluginLoader, DefaultDirectoryIsBesideTheLibrary) {
  const fs::path directory = default_plugin_directory();
  EXPECT_TRUE(directory.is_absolute());
  EXPECT_EQ(directory.parent_path().filename(), "backplane");
  EXPECT_EQ(directory.filename(), "plugins");
}

}  // namespace
}  // namespace backplane::core
