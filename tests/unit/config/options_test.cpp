#include "core/config/options.hpp"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <stdlib.h>
#include <string>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "tests/fixtures/comma_locale.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

/// The message that `body` fails with; "" when it does not.
template <class Body>
std::string failure(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

std::string set_failure(const std::string& key, const std::string& value) {
  Options options;
  return failure([&] { options.set(key, value); });
}

bool holds(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}
#define EXPECT_HOLDS(message, part) EXPECT_TRUE(holds(message, part)) << message

/// The fields whose defaults are documented; memory_limit's is that there is none.
auto fields_of(const Options& options) {
  const EnvironmentOptions& e = options.environment;
  const SessionOptions& s = options.session;
  return std::tie(e.threads, e.spinning, e.log_level, s.threads, s.providers, s.fallback,
                  s.precision, s.optimization, s.deterministic, s.denormals_as_zero, s.parallel,
                  s.inter_op_threads, s.unused_rules, s.widening, s.placement_policy, s.copy_rates,
                  s.plan_cache, s.execution_order, s.profile, s.log_level, s.memory_pattern,
                  s.arena, s.zero_copy, s.capture, s.options_from_model);
}

TEST(Options, EveryDocumentedDefaultIsWhatTheStructsHold) {
  const Options untouched;
  std::size_t seen = 0;
  for (const OptionKey& key : option_keys()) {
    if (key.key.find("NAME") != std::string::npos || key.default_value.empty()) continue;
    ++seen;
    Options options;
    EXPECT_EQ(failure([&] { options.set(key.key, key.default_value); }), "") << key.key;
    EXPECT_TRUE(fields_of(options) == fields_of(untouched)) << key.key;
    for (const auto& [place, bytes] : options.session.memory_limits) EXPECT_EQ(bytes, 0u) << place;
  }
  EXPECT_EQ(seen, std::tuple_size<decltype(fields_of(untouched))>() + 1) << "a key without a field";
}

TEST(Options, ScalarsAreReadIntoTheirFields) {
  Options options;
  options.set("environment.threads", "3");
  options.set("environment.log_level", "debug");
  options.set("threads", "2");
  options.set("fallback", "forbid");
  options.set("precision", "bf16");
  options.set("optimization", "basic");
  options.set("deterministic", "true");
  options.set("plan_cache", "5");
  options.set("external_data", "weights");
  options.set("profile", "true");
  options.set("dim.batch", "7");
  options.set("dim.a.b", "0");
  EXPECT_EQ(options.environment.threads, 3u);
  EXPECT_EQ(options.environment.log_level, "debug");
  EXPECT_EQ(options.session.threads, 2u);
  EXPECT_EQ(options.session.fallback, Fallback::Forbid);
  EXPECT_EQ(options.session.precision, "bf16");
  EXPECT_EQ(options.session.optimization, OptimizationLevel::Basic);
  EXPECT_TRUE(options.session.deterministic);
  EXPECT_EQ(options.session.plan_cache, 5u);
  EXPECT_EQ(options.session.external_data, "weights");
  EXPECT_TRUE(options.session.profile);
  EXPECT_EQ(options.session.dims, (std::map<std::string, std::int64_t>{{"batch", 7}, {"a.b", 0}}));
}

TEST(Options, ListsAreSplitAndReplaceWhatWasThere) {
  Options options;
  options.set("providers", "fake:1, host");
  ASSERT_EQ(options.session.providers.size(), 2u);
  EXPECT_EQ(options.session.providers[0].name, "fake:1");
  EXPECT_EQ(options.session.providers[1].name, "host");
  options.set("providers", "fake?:1,host?");
  EXPECT_EQ(options.session.providers[0].name, "fake:1");
  EXPECT_TRUE(options.session.providers[0].optional && options.session.providers[1].optional);
  EXPECT_EQ(options.get("providers"), "fake?:1,host?");
  options.append_provider({"last?", {}});
  EXPECT_TRUE(options.session.providers[2].optional);
  EXPECT_EQ(options.get("providers"), "fake?:1,host?,last?");
  options.set("providers", "fake:name=Big?");
  EXPECT_FALSE(options.session.providers[0].optional) << "that is a wildcard";
  options.set("providers", "auto");
  EXPECT_TRUE(options.session.providers.empty());
  options.set("environment.plugin_path", "a:/b/c");
  options.set("environment.plugin_path", "d:e");
  EXPECT_EQ(options.environment.plugin_path, (std::vector<fs::path>{"d", "e"}));
  options.set("custom_ops", "x.so:y.so");
  EXPECT_EQ(options.session.custom_ops, (std::vector<fs::path>{"x.so", "y.so"}));
  options.set("custom_ops", "");
  EXPECT_TRUE(options.session.custom_ops.empty());
}

TEST(Options, PlacementRulesKeepTheirOrderAndTheirEqualsSigns) {
  Options options;
  options.set("place", "op:Conv=fake:1; a=b*=host ;between:x..y=host;domain:=host");
  ASSERT_EQ(options.session.placement.size(), 4u);
  EXPECT_EQ(options.session.placement[0].pattern, "op:Conv");
  EXPECT_EQ(options.session.placement[0].provider, "fake:1");
  EXPECT_EQ(options.session.placement[1].pattern, "a=b*");
  EXPECT_EQ(options.session.placement[2].pattern, "between:x..y");
  EXPECT_EQ(options.session.placement[3].pattern, "domain:");
}

TEST(Options, ProviderOptionsReplaceThemselvesOnly) {
  Options options;
  options.set("provider.fake.delay", "1");
  options.set("provider.fake.name.of.it", "x");
  options.set("provider.fake.delay", "2");
  const std::vector<std::pair<std::string, std::string>> expected = {{"delay", "2"},
                                                                     {"name.of.it", "x"}};
  EXPECT_EQ(options.session.provider_options.at("fake"), expected);
}

TEST(Options, UnknownKeysNameTheNearest) {
  EXPECT_HOLDS(set_failure("thread", "1"), "'thread'");
  EXPECT_HOLDS(set_failure("thread", "1"), "did you mean 'threads'");
  EXPECT_HOLDS(set_failure("environment.thread", "1"),
               "'environment.thread' is not known; did you mean 'environment.threads'");
  EXPECT_FALSE(holds(set_failure("environment.qqqqqqqq", "1"), "provider.environment"));
  EXPECT_HOLDS(set_failure("provder.fake.delay", "1"), "'provider.fake.delay'");
  EXPECT_HOLDS(set_failure("dims.batch", "1"), "'dim.batch'");
  EXPECT_HOLDS(set_failure("fake.delay", "1"), "is set as 'provider.fake.delay'");
  EXPECT_HOLDS(set_failure("qqqqqqqqqq", "1"), "fallback");
  EXPECT_HOLDS(set_failure("", "1"), "not known");
  EXPECT_HOLDS(set_failure("dim.", "1"), "'dim.' is not known; did you mean 'dim.NAME'?");
  EXPECT_HOLDS(set_failure("entry.", "1"), "'entry.' is not known; did you mean 'entry.KEY'?");
}

TEST(Options, WrongValuesNameTheKeyAndWhatItTakes) {
  EXPECT_HOLDS(set_failure("fallback", "fobid"), "'fallback'");
  EXPECT_HOLDS(set_failure("fallback", "fobid"), "did you mean 'forbid'");
  EXPECT_HOLDS(set_failure("precision", "fp64"), "fp32 tf32 fp16 bf16");
  for (const char* value : {"-1", "1025", "two", "1.5", "", " 1", "1 ", "99999999999999999999"}) {
    EXPECT_HOLDS(set_failure("threads", value), "from 0 to 1024") << value;
  }
  EXPECT_HOLDS(set_failure("plan_cache", "-1"), "from 0");
  EXPECT_EQ(set_failure("memory_limit", "8589934591GiB"), "");
  for (const char* value : {"8589934592GiB", "18014398509481984KiB", "9223372036854775808", "1TiB"})
    EXPECT_HOLDS(set_failure("memory_limit", value), "'memory_limit'") << value;
  EXPECT_HOLDS(set_failure("dim.batch", "-2"), "'dim.batch'");
  EXPECT_HOLDS(set_failure("deterministic", "yes"), "true or false");
  EXPECT_HOLDS(set_failure("providers", "a,,b"), "''");
  EXPECT_HOLDS(set_failure("providers", "a,b,a"), "'a' twice");
  EXPECT_HOLDS(set_failure("providers", "a:x"), "'a:x'");
  EXPECT_HOLDS(set_failure("providers", "a:1?"), "\"name?:1\"");
  EXPECT_HOLDS(set_failure("providers", "a?,a"), "'a' twice");
  EXPECT_HOLDS(set_failure("path.p.backup", "a?"), "'a?'");
  EXPECT_HOLDS(set_failure("providers", "../a"), "'../a'");
  EXPECT_HOLDS(set_failure("disabled_passes", "fold_constant"), "fold_constants");
  EXPECT_HOLDS(set_failure("custom_ops", "a.so::b.so"), "empty path");
  EXPECT_HOLDS(set_failure("place", "Conv"), "PATTERN=PROVIDER");
  EXPECT_HOLDS(set_failure("place", "between:a=host"), "between:VALUE..VALUE");
  EXPECT_HOLDS(set_failure("place", "op:=host"), "names no operator");
  EXPECT_HOLDS(set_failure("provider.fake", "1"), "provider.NAME.OPTION");
  EXPECT_HOLDS(set_failure("provider..x", "1"), "provider.NAME.OPTION");
}

/// A folder with files, gone at the end.
class OptionFile : public ::testing::Test {
 protected:
  OptionFile() {
    std::string name = (fs::temp_directory_path() / "backplane_options_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~OptionFile() override { fs::remove_all(folder_); }

  fs::path write(const std::string& content, const std::string& name = "options.toml") {
    std::ofstream(folder_ / name) << content;
    return folder_ / name;
  }
  std::string read_failure(const std::string& content) {
    Options options;
    const fs::path path = write(content);
    return failure([&] { options.read_file(path); });
  }

  fs::path folder_;
};

TEST_F(OptionFile, TablesAreDottedKeys) {
  Options options;
  options.read_file(write(R"(
threads = 2
providers = ["fake:1", "host"]
deterministic = true
place = ["op:Conv=host", "a;b=fake"]
[environment]
threads = 4
[dim]
batch = 3
"a.b" = 4
[provider.fake]
delay = 1.5
name = "x"
)"));
  EXPECT_EQ(options.session.threads, 2u);
  EXPECT_EQ(options.environment.threads, 4u);
  EXPECT_TRUE(options.session.deterministic);
  ASSERT_EQ(options.session.providers.size(), 2u);
  EXPECT_EQ(options.session.providers[0].name, "fake:1");
  ASSERT_EQ(options.session.placement.size(), 2u);
  EXPECT_EQ(options.session.placement[1].pattern, "a;b")
      << "elements of a list are not split again";
  EXPECT_EQ(options.session.dims.at("batch"), 3);
  EXPECT_EQ(options.session.dims.at("a.b"), 4);
  EXPECT_EQ(options.session.provider_options.at("fake").size(), 2u);
  EXPECT_EQ(options.session.provider_options.at("fake")[0].second, "1.5");
}

TEST_F(OptionFile, FloatsKeepTheirDigitsInEveryLocale) {
  const test_host::CommaLocale commas;
  Options options;
  options.read_file(write("[provider.fake]\na = 0.5\nb = 1234.56789012345\nc = -2.5e-30\n"));
  std::vector<std::string> words;
  for (const auto& [name, value] : options.session.provider_options.at("fake"))
    words.push_back(value);
  EXPECT_EQ(words, (std::vector<std::string>{"0.5", "1234.56789012345", "-2.5e-30"}));
}

TEST_F(OptionFile, RelativePathsAreTakenFromTheFilesFolder) {
  Options options;
  options.read_file(write(R"(
custom_ops = ["ops/a.so", "/elsewhere/b.so"]
external_data = "../data"
environment.plugin_path = "p:q"
)"));
  EXPECT_EQ(options.session.custom_ops,
            (std::vector<fs::path>{folder_ / "ops/a.so", "/elsewhere/b.so"}));
  EXPECT_EQ(options.session.external_data, (folder_.parent_path() / "data").string());
  EXPECT_EQ(options.environment.plugin_path, (std::vector<fs::path>{folder_ / "p", folder_ / "q"}));
  options.read_file(write("copy_rates = \"rates.txt\"\n"));
  EXPECT_EQ(options.session.copy_rates, (folder_ / "rates.txt").string());
  options.read_file(write("copy_rates = \"off\"\n"));
  EXPECT_EQ(options.session.copy_rates, "off") << "a word, and no file";
}

TEST_F(OptionFile, ErrorsNameFileLineAndKey) {
  EXPECT_HOLDS(read_failure("threads = 2\nthread = 3\n"), "options.toml:2: option 'thread'");
  EXPECT_HOLDS(read_failure("\n\n[dim]\nbatch = -1\n"), "options.toml:4: option 'dim.batch'");
  EXPECT_HOLDS(read_failure("threads = \n"), "options.toml:1: ");
  EXPECT_HOLDS(read_failure("threads = [1, 2]\n"), "takes one value, not a list");
  EXPECT_HOLDS(read_failure("threads = 1979-05-27\n"), "takes a string");
  EXPECT_HOLDS(read_failure("providers = [[1]]\n"), "'providers' takes a string");
  EXPECT_HOLDS(read_failure("[place]\n\"op:Conv\" = \"host\"\n"), "must be a list");
  EXPECT_HOLDS(read_failure("[threads]\nx = 1\n"), "'threads.x'");
  EXPECT_EQ(read_failure("threads = \n").find('\n'), std::string::npos) << "one line";
}

TEST_F(OptionFile, KeysOfManyPartsAreRefusedBeforeTheyAreParsed) {
  std::string key = "a";
  for (int i = 1; i < 20'000; ++i) key += i % 2 == 0 ? ".a" : " . 'b.c'";
  EXPECT_HOLDS(read_failure("threads = 2\n" + key + " = 1\n"),
               "options.toml:2: a key of more than 32 parts");
  EXPECT_HOLDS(read_failure("threads = 2\n\n[" + key + "]\n"),
               "options.toml:3: a key of more than 32 parts");
  std::string tables = "1";
  for (int i = 0; i < 40; ++i) tables.insert(0, "{a.b = ").append("}");
  EXPECT_HOLDS(read_failure("x = " + tables), "options.toml:1: more than 32 tables");
  const std::string dots(100, '.');
  EXPECT_EQ(read_failure("# " + dots + "\nentry.a = \"\\\"" + dots + "\"\nentry.b = \"\"\"\n" +
                         dots + "\n\"\"\"\nentry.c = '" + dots + "'\n"),
            "");
}

TEST_F(OptionFile, AFileWithAnErrorChangesNothing) {
  Options options;
  options.set("threads", "5");
  const fs::path path = write("threads = 2\nzzz = 1\n");
  EXPECT_NE(failure([&] { options.read_file(path); }), "");
  EXPECT_EQ(options.session.threads, 5u);
}

TEST_F(OptionFile, UnreadableFilesAreNamed) {
  Options options;
  EXPECT_HOLDS(failure([&] { options.read_file(folder_ / "none.toml"); }),
               "none.toml' does not exist");
  EXPECT_HOLDS(failure([&] { options.read_file(folder_); }), "is a folder");
  EXPECT_HOLDS(failure([&] { options.read_file("/dev/zero"); }), "not a configuration");
}

TEST_F(OptionFile, VariablesComeAfterTheFileTheyName) {
  const fs::path path = write("providers = \"a\"\nthreads = 3\n");
  ::setenv("BACKPLANE_CONFIG", path.c_str(), 1);
  ::setenv("BACKPLANE_PROVIDERS", "b", 1);
  ::setenv("BACKPLANE_PLUGIN_PATH", "/p:/q", 1);
  Options options;
  options.read_environment();
  EXPECT_EQ(options.session.threads, 3u);
  ASSERT_EQ(options.session.providers.size(), 1u);
  EXPECT_EQ(options.session.providers[0].name, "b");
  EXPECT_EQ(options.environment.plugin_path.size(), 2u);

  ::setenv("BACKPLANE_PROVIDERS", "b,,", 1);
  EXPECT_HOLDS(failure([&] { options.read_environment(); }), "BACKPLANE_PROVIDERS: ");
  ::setenv("BACKPLANE_CONFIG", (folder_ / "none").c_str(), 1);
  EXPECT_HOLDS(failure([&] { options.read_environment(); }), "BACKPLANE_CONFIG: ");
  ::setenv("BACKPLANE_CONFIG", "", 1);
  ::unsetenv("BACKPLANE_PROVIDERS");
  ::unsetenv("BACKPLANE_PLUGIN_PATH");
  Options untouched;
  untouched.read_environment();
  EXPECT_TRUE(untouched.session.providers.empty());
  ::unsetenv("BACKPLANE_CONFIG");
}

}  // namespace
}  // namespace backplane::core
