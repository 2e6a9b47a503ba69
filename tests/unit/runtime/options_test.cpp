// Which option counts where several say something, and options that a session refuses.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/unit/runtime/session_test.hpp"

namespace backplane::runtime_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class SessionOptions : public SessionTest {
 protected:
  SessionOptions() {
    for (const char* name : kVariables) ::unsetenv(name);
    fs::create_directories(folder_);
  }
  ~SessionOptions() override {
    for (const char* name : kVariables) ::unsetenv(name);
    fs::remove_all(folder_);
  }

  std::string file(const std::string& content) {
    std::ofstream(folder_ / "options.toml") << content;
    return (folder_ / "options.toml").string();
  }
  static const Environment& with_null() {
    static const Environment shared(Options()
                                        .set("environment.plugin_path", BACKPLANE_TEST_FIXTURES_DIR)
                                        .set("environment.log_level", "error"));
    return shared;
  }
  /// The provider of a Relu; the null provider and the cpu have it.
  static std::string chosen(const Options& options, const char* op = "Relu") {
    ModelMaker maker;
    maker.input("x", {"3"}).node(op, {"x"}, "y").output("y");
    const std::string bytes = maker.bytes();
    const Session session(with_null(), bytes.data(), bytes.size(), options);
    return Json::parse(session.explain())["nodes"][0]["provider"].get<std::string>();
  }

  static constexpr const char* kVariables[] = {"BACKPLANE_CONFIG", "BACKPLANE_PROVIDERS",
                                               "BACKPLANE_PLUGIN_PATH"};
  fs::path folder_ =
      fs::path(::testing::TempDir()) / ("backplane_session_options_" + std::to_string(::getpid()));
};

TEST_F(SessionOptions, TheLaterOneCounts) {
  EXPECT_EQ(chosen(Options().set("providers", "cpu").set("providers", "null")), "null");
  const std::string null_file = file("providers = 'null'\n");
  EXPECT_EQ(chosen(Options().set("providers", "cpu").read_file(null_file)), "null");
  EXPECT_EQ(chosen(Options().read_file(null_file).set("providers", "cpu")), "cpu");
}

TEST_F(SessionOptions, VariablesComeBeforeTheFileTheyName) {
  ::setenv("BACKPLANE_CONFIG", file("providers = 'cpu'\n").c_str(), 1);
  EXPECT_EQ(chosen(Options().read_environment()), "cpu");
  ::setenv("BACKPLANE_PROVIDERS", "null", 1);
  EXPECT_EQ(chosen(Options().read_environment()), "null");
  EXPECT_EQ(chosen(Options().read_environment().set("providers", "cpu")), "cpu");
  EXPECT_EQ(chosen(Options().set("providers", "null").set("fallback", "allow")), "null")
      << "who does not read the environment is not told by it";
}

TEST_F(SessionOptions, AVariableThatIsWrongIsNamed) {
  ::setenv("BACKPLANE_PROVIDERS", "null,,", 1);
  expect_words(failure([] { Options().read_environment(); }), {"BACKPLANE_PROVIDERS"});
  ::unsetenv("BACKPLANE_PROVIDERS");
  ::setenv("BACKPLANE_CONFIG", "/nowhere/options.toml", 1);
  expect_words(failure([] { Options().read_environment(); }, BACKPLANE_NOT_FOUND),
               {"BACKPLANE_CONFIG", "/nowhere/options.toml"});
}

TEST_F(SessionOptions, AppendedProvidersComeInOrder) {
  EXPECT_EQ(chosen(Options().AppendExecutionProvider("null").AppendExecutionProvider("cpu")),
            "null");
  EXPECT_EQ(chosen(Options().AppendExecutionProvider("cpu").AppendExecutionProvider("null")),
            "cpu");
}

/// What is given with a provider counts before what the configuration says of all of its name.
TEST_F(SessionOptions, AProvidersOwnOptionsCountFirst) {
  EXPECT_EQ(chosen(Options().set("providers", "null").set("provider.null.kernels", "none")), "cpu");
  EXPECT_EQ(chosen(Options()
                       .set("provider.null.kernels", "none")
                       .AppendExecutionProvider("null", {{"kernels", "all"}})),
            "null");
  EXPECT_EQ(chosen(Options()
                       .set("provider.null.kernels", "all")
                       .AppendExecutionProvider("null", {{"kernels", "none"}})),
            "cpu");
}

TEST_F(SessionOptions, OfAProviderAreChecked) {
  expect_words(failure([] {
                 chosen(Options().set("providers", "null").set("provider.null.kernel", "none"));
               }),
               {"'null'", "'kernel'", "did you mean 'kernels'"});
  expect_words(failure([] {
                 chosen(Options().set("providers", "null").set("provider.null.kernels", "some"));
               }),
               {"'kernels'", "some", "all|none"});
}

TEST_F(SessionOptions, UnknownProvidersAndDevicesAreNamed) {
  expect_words(failure([] { chosen(Options().set("providers", "nul")); }, BACKPLANE_NOT_FOUND),
               {"'nul'", "did you mean 'null'"});
  expect_words(failure([] { chosen(Options().set("providers", "null:3")); }, BACKPLANE_NOT_FOUND),
               {"'null'", "no device 3", "1"});
}

TEST_F(SessionOptions, OptionsOfProvidersThatTheSessionDoesNotOpenAreJudgedToo) {
  const auto on_cpu = [](const char* key, const char* value) {
    return chosen(Options().set("providers", "cpu").set(key, value));
  };
  EXPECT_EQ(on_cpu("provider.null.kernels", "none"), "cpu");
  expect_words(failure([&] { on_cpu("provider.nul.kernels", "none"); }, BACKPLANE_NOT_FOUND),
               {"'provider.nul.kernels'", "did you mean 'null'"});
  expect_words(failure([&] { on_cpu("provider.null.kernel", "none"); }),
               {"'null'", "'kernel'", "did you mean 'kernels'"});
  expect_words(failure([&] { on_cpu("provider.null.kernels", "some"); }),
               {"'null'", "'kernels'", "'some'"});
}

TEST_F(SessionOptions, ForbiddenFallbackNamesTheNodeAndEveryReason) {
  Options forbidding;
  forbidding.set("providers", "null").set("fallback", "forbid");
  EXPECT_EQ(chosen(forbidding), "null");
  expect_words(failure([&] { chosen(forbidding, "Neg"); }, BACKPLANE_UNSUPPORTED),
               {"'make_y'", "Neg", "null"});
  EXPECT_EQ(chosen(Options().set("providers", "null").set("fallback", "allow"), "Neg"), "cpu");
}

TEST_F(SessionOptions, RulesPlaceNodes) {
  EXPECT_EQ(chosen(Options().set("providers", "null,cpu").add_placement("op:Relu", "cpu")), "cpu");
  EXPECT_EQ(chosen(Options().set("providers", "null,cpu").add_placement("make_*", "cpu")), "cpu");
  EXPECT_EQ(chosen(Options().set("providers", "null,cpu").add_placement("other", "cpu")), "null");
  EXPECT_EQ(chosen(Options()
                       .set("providers", "null,cpu")
                       .add_placement("make_y", "null")
                       .add_placement("op:Relu", "cpu")),
            "null")
      << "the first that fits counts";
  expect_words(
      failure([] { chosen(Options().set("providers", "null").add_placement("op:Relu", "nul")); }),
      {"'nul'"});
}

TEST_F(SessionOptions, UnknownDimsAreNamed) {
  ModelMaker maker;
  maker.input("x", {"batch", "3"}).node("Relu", {"x"}, "y").output("y");
  EXPECT_EQ(open(maker, on_cpu().set("dim.batch", "4")).inputs()[0].dims, (Dims{4, 3}));
  expect_words(failure([&] { open(maker, on_cpu().set("dim.bach", "4")); }), {"'bach'", "batch"});
}

TEST_F(SessionOptions, ThreadsAreTheSessionsOwn) {
  ModelMaker maker;
  maker.input("x", {"3"}).node("Relu", {"x"}, "y").output("y");
  EXPECT_EQ(Json::parse(open(maker).statistics())["threads"], 2) << "the environment's";
  EXPECT_EQ(Json::parse(open(maker, on_cpu().set("threads", "1")).statistics())["threads"], 1);
}

TEST_F(SessionOptions, AFailedSessionLeavesTheEnvironmentUsable) {
  ModelMaker broken;
  broken.input("x", {"3"}).node("NoSuchOperator", {"x"}, "y").output("y");
  for (int round = 0; round < 3; ++round) {
    expect_words(failure([&] { open(broken); }, BACKPLANE_UNSUPPORTED),
                 {"NoSuchOperator", "make_y"});
    EXPECT_EQ(chosen(Options().set("providers", "null")), "null");
  }
}

}  // namespace
}  // namespace backplane::runtime_test
