// What the tests of this folder share: environments, sessions from bytes, the fake device's books.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "backplane/backplane.hpp"
#include "tests/session/fake_device_books.hpp"
#include "tests/session/life/model_maker.hpp"

namespace backplane::session_test {

using Json = nlohmann::json;
using Settings = std::vector<std::pair<std::string, std::string>>;

/// Options with these keys; an environment of theirs finds the fake devices and has two threads.
Options options(const Settings& settings = {});

/// The environment of the process.
Environment& environment();

/// A fake device, then the cpu; the second says that what the device does not take goes to the cpu in silence.
inline const Settings kFake = {{"providers", "fakegpu:0,cpu"}};
inline const Settings kFakeAllowed = {{"providers", "fakegpu:0,cpu"}, {"fallback", "allow"}};

/// `settings` with one more; of a key that is there already the last counts.
Settings with(Settings settings, const std::string& key, const std::string& value);

/// A session that keeps its model's bytes.
class TestSession {
 public:
  TestSession(std::string model, const Settings& settings, const Environment& in = environment());
  TestSession(std::string model, const Options& given, const Environment& in = environment());
  Session& operator*() { return session_; }
  Session* operator->() { return &session_; }
  /// The first output for one input, or the one that is named.
  std::vector<float> run(const std::vector<float>& x, const Dims& dims,
                         const std::string& output = "", const std::string& input = "x");
  Json explain() const { return Json::parse(session_.explain()); }
  Json statistics() const { return Json::parse(session_.statistics()); }

 private:
  std::string model_;
  Session session_;
};

std::vector<float> elements(const ValueView& value);

/// The error that `body` throws; code 0 and no text when it throws none.
struct Failure {
  std::int32_t code = 0;
  std::string text;
};
template <class Body>
Failure failure_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

/// What is alive on the fake devices; "" when nothing is.
std::string alive();

/// A folder of its own for each test, removed at its end; nothing may be left on the fake devices.
class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  static void write(const std::string& path, const std::string& contents);
  static std::string read(const std::string& path);
  std::string folder_;
};

inline ::testing::AssertionResult holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not hold \"" << part << "\"";
}
#define EXPECT_HOLDS(text, part) EXPECT_TRUE(holds(text, part))

}  // namespace backplane::session_test
