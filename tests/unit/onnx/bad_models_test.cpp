// The models of tests/data/make_bad_models.py: each broken one is an error that mentions what it must, on one line, within
// a second; each good one loads.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/onnx/importer.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

class BadModels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_folder =
        fs::path(::testing::TempDir()) / ("backplane_bad_models_" + std::to_string(::getpid()));
    fs::remove_all(models_folder);
    fs::create_directories(models_folder);
    const std::string command = std::string(BACKPLANE_TEST_PYTHON) + " " +
                                BACKPLANE_TEST_SOURCE_DIR + "/tests/data/make_bad_models.py " +
                                models_folder.string() + " >/dev/null";
    // The sanitizers' runtime is not for Python.
    models_made = fs::exists(BACKPLANE_TEST_PYTHON) &&
                  std::system(("env -u LD_PRELOAD " + command).c_str()) == 0;
    if (models_made) std::ifstream(models_folder / "manifest.json") >> models_manifest;
  }
  static void TearDownTestSuite() { fs::remove_all(models_folder); }

  void SetUp() override {
    ASSERT_TRUE(models_made) << "the models could not be made; run tools/setup, which installs "
                             << BACKPLANE_TEST_PYTHON;
  }

  /// What import says, "" when it is content.
  static std::string import(const std::string& name, const SchemaRegistry& schemas) {
    const auto begin = std::chrono::steady_clock::now();
    std::string message;
    try {
      (void)import_file((models_folder / name).string(), schemas, {});
    } catch (const Error& error) {
      message = error.message();
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (!message.empty()) {
      EXPECT_LT(taken.count(), kSeconds) << name;
    }
    return message;
  }

#ifdef BACKPLANE_SANITIZED
  static constexpr double kSeconds = 10;
#else
  static constexpr double kSeconds = 1;
#endif
  inline static fs::path models_folder;
  inline static bool models_made = false;
  inline static nlohmann::json models_manifest;
};

TEST_F(BadModels, AreErrorsThatSayWhatIsWrong) {
  const SchemaRegistry schemas;
  int seen = 0;
  for (const auto& [name, entry] : models_manifest.items()) {
    if (entry["expect"] != "error" || entry.contains("needs_kernel")) continue;
    ++seen;
    const std::string message = import(name, schemas);
    EXPECT_FALSE(message.empty()) << name << " was accepted";
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const auto& text : entry["must_mention"]) {
      EXPECT_THAT(lower(message), ::testing::HasSubstr(lower(text.get<std::string>()))) << name;
    }
  }
  EXPECT_GT(seen, 50);
}

TEST_F(BadModels, GoodOnesLoad) {
  SchemaRegistry schemas;
  for (const auto& [name, entry] : models_manifest.items()) {
    if (!entry.contains("needs_op")) continue;
    EXPECT_NE(import(name, SchemaRegistry()), "") << name;
    CustomSchema schema;
    schema.name = entry["needs_op"];
    schema.inputs = {{"X", "T", FormalParam::Kind::Required, false, 0}};
    schema.outputs = {{"Y", "T", FormalParam::Kind::Required, false, 0}};
    schema.type_params = {{"T", {"tensor(float)"}}};
    schemas.add(schema);
  }
  int seen = 0;
  for (const auto& [name, entry] : models_manifest.items()) {
    if (entry["expect"] != "ok") continue;
    ++seen;
    EXPECT_EQ(import(name, schemas), "") << name;
  }
  EXPECT_GT(seen, 15);
}

}  // namespace
}  // namespace backplane::core
