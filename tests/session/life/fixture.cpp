#include "tests/session/life/fixture.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace backplane::session_test {

Options options(const Settings& settings) {
  Options made;
  made.set("environment.plugin_path", BACKPLANE_TEST_FAKE_PLUGINS);
  made.set("environment.threads", "2");
  for (const auto& [key, value] : settings) made.set(key, value);
  return made;
}

Environment& environment() {
  static Environment shared(options({{"environment.log_level", "error"}}));
  return shared;
}

TestSession::TestSession(std::string model, const Settings& settings, const Environment& in)
    : TestSession(std::move(model), options(settings), in) {}

TestSession::TestSession(std::string model, const Options& given, const Environment& in)
    : model_(std::move(model)), session_(in, model_.data(), model_.size(), given) {}

std::vector<float> TestSession::run(const std::vector<float>& x, const Dims& dims,
                                    const std::string& output, const std::string& input) {
  const Value value = Value::tensor<float>(dims, x);
  const std::vector<std::string> fetches =
      output.empty() ? std::vector<std::string>() : std::vector<std::string>{output};
  return elements(session_.run({{input, value}}, fetches)[0]);
}

std::vector<float> elements(const ValueView& value) {
  const auto* first = value.data<float>();
  return {first, first + value.size()};
}

std::string alive() {
  const fakegpu_counters now = counters();
  std::ostringstream words;
  const auto add = [&](const char* what, std::uint64_t count) {
    if (count > 0) words << count << ' ' << what << ' ';
  };
  add("devices", now.open_devices);
  add("buffers", now.buffers);
  add("streams", now.streams);
  add("fences", now.fences);
  add("kernels", now.kernels);
  add("prepared", now.prepared);
  add("runs", now.open_runs);
  add("sessions", now.sessions);
  add("recordings", now.recordings);
  return words.str();
}

Settings with(Settings settings, const std::string& key, const std::string& value) {
  settings.emplace_back(key, value);
  return settings;
}

void SessionTest::SetUp() {
  environment();  // starts the plugin
  fakegpu().reset();
  std::string pattern = (std::filesystem::temp_directory_path() / "session_life_XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

void SessionTest::TearDown() {
  std::filesystem::remove_all(folder_);
  fakegpu().reset();
  EXPECT_EQ(alive(), "");
}

void SessionTest::write(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

std::string SessionTest::read(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

}  // namespace backplane::session_test
